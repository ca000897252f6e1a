"""How tests read logs of nvidia-smi."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from loadfactor.sources.base import Gap, ReadOptions
from loadfactor.sources.nvidia_smi import SOURCE
from loadfactor.tables import table


@dataclass
class Seen:
    """Everything a source yielded."""

    samples: list[dict[str, object]] = field(default_factory=list)
    devices: list[dict[str, object]] = field(default_factory=list)
    gaps: dict[str, int] = field(default_factory=dict)

    def column(self, name: str) -> list[object]:
        """One column of the samples."""
        return [row.get(name) for row in self.samples]


Read = Callable[..., Seen]


def read_files(*paths: Path, **options: object) -> Seen:
    """What the source makes of these files; every batch is checked against the schema."""
    seen = Seen()
    options.setdefault("timezone", ZoneInfo("UTC"))
    for item in SOURCE.read(SOURCE.files(paths), ReadOptions(**options)):  # type: ignore[arg-type]
        if isinstance(item, Gap):
            seen.gaps[item.what] = seen.gaps.get(item.what, 0) + item.count
            continue
        schema = table(item.table).schema
        assert all(f.type == schema.field(f.name).type for f in item.data.schema)
        assert item.data.num_rows <= 50_000
        getattr(seen, item.table).extend(item.data.to_pylist())
    return seen


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads a text, written to a file called gpu.csv (or `name`), as the source does."""

    def from_text(text: str | bytes, name: str = "gpu.csv", **options: object) -> Seen:
        path = tmp_path / name
        data = text.encode() if isinstance(text, str) else text
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return read_files(path, **options)

    return from_text


@pytest.fixture
def read_paths() -> Read:
    """Reads files."""
    return read_files
