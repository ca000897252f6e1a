"""Live batches shown to a session as rows of the books, before they are files.

A flush: live batches become files of the books. What a source reported of one UTC day is one import, to which each flush adds.

What a source lists and corrects is one import for each UTC day on which it did, whatever time it speaks of.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import time

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.live import corrects_rows
from loadfactor.sources.parsing.steps import EXPORTER_STEP_S
from loadfactor.store import small_imports
from loadfactor.store.compaction import close_day
from loadfactor.store.import_records import LIVE_DAY, ImportRecord, list_imports, put_records
from loadfactor.store.importing import Origin, Receipt, add_rows
from loadfactor.store.live import read_live
from loadfactor.store.live_database import LiveBatch, Numbered
from loadfactor.store.manifest import merge
from loadfactor.store.normalize import normalize
from loadfactor.store.overlay import Overlay
from loadfactor.store.sample_files import SamplePart, quote, read
from loadfactor.store.sample_imports import (
    Series,
    count_day_votes,
    find_near_day,
    find_starts,
    look_around,
    votes_whole,
)
from loadfactor.store.session import NOT_OF_TIME, Session, read_rows
from loadfactor.store.small_imports import BOOKED, count_rows_of, find_changed, tag_relation
from loadfactor.store.staged_import import StagedImport
from loadfactor.store.writer import Writer
from loadfactor.tables.schema import table


def show_live(session: Session, overlay: Overlay, batches: Sequence[Numbered]) -> None:
    """Let a session see live batches that are not files yet, as if they were the newest imports. Nothing on the disk changes.

    Their tables are in the overlay: other sessions of the same generation may show it.
    """
    small: dict[str, list[str]] = {}
    parts: list[SamplePart] = []
    last: dict[Series, int] = {}
    recounted: set[int] = set()
    with tempfile.TemporaryDirectory(prefix="loadfactor-live-") as folder:
        for place, (source, items) in enumerate(sort_by_source(batches)):
            number = session.manifest.last_import + place + 1
            with StagedImport(
                Path(folder) / str(place), source, None, EXPORTER_STEP_S, number, leaves_out=True
            ) as staging:
                for batch in items:
                    staging.take(Rows(batch.table, batch.rows, batch.where))
                for name, path in staging.finish().items():
                    relation = f"live_{place}_{name}"
                    watched = "true" if name in small_imports.WATCHED and not corrects_rows(source) else "false"
                    tagged = path.with_name(f"tagged-{path.name}")
                    rows = tag_relation(session, name, read([path]), session.entry.tag, tagged)
                    session.materialize(relation, f"SELECT *, {watched} AS watched FROM {rows}")
                    small.setdefault(name, []).append(relation)
                for cell, (day, rows) in enumerate(staging.cells()):
                    around = look_around(session, rows, session.manifest.of("samples"))
                    normalized = normalize(rows, {**last, **around.before}, refuse=False)
                    last |= normalized.last
                    relation = f"live_{place}_samples_{cell}"
                    session.raw.register("live_samples", normalized.rows)
                    relation = overlay.materialize(session.raw, relation, "SELECT * FROM live_samples")
                    session.raw.unregister("live_samples")
                    whole = around.mixed or votes_whole(session.manifest.of("samples"), day, rows.num_rows)
                    votes = () if whole else normalized.facts.votes
                    starts = find_starts(normalized.rows)
                    facts = replace(normalized.facts, starts=starts, settled=not around.mixed, votes=votes)
                    parts.append(SamplePart(relation, normalized.from_ms, normalized.to_ms, facts))
                    recounted |= {day, day + 1} if around.mixed else {day} if whole else set()
    overlay.samples = tuple(parts)
    session.show(overlay)
    stored = {f.day for f in session.manifest.of("samples")}
    overlay.votes = {
        day: count_day_votes(session, day, find_near_day(session, day)) for day in sorted(recounted) if day in stored
    }
    for name, relations in small.items():
        _show_table(session, overlay, name, relations)
    session.show(overlay)


def _show_table(session: Session, overlay: Overlay, name: str, relations: list[str]) -> None:
    kept = table(name)
    columns = f"{small_imports.name_columns(kept)}, {small_imports.LOGGED}"
    stored = session.paths(session.manifest.of(name))
    rows = " UNION ALL ".join(f"SELECT {columns} FROM {relation}" for relation in relations)
    if stored:
        rows += f" UNION ALL {small_imports.as_logged(kept, stored)}"
    shown = overlay.materialize(session.raw, f"live_{name}", small_imports.fold(kept, f"({rows})"))
    if name == "devices":
        shown = overlay.materialize(session.raw, "live_devices_completed", small_imports.completed(shown))
    if name in BOOKED:
        changed = find_changed(session, kept, shown, read_rows(kept.name, stored) if stored else None)
        overlay.spans = merge([*overlay.spans, *changed])
    if name not in NOT_OF_TIME and (extent := small_imports.extent(kept)) is not None:
        start, end = extent
        low, high = session.fetch_one(f"SELECT min({start}), max(greatest({start}, {end})) FROM {shown}")
        overlay.extents[name] = low, high
    overlay.tables[name] = shown


def sort_by_source(batches: Sequence[Numbered]) -> list[tuple[str, list[LiveBatch]]]:
    """The batches of each source, those of one table as one batch, in the order they came."""
    found: dict[str, dict[str, list[LiveBatch]]] = {}
    for _, batch in sorted(batches, key=lambda item: (item[1].source, item[0])):
        found.setdefault(batch.source, {}).setdefault(batch.table, []).append(batch)
    return [(source, [batch for of in tables.values() for batch in _join(of)]) for source, tables in found.items()]


def _join(batches: list[LiveBatch]) -> list[LiveBatch]:
    """Batches of one source and table as one, under the label of the first; as they are where their columns do not go together."""
    if len(batches) == 1:
        return batches
    try:
        rows = pa.concat_tables([_plain(batch.rows) for batch in batches], promote_options="permissive")
    except pa.ArrowException:
        return batches
    return [replace(batches[0], rows=rows)]


def _plain(rows: pa.Table) -> pa.Table:
    """Rows with dictionaries written out where their types would differ."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(place, field.name, rows[place].cast(field.type.value_type))
    return rows


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
        for day, rows in [(_today(), items)] if corrects_rows(source) else _divide(items):
            record, receipt = _add_day(writer, source, day, rows)
            records.append(record)
            receipts.append(receipt)
    put_records(writer, records)
    if newest is not None and newest < (_newest_day(writer) or newest):
        close_day(writer, newest)
    return receipts


