"""A flush: live batches become files of the books. What a source said of one UTC day is one import, to which each flush adds.

What a source lists and corrects is one import for each UTC day on which it did, whatever time it speaks of.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import time

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.sources.base import ReadOptions, Rows, Source
from loadfactor.sources.parsing.steps import EXPORTER_STEP_S
from loadfactor.store.compaction import close_day
from loadfactor.store.import_records import ImportRecord, list_imports, put_records
from loadfactor.store.importing import Receipt, add_rows
from loadfactor.store.live import read_live
from loadfactor.store.live_batch import LiveBatch, is_listing
from loadfactor.store.live_rows import sort_by_source
from loadfactor.store.small_imports import count_rows_of
from loadfactor.store.writer import Writer
from loadfactor.tables.schema import table

Days = npt.NDArray[np.int64]


def flush_live(writer: Writer) -> list[Receipt]:
    """Make files of the live batches that are not files yet. Discard them when it is published."""
    batches = read_live(writer.folder, writer.manifest.live_through)
    if not batches:
        return []
    writer.manifest = replace(writer.manifest, live_through=batches[-1][0])
    newest = _newest_day(writer)
    receipts, records = [], []
    for source, items in sort_by_source(batches):
        for day, rows in [(_today(), items)] if is_listing(source) else _divide(items):
            record, receipt = _add_day(writer, source, day, rows)
            records.append(record)
            receipts.append(receipt)
    put_records(writer, records)
    if newest is not None and newest < (_newest_day(writer) or newest):
        close_day(writer, newest)
    return receipts


def _add_day(writer: Writer, source: str, day: int, batches: Sequence[LiveBatch]) -> tuple[ImportRecord, Receipt]:
    """Add rows of a day to the import of that day, begun where there is none; its record as it is now."""
    date = datetime.fromtimestamp(day * MS_PER_DAY / MS_PER_S, UTC).date()
    name, now = f"live {source} {date}", int(time() * MS_PER_S)
    known = list_imports(writer, "digest = ?", [name])
    before = known[0] if known else ImportRecord(writer.manifest.last_import + 1, name, source, (f"live {date}",), {})
    lists = is_listing(source)
    seen = Source(source, lambda paths: paths, lambda _paths, _options: iter(()), EXPORTER_STEP_S, watches=not lists)
    items = [Rows(batch.table, batch.rows, batch.where) for batch in batches]
    added = add_rows(writer, seen, items, ReadOptions(), before.number, lambda _what, _share: None, live=True)
    rows = {name: before.rows.get(name, 0) + added.rows.get(name, 0) for name in sorted({*before.rows, *added.rows})}
    rows |= {name: n for name in added.rows if (n := count_rows_of(writer, table(name), before.number)) is not None}
    gaps = {(where, what): count for where, what, count in before.gaps}
    for gap in added.gaps:
        gaps[gap.where, gap.what] = gaps.get((gap.where, gap.what), 0) + gap.count
    told = tuple((where, what, count) for (where, what), count in gaps.items())
    return replace(before, rows=rows, gaps=told, at_ms=now), replace(added, number=before.number)


def _today() -> int:
    """The UTC day on which rows are listed: what corrects them is listed later, and so is its import."""
    return int(time()) * MS_PER_S // MS_PER_DAY


def _divide(batches: Sequence[LiveBatch]) -> Iterator[tuple[int, list[LiveBatch]]]:
    """The UTC days that batches speak of, and the rows of each. Rows that end at midnight belong to the day before.

    Rows that name no time go with the newest day there is, else with today.
    """
    days = [_days(batch) for batch in batches]
    named = [int(d.max()) for d in days if len(d) and d.max() >= 0]
    newest = max(named, default=_today())
    found: dict[int, list[LiveBatch]] = {}
    for batch, of in zip(batches, days, strict=True):
        there = np.where(of < 0, newest, of)
        for day in np.unique(there).tolist():
            rows = batch.rows if (there == day).all() else batch.rows.filter(pa.array(there == day))
            found.setdefault(day, []).append(replace(batch, rows=rows))
    yield from sorted(found.items())


def _days(batch: LiveBatch) -> Days:
    """The day of each row, by the last instant that it names; -1 where it names none."""
    columns = [batch.rows[c] for c in ("to_utc", "at_utc", "from_utc") if c in batch.rows.column_names]
    if not columns:
        return np.full(batch.rows.num_rows, -1)
    last = pc.coalesce(*(column.cast(pa.int64()) for column in columns))
    days: Days = (np.asarray(pc.fill_null(last, 0)) - 1) // MS_PER_DAY
    return days


def _newest_day(writer: Writer) -> int | None:
    return max((f.day for f in writer.manifest.of("samples") if f.day is not None), default=None)
