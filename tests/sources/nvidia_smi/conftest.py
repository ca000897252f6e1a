"""How tests read logs of nvidia-smi."""

import gzip
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.sources.reading import Seen, see

from loadfactor.sources.nvidia_smi import SOURCE

Read = Callable[..., Seen]


def read_files(*paths: Path, **options: object) -> Seen:
    """What the source makes of these files, whose local times are UTC where nothing else is said."""
    return see(SOURCE, *paths, **{"timezone": ZoneInfo("UTC"), **options})


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
    return read_files
