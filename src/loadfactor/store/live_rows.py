"""Live batches as rows of the books: shown to sessions at once, and made files by a flush."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from loadfactor.sources.base import ReadOptions, Rows, Source
from loadfactor.store import small_tables
from loadfactor.store.importing import Receipt, import_rows
from loadfactor.store.live import read_live
from loadfactor.store.live_batch import LiveBatch
from loadfactor.store.manifest import merge
from loadfactor.store.sample_files import SamplePart, read
from loadfactor.store.sample_imports import Series, find_starts, look_around
from loadfactor.store.session import NOT_OF_TIME, Session
from loadfactor.store.settle import settle
from loadfactor.store.small_imports import BOOKED, find_changed
from loadfactor.store.staged_import import StagedImport
from loadfactor.store.vote_counts import count_day_votes, find_near_day
from loadfactor.store.writer import Writer
from loadfactor.tables import table

Numbered = tuple[int, LiveBatch]


def flush_live(writer: Writer) -> list[Receipt]:
    """Make files of the live batches that are not files yet: an import for each source. Discard them when it is published."""
    batches = read_live(writer.folder, writer.manifest.live_through)
    receipts = []
    if batches:  # first: every file of this flush says so, for a manifest that is rebuilt from the files
        writer.manifest = replace(writer.manifest, live_through=batches[-1][0])
    for source, items in _by_source(batches):
        numbers = f"live {source} {items[0][0]}-{items[-1][0]}"
        rows = [Rows(batch.table, batch.rows, batch.where) for _, batch in items]
        options = ReadOptions()
        live = _as_source(source)
        receipts.append(import_rows(writer, live, rows, options, numbers, [], lambda _what, _share: None))
    return receipts


def show_live(session: Session, batches: Sequence[Numbered]) -> None:
    """Let a session see live batches that are not files yet, as if they were the newest imports. Nothing on the disk changes."""
    small: dict[str, list[str]] = {}
    parts: list[SamplePart] = []
    last: dict[Series, int] = {}
    mixed: set[int] = set()
    with tempfile.TemporaryDirectory(prefix="loadfactor-live-") as folder:
        for place, (source, items) in enumerate(_by_source(batches)):
            number = session.manifest.last_import + place + 1
            with StagedImport(Path(folder) / str(place), source, None, None, number) as staging:
                for _, batch in items:
                    staging.take(Rows(batch.table, batch.rows, batch.where))
                for name, path in staging.finish().items():
                    relation = f"live_{place}_{name}"
                    watched = "true" if name in small_tables.WATCHED else "false"
                    session.materialize(relation, f"SELECT *, {watched} AS watched FROM {read([path])}")
                    small.setdefault(name, []).append(relation)
                for cell, (day, rows) in enumerate(staging.cells()):
                    around = look_around(session, rows, session.manifest.of("samples"))
                    settled = settle(rows, {**last, **around.before}, refuse=False)
                    last |= settled.last
                    relation = f"live_{place}_samples_{cell}"
                    session.register(relation, settled.rows)
                    votes = () if around.mixed else settled.facts.votes
                    starts = find_starts(settled.rows)
                    facts = replace(settled.facts, starts=starts, settled=not around.mixed, votes=votes)
                    parts.append(SamplePart(relation, settled.from_ms, settled.to_ms, facts))
                    mixed |= {day, day + 1} if around.mixed else set()
    session.live_samples = tuple(parts)
    stored = {f.day for f in session.manifest.of("samples")}
    session.live_votes = {
        day: count_day_votes(session, day, find_near_day(session, day)) for day in sorted(mixed) if day in stored
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
        changed = find_changed(session, shown, read(stored) if stored else None)
        session.live_spans = merge([*session.live_spans, *changed])
    if name not in NOT_OF_TIME and (extent := small_tables.extent(kept)) is not None:
        start, end = extent
        low, high = session.fetch_one(f"SELECT min({start}), max(greatest({start}, {end})) FROM {shown}")
        session.live_extents[name] = low, high
    session.live[name] = shown


def _by_source(batches: Sequence[Numbered]) -> Iterator[tuple[str, list[Numbered]]]:
    """The batches of each source, in the order they came."""
    ordered = sorted(batches, key=lambda item: (item[1].source, item[0]))
    for source, items in groupby(ordered, key=lambda item: item[1].source):
        yield source, list(items)


def _as_source(name: str) -> Source:
    """What live rows come from: they end where they were last seen, not where anything ended."""
    return Source(name, lambda paths: paths, lambda _paths, _options: iter(()), watches=True)