def add_live_day(writer: Writer, source: str, day: int, batches: Sequence[LiveBatch]) -> Receipt:
    """Add rows to what came live of a source on a UTC day."""
    record, receipt = _add_day(writer, source, day, batches)
    put_records(writer, [record])
    return receipt


def _add_day(writer: Writer, source: str, day: int, batches: Sequence[LiveBatch]) -> tuple[ImportRecord, Receipt]:
    date = datetime.fromtimestamp(day * MS_PER_DAY / MS_PER_S, UTC).date()
    name, now = f"{LIVE_DAY}{source} {date}", int(time() * MS_PER_S)
    known = list_imports(writer, f"digest = {quote(name)}")
    before = (
        known[0] if known else ImportRecord(writer.manifest.last_import + 1, name, source, (f"{LIVE_DAY}{date}",), {})
    )
    origin = Origin(source, EXPORTER_STEP_S, watches=not corrects_rows(source))
    items = [Rows(batch.table, batch.rows, batch.where) for batch in batches]
    added = add_rows(writer, origin, items, ReadOptions(), before.number, lambda _what, _share: None, live=True)
    rows = {name: before.rows.get(name, 0) + added.rows.get(name, 0) for name in sorted({*before.rows, *added.rows})}
    rows |= {name: n for name in added.rows if (n := count_rows_of(writer, table(name), before.number)) is not None}
    gaps = {(where, what): count for where, what, count in before.gaps}
    for gap in added.gaps:
        gaps[gap.where, gap.what] = gaps.get((gap.where, gap.what), 0) + gap.count
    stated = tuple((where, what, count) for (where, what), count in gaps.items())
    return replace(before, rows=rows, gaps=stated, at_ms=now), replace(added, number=before.number)


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
