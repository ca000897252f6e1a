"""Bodies that were acknowledged and that no decoder takes: files in the quarantine of a store, for whoever mends the decoder."""

from pathlib import Path

from loadfactor.store import disk
from loadfactor.store.live_received import ReceivedBody

QUARANTINE = "quarantine"


def set_body_aside(folder: Path, number: int, body: ReceivedBody) -> Path:
    """Keep a body as it came; where it lies. Once is as good as twice. Raises OSError where the disk does not take it."""
    path = folder / QUARANTINE / f"body-{number}.{body.format}"
    disk.make_folder(path.parent)
    new = path.with_suffix(".new")
    disk.write_file(new, body.content)
    disk.rename(new, path)
    disk.sync_folder(path.parent)
    return path


def list_set_aside(folder: Path) -> list[Path]:
    """Where they lie."""
    return [path for path in (folder / QUARANTINE).glob("body-*") if path.suffix != ".new"]


def count_set_aside(folder: Path) -> int:
    """How many lie there."""
    return len(list_set_aside(folder))
