"""What a source yields, gathered for a test: rows by table as they enter the books, and gaps."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from loadfactor.sources.base import Gap, ReadOptions, Source
from loadfactor.store.row_checks import validate_rows
from loadfactor.tables.schema import table


@dataclass(frozen=True)
class Reading:
    """Everything one import would bring."""

    tables: dict[str, pa.Table]
    gaps: tuple[Gap, ...]
    batches: int


def read(source: Source, *paths: Path, options: ReadOptions | None = None) -> Reading:
    """Reads the paths and passes every batch through the door, as an import does."""
    batches: dict[str, list[pa.Table]] = defaultdict(list)
    gaps = []
    rows: dict[str, int] = defaultdict(int)
    for item in source.read(source.files(paths), options or ReadOptions()):
        if isinstance(item, Gap):
            gaps.append(item)
            continue
        batches[item.table].append(validate_rows(item, rows[item.table]))
        rows[item.table] += item.data.num_rows
    count = sum(len(b) for b in batches.values())
    return Reading({name: pa.concat_tables(parts) for name, parts in batches.items()}, tuple(gaps), count)


@dataclass
class Seen:
    """Everything a source yielded, as plain rows and counts of gaps."""

    samples: list[dict[str, object]] = field(default_factory=list)
    devices: list[dict[str, object]] = field(default_factory=list)
    allocations: list[dict[str, object]] = field(default_factory=list)
    device_events: list[dict[str, object]] = field(default_factory=list)
    gaps: dict[str, int] = field(default_factory=dict)

    def measured(self, row: int = 0) -> dict[str, object]:
        """What one sample knows."""
        return {k: v for k, v in self.samples[row].items() if v is not None and k not in ("device_id", "to_utc")}

    def column(self, name: str) -> list[object]:
        return [row.get(name) for row in self.samples]


def see(source: Source, *paths: Path, **options: object) -> Seen:
    """What a source makes of these files, not yet admitted; every batch has the types of its table and a bounded size."""
    seen = Seen()
    for item in source.read(source.files(paths), ReadOptions(**options)):  # type: ignore[arg-type]
        if isinstance(item, Gap):
            seen.gaps[item.what] = seen.gaps.get(item.what, 0) + item.count
            continue
        schema = table(item.table).schema
        assert all(f.type == schema.field(f.name).type for f in item.data.schema)
        assert item.data.num_rows <= 50_000
        getattr(seen, item.table).extend(item.data.to_pylist())
    return seen
