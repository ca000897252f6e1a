"""What a source yields, gathered for a test: rows by table as they enter the books, and gaps."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from loadfactor.sources.base import Gap, ReadOptions, Source
from loadfactor.store.door import admit


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
        batches[item.table].append(admit(item, rows[item.table]))
        rows[item.table] += item.data.num_rows
    count = sum(len(b) for b in batches.values())
    return Reading({name: pa.concat_tables(parts) for name, parts in batches.items()}, tuple(gaps), count)
