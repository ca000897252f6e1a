"""Changing the books: what is imported, forgotten or merged is published together with its ledger. Questions import none of it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from loadfactor.base.errors import InputError
from loadfactor.books.rebuild import refresh
from loadfactor.sources import find_source
from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.store.compaction import compact_store, forget_import
from loadfactor.store.disk import append_audit
from loadfactor.store.generations import Choice, choose
from loadfactor.store.import_records import GONE, ImportRecord, list_imports, list_outgrown
from loadfactor.store.importing import Progress, Receipt, import_files, import_rows
from loadfactor.store.live_rows import flush_live
from loadfactor.store.manifest import Loss, Manifest
from loadfactor.store.merging import merge_store
from loadfactor.store.place import Place
from loadfactor.store.repair import find_choices, repair_store, start_repair
from loadfactor.store.sample_files import quote
from loadfactor.store.store import Store
from loadfactor.store.writer import Writer
from loadfactor.tables.schema import SAMPLES, STATEMENTS


def add_files(
    store: Store,
    idle_below: float,
    source: str,
    paths: Iterable[str | Path],
    options: ReadOptions | None,
    progress: Progress,
) -> Receipt:
    """As `Books.add`."""
    kind = find_source(source)
    files = tuple(Path(p) for p in paths)

    def work(writer: Writer) -> Receipt:
        receipt = import_files(writer, kind, files, options or ReadOptions(), progress)
        if kind.grows and receipt.number is not None and not receipt.already:
            # Take out the imports of the same logs when they were shorter; their numbers.
            outgrown = tuple(record.number for record in list_outgrown(writer, receipt.number))
            for before in outgrown:
                forget_import(writer, before)
            receipt = replace(receipt, replaced=outgrown)
        _finish(writer, progress, idle_below)
        return receipt

    receipt = store.change(work)
    for number in receipt.replaced:
        append_audit(store.folder, "forget", number=number, source=source)
    return receipt


def add_rows(
    store: Store,
    idle_below: float,
    source: Source,
    items: Iterable[Rows | Gap],
    name: str,
    progress: Progress,
    has_source_times: bool = True,
) -> Receipt:
    """As `Books.add_rows`."""

    def work(writer: Writer) -> Receipt:
        for record in list_imports(writer, f"digest = {quote(name)}"):
            gaps = tuple(Gap(*gap) for gap in record.gaps)
            return Receipt(source.name, record.rows, gaps, already=True, number=record.number)
        receipt = import_rows(writer, source, items, ReadOptions(), name, [Path(name)], progress, has_source_times)
        if receipt.rows:
            _finish(writer, progress, idle_below)
        return receipt

    return store.change(work, is_repeatable=iter(items) is not items)


def merge(store: Store, idle_below: float, other: Store, since_ms: int, progress: Progress) -> list[Receipt]:
    """As `Books.merge`."""
    with other.read() as session:

        def work(writer: Writer) -> list[Receipt]:
            receipts = merge_store(writer, session, progress, since_ms)
            if receipts:
                _finish(writer, progress, idle_below)
            return receipts

        return store.change(work)


def forget(store: Store, idle_below: float, number: int, progress: Progress) -> ImportRecord:
    """As `Books.forget`."""

    def work(writer: Writer) -> ImportRecord:
        found = list_imports(writer, f"import_no = {number}")
        if not found:
            raise InputError(f"no import {number} in {store.name}; `loadfactor imports` lists them")
        if found[0].source == STATEMENTS.name:
            raise InputError(
                f"import {number} holds the statements of a closed month, which stay; `loadfactor chargeback --close` adds the"
                " ones that replace them"
            )
        gone = sum(count for table, what, count in found[0].gaps if (table, what) == (SAMPLES.name, GONE))
        if gone and gone >= found[0].rows.get(SAMPLES.name, 0) and len(found[0].rows) == 1:
            raise InputError(
                f"all {gone:,} samples of import {number} were dropped ([retention] samples), and the ledger of their days stays as"
                " it was booked: there is nothing left to take out"
            )
        progress("forgetting", 0.0)
        forget_import(writer, number)
        _finish(writer, progress, idle_below)
        return found[0]

    forgotten = store.change(work)
    append_audit(store.folder, "forget", number=number, source=forgotten.source)
    return forgotten


def flush(store: Store, idle_below: float, witnessed_ms: int = 0) -> int:
    """As `Books.flush`."""

    def work(writer: Writer) -> int:
        writer.witnessed_ms = witnessed_ms
        if flush_live(writer):
            _finish(writer, quiet, idle_below)
        return writer.manifest.live_through

    return store.change(work)


def compact(store: Store, idle_below: float, progress: Progress) -> None:
    """As `Books.compact`."""

    def work(writer: Writer) -> None:
        compact_store(writer, everything=True)
        refresh(writer, progress, idle_below)

    store.change(work)


@dataclass(frozen=True)
class Repair:
    """A repair: what is lost, and which of the generations that were there was taken; None if there were no books."""

    losses: tuple[Loss, ...]
    takes: int | None
    choices: tuple[Choice, ...]


def repair(store: Store, idle_below: float, progress: Progress, take: int | None = None) -> Repair:
    """As `Books.take_generation`."""
    choices: tuple[Choice, ...] = ()
    choice: Choice | None = None

    def start(place: Place) -> Manifest:
        nonlocal choices, choice
        choices = find_choices(place)
        if not choices:
            return place.read_newest()
        choice = choose(choices, take)
        return start_repair(place, choice, choices)

    def work(writer: Writer) -> tuple[Loss, ...]:
        for_good = repair_store(writer)
        refresh(writer, progress, idle_below)
        if choice is not None and writer.manifest.generation != choice.manifest.generation:
            writer.manifest = replace(writer.manifest)  # published even if nothing else of it changed
        return writer.manifest.losses + for_good

    losses = store.change(work, start)
    return Repair(losses, None if choice is None else choice.manifest.generation, choices)


def quiet(_what: str, _share: float) -> None:
    """Says nothing of progress."""


def _finish(writer: Writer, progress: Progress, idle_below: float) -> None:
    """After a change: merge what would slow readers down, and book the hours it touched."""
    compact_store(writer, everything=False)
    refresh(writer, progress, idle_below)
