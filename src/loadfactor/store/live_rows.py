"""Live batches shown to a session as rows of the books, before they are files."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from loadfactor.sources.base import Rows
from loadfactor.sources.parsing.steps import EXPORTER_STEP_S
from loadfactor.store import small_tables
from loadfactor.store.live_batch import LiveBatch, is_listing
from loadfactor.store.manifest import merge
from loadfactor.store.sample_files import SamplePart, read
from loadfactor.store.sample_imports import Series, find_starts, look_around
from loadfactor.store.session import NOT_OF_TIME, Session
from loadfactor.store.settle import settle
from loadfactor.store.small_imports import BOOKED, find_changed
from loadfactor.store.staged_import import StagedImport
from loadfactor.store.table_files import read_rows
from loadfactor.store.tagged_rows import tag_relation
from loadfactor.store.vote_counts import count_day_votes, find_near_day, votes_whole
from loadfactor.tables.schema import table

Numbered = tuple[int, LiveBatch]


def show_live(session: Session, batches: Sequence[Numbered]) -> None:
    """Let a session see live batches that are not files yet, as if they were the newest imports. Nothing on the disk changes."""
    small: dict[str, list[str]] = {}
    parts: list[SamplePart] = []
    last: dict[Series, int] = {}
    recounted: set[int] = set()
    with tempfile.TemporaryDirectory(prefix="loadfactor-live-") as folder:
        for place, (source, items) in enumerate(sort_by_source(batches)):
            number = session.manifest.last_import + place + 1
            with StagedImport(Path(folder) / str(place), source, None, EXPORTER_STEP_S, number) as staging:
                for batch in items:
                    staging.take(Rows(batch.table, batch.rows, batch.where))
                for name, path in staging.finish().items():
                    relation = f"live_{place}_{name}"
                    watched = "true" if name in small_tables.WATCHED and not is_listing(source) else "false"
                    tagged = path.with_name(f"tagged-{path.name}")
                    rows = tag_relation(session, name, read([path]), session.entry.tag, tagged)
                    session.materialize(relation, f"SELECT *, {watched} AS watched FROM {rows}")
                    small.setdefault(name, []).append(relation)
                for cell, (day, rows) in enumerate(staging.cells()):
                    around = look_around(session, rows, session.manifest.of("samples"))
                    settled = settle(rows, {**last, **around.before}, refuse=False)
                    last |= settled.last
                    relation = f"live_{place}_samples_{cell}"
                    session.register(relation, settled.rows)
                    whole = around.mixed or votes_whole(session.manifest.of("samples"), day, rows.num_rows)
                    votes = () if whole else settled.facts.votes
                    starts = find_starts(settled.rows)
                    facts = replace(settled.facts, starts=starts, settled=not around.mixed, votes=votes)
                    parts.append(SamplePart(relation, settled.from_ms, settled.to_ms, facts))
                    recounted |= {day, day + 1} if around.mixed else {day} if whole else set()
    session.live_samples = tuple(parts)
    stored = {f.day for f in session.manifest.of("samples")}
    session.live_votes = {
        day: count_day_votes(session, day, find_near_day(session, day)) for day in sorted(recounted) if day in stored
    }
    for name, relations in small.items():
        _show_table(session, name, relations)


def _show_table(session: Session, name: str, relations: list[str]) -> None:
    """A table with live rows folded in, and the spans that they change."""
    kept = table(name)
    columns = f"{small_tables.name_columns(kept)}, {small_tables.LOGGED}"
    stored = session.paths(session.manifest.of(name))
    rows = " UNION ALL ".join(f"SELECT {columns} FROM {relation}" for relation in relations)
    if stored:
        rows += f" UNION ALL {small_tables.as_logged(kept, stored)}"
    shown = f"live_{name}"
    session.materialize(shown, small_tables.fold(kept, f"({rows})"))
    if name == "devices":
        session.materialize("live_devices_completed", small_tables.completed(shown))
        shown = "live_devices_completed"
    if name in BOOKED:
        changed = find_changed(session, kept, shown, read_rows(kept.name, stored) if stored else None)
        session.live_spans = merge([*session.live_spans, *changed])
    if name not in NOT_OF_TIME and (extent := small_tables.extent(kept)) is not None:
        start, end = extent
        low, high = session.fetch_one(f"SELECT min({start}), max(greatest({start}, {end})) FROM {shown}")
        session.live_extents[name] = low, high
    session.live[name] = shown


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
