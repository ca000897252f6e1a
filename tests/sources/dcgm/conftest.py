"""How tests read the text of dcgm-exporter."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sources.reading import Seen, see

from loadfactor.sources.dcgm import SOURCE

AT_MS = 1_700_000_000_000
Read = Callable[..., Seen]


def read_files(*paths: Path, **options: object) -> Seen:
    """What the source makes of these files, scraped at AT_MS where nothing else is said."""
    return see(SOURCE, *paths, **{"at_ms": AT_MS, **options})


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads texts, each written to its own file, as the source does."""

    def from_texts(*texts: str | bytes, **options: object) -> Seen:
        paths = []
        for i, text in enumerate(texts):
            paths.append(tmp_path / f"scrape-{i}.prom")
            paths[-1].write_bytes(text.encode() if isinstance(text, str) else text)
        return read_files(*paths, **options)

    return from_texts


@pytest.fixture
def read_paths() -> Read:
    return read_files
