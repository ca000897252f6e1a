"""How tests read the text of dcgm-exporter."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from loadfactor.sources.base import Gap, ReadOptions
from loadfactor.sources.dcgm import SOURCE
from loadfactor.tables import table

AT_MS = 1_700_000_000_000


@dataclass
class Seen:
    """Everything a source yielded."""

    samples: list[dict[str, object]] = field(default_factory=list)
    devices: list[dict[str, object]] = field(default_factory=list)
    allocations: list[dict[str, object]] = field(default_factory=list)
    gaps: dict[str, int] = field(default_factory=dict)

    def measured(self, row: int = 0) -> dict[str, object]:
        """What one sample knows."""
        return {k: v for k, v in self.samples[row].items() if v is not None and k not in ("device_id", "to_utc")}


Read = Callable[..., Seen]


def read_files(*paths: Path, **options: object) -> Seen:
    """What the source makes of these files; every batch is checked against the schema."""
    seen = Seen()
    options.setdefault("at_ms", AT_MS)
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
    """Reads files."""
    return read_files
