"""The page of `loadfactor doctor`: whether the books balance, and what is missing, damaged or contradictory."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from loadfactor.base.errors import StoreError
from loadfactor.base.paths import name_store
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.books.books import Books
from loadfactor.books.check import Balance, Finding
from loadfactor.books.import_remarks import ControlTotal, ImportRemarks, MadeByImport, UnmatchedPrice, find_remarks
from loadfactor.books.unheld_work import UnheldWork, say_log
from loadfactor.interfaces.document import Document, Section, Suggestion
from loadfactor.interfaces.formats import instant, money, number, percent
from loadfactor.interfaces.pages.places import find_books
from loadfactor.interfaces.progress import ProgressBar
from loadfactor.interfaces.requests import (
    BackupRequest,
    ForgetRequest,
    MergeRequest,
    RepairRequest,
    RestoreRequest,
    RetainRequest,
    StoreRequest,
    find_store,
)
from loadfactor.interfaces.tables import col, table
from loadfactor.metrics.query.calendar import instant as read_ms
from loadfactor.settings.config import list_own_files, settings
from loadfactor.store.backup import back_up, compare
from loadfactor.store.folder import has_books
from loadfactor.store.import_records import GONE, ImportRecord
from loadfactor.store.importing import Receipt
from loadfactor.store.manifest import Loss
from loadfactor.store.place import Place
from loadfactor.store.scheduled_backups import restore
from loadfactor.store.trusted_time import ACTION
from loadfactor.tables.charges import CHARGES

if TYPE_CHECKING:  # what writes takes longer to import than most answers
    from loadfactor.books.writing import Repair


@dataclass(frozen=True)
class ImportReceipt(Receipt):
    """A receipt with what the import is checked by."""

    control_totals: Sequence[ControlTotal] = ()
    unmatched_prices: Sequence[UnmatchedPrice] = ()
    made: Sequence[MadeByImport] = ()


@dataclass(frozen=True)
class Compaction:
    """Files and their bytes before and after."""

    files_before: int
    files: int
    bytes_before: int
    bytes: int


@dataclass(frozen=True)
class RepairResult:
    """Losses, by file, and the generation of the books that was taken."""

    losses: tuple[Loss, ...]
    takes: int | None


@dataclass(frozen=True)
class VerifiedBackup:
    """A copy that is whole: rows beside its books by kind, sums by metric, and whether the books have gone on since."""

    folder: str
    generation: int
    counts: dict[str, int]
    sums: dict[str, float | list[float] | None]
    has_gone_on: bool


@dataclass(frozen=True)
class Backup:
    """A copy of the books."""

    folder: str
    files: int
    bytes: int


HEADLINES = ("paid_gpu_hours", "allocated_gpu_hours", "observed_gpu_hours", "cost", "energy_kwh")
"""Sums that a copy is compared by."""


def build_backup(request: BackupRequest) -> Document:
    """Copy the books, and with `verify` compare the copy with them; how much was copied, and how to ask it."""
    folder, store, also = request.folder, find_books(request.store), list_own_files()
    if request.verify and has_books(folder):
        return verify_backup(folder, store, also)
    copied = back_up(store, folder, also)
    if request.verify:
        return verify_backup(folder, store, also)
    data = Backup(str(folder), len(copied.files), sum(f.bytes for f in copied.files))
    check = Suggestion(f"loadfactor doctor --store {quote(str(folder))}", "Reads every file of the copy.")
    return Document(
        f"{data.files:,} files of the books, {data.bytes / BYTES_PER_MIB:,.1f} MiB, and what was live are copied to {folder}.",
        (Section("Next", suggestions=(check,)),),
        data=data,
    )


def build_restored(request: RestoreRequest) -> Document:
    """Make books of a backup; how much there is, and how to ask it."""
    target = find_store(request.store)
    manifest = restore(request.backup, target)
    data = Backup(str(target), len(manifest.files), sum(file.bytes for file in manifest.files))
    check = Suggestion(f"loadfactor doctor --store {quote(str(target))}", "Checks the books.")
    return Document(
        f"{target} has the books of {name_store(request.backup)}: generation {manifest.generation:,}, {data.files:,} files,"
        f" {data.bytes / BYTES_PER_MIB:,.1f} MiB.",
        (Section("Next", suggestions=(check,)),),
        data=data,
    )


def verify_backup(folder: Path, store: Place, also: Sequence[Path]) -> Document:
    """Compare a copy with its books. Raises StoreError with all that differs."""
    found = compare(store, folder, also)
    differences = list(found.differences)
    sums: dict[str, float | list[float] | None] = {}
    if not differences:
        idle_below = settings().idle_below
        sums = {reading.metric: reading.value for reading in Books(folder, idle_below).show(HEADLINES)}
        if not found.has_gone_on:
            there = {reading.metric: reading.value for reading in Books(store.name, idle_below).show(HEADLINES)}
            differences = [f"{m}: {there[m]} in the books, {sums[m]} in the copy" for m in sums if sums[m] != there[m]]
    if differences:
        raise StoreError(
            f"{folder} is not what the books of {store.name} are: {'; '.join(differences)}; back up into a new folder"
        )
    kinds = ", ".join(f"{found.counts.get(kind, 0):,} {kind}" for kind in ("silences", "deliveries", "tokens"))
    against = "the books have gone on since" if found.has_gone_on else "as the books are"
    data = VerifiedBackup(str(folder), found.generation, dict(found.counts), sums, found.has_gone_on)
    return Document(f"{folder} is whole: generation {found.generation:,} with {kinds}; {against}.", data=data)


def build_compaction(request: StoreRequest) -> Document:
    """Merge files that belong together; how many there were and are."""
    books = request.books
    before = books.store.manifest
    with ProgressBar() as bar:
        books.compact(bar)
    after = books.store.manifest
    sizes = [sum(f.bytes for f in manifest.files) for manifest in (before, after)]
    data = Compaction(len(before.files), len(after.files), *sizes)
    if before.generation == after.generation:
        return Document(f"Nothing to merge: {data.files:,} files.", data=data)
    return Document(f"{data.files_before:,} files became {data.files:,}. No answer changes.", data=data)


def build_retention(request: RetainRequest) -> Document:
    """Drop what is older than [retention] keeps it; of which table how much that was."""
    with ProgressBar() as bar:
        data = request.books.retain(bar, is_dry_run=request.dry_run, is_confirmed=request.confirm)
    listed = table(
        data.dropped,
        col("table", "table"),
        col("rows", "rows", "number", digits=9),
        col("MiB", lambda of: of.bytes / BYTES_PER_MIB, "number"),
        col("days", "days", "number"),
        col("before", lambda of: instant(read_ms(of.until_ms))),
    )
    kept = settings().retention
    words = ", ".join(f"{name} {age}" for name, age in kept.as_json().items())
    lead = f"Kept are: {words}. Days without samples keep their ledger as it was booked."
    if data.clock and request.dry_run:
        lead += f" But {data.clock}; {ACTION}."
    note = Section(lead=lead)
    if not data.dropped:
        return Document("Nothing is older than it is kept.", (note,), data=data)
    headline = f"{data.words[0].upper()}{data.words[1:]}."
    return Document(headline, (Section(tables=(listed,)), note), data=data)


def build_repair(request: RepairRequest) -> Document:
    """Repair the books; what is lost, and how to bring it again."""
    if request.plan:
        return _build_repair_plan(request)
    with ProgressBar() as bar:
        result = request.books.take_generation(bar, request.take)
    losses = result.losses
    data = RepairResult(losses, result.takes)
    others = _list_others(result)
    if not losses:
        return Document("Nothing is lost: every file of the books is whole.", others, data=data)
    section = Section(
        "Lost",
        lead="The rest of the books stands. Import again what these rows came from: `loadfactor imports` names the files.",
        tables=(table(losses, col("in quarantine", "name"), col("what was in it", "what")),),
    )
    return Document(
        f"{len(losses)} damaged files are in quarantine; what was in them is lost.",
        (section, *others),
        data=data,
        is_no=True,
    )


def _list_others(result: "Repair") -> tuple[Section, ...]:
    """The generations that a repair found and did not take, if there were any."""
    if len(result.choices) < 2:
        return ()
    lead = f"Generation {result.takes} was taken. What only the others name is in quarantine, or goes when nobody reads it."
    generations = table(
        result.choices,
        col("generation", lambda choice: str(choice.manifest.generation)),
        col("rows", "rows", "number", digits=9),
        col("files", lambda choice: "complete" if choice.is_complete else "damaged"),
        col("", lambda choice: "taken" if choice.manifest.generation == result.takes else ""),
    )
    return (Section("Generations of the books", lead=lead, tables=(generations,)),)


def _build_repair_plan(request: RepairRequest) -> Document:
    """The generations that a repair can take, and what each would keep."""
    with ProgressBar() as bar:
        plan = request.books.plan_repair(bar)
    if not plan.choices:
        return Document("There are no books to repair.", data=plan)
    generations = table(
        plan.choices,
        col("generation", lambda choice: str(choice.generation)),
        col("rows", "rows", "number", digits=9),
        col("paid GPU-hours", "paid_gpu_hours", "number", digits=6),
        col("from", lambda choice: instant(choice.from_utc) if choice.from_utc else ""),
        col("to", lambda choice: instant(choice.to_utc) if choice.to_utc else ""),
        col("files", lambda choice: "complete" if choice.complete else "damaged"),
        col("", lambda choice: "taken" if choice.generation == plan.takes else ""),
    )
    taken = next(choice for choice in plan.choices if choice.generation == plan.takes)
    return Document(
        f"`repair` takes generation {plan.takes}, which keeps {taken.rows:,} rows.",
        (
            Section(
                lead="`--take GENERATION` takes another one. What is not taken stays in quarantine.",
                tables=(generations,),
            ),
        ),
        data=plan,
    )


SHOWN_GAPS = 12


def build_receipt(receipt: Receipt, books: Books) -> Document:
    """The receipt of an import, in the books it went into."""
    rows = name_rows(receipt.rows)
    if receipt.already:
        return Document(f"Already in the books, nothing added: {rows}.", data=receipt)
    numbers = ", ".join(map(str, receipt.replaced))
    place = f" in place of import {numbers}, of the same log when it was shorter" if numbers else ""
    remarks = ImportRemarks() if receipt.number is None else find_remarks(books.store, receipt.number)
    data = ImportReceipt(**vars(receipt), **vars(remarks))
    return Document(f"Imported {rows}{place}.", (*_list_remarks(remarks), *_sections(receipt, books)), data=data)


def _list_remarks(remarks: ImportRemarks) -> Iterator[Section]:
    """The control total of a bill, to compare with what the provider says, prices that match no GPU, and what was made."""
    if made := remarks.made:
        amounts = table(
            made[:SHOWN_GAPS],
            col("unit", lambda of: of.unit.replace("_", " ")),
            col("kept", lambda of: f"{of.kept:,.10g}"),
            col("lost", lambda of: f"{of.lost:,.10g}"),
            col("", lambda of: "an estimate: a rate × time" if of.is_estimate else ""),
            note=_say_more(len(made)),
        )
        yield Section("What was made", tables=(amounts,))
    if totals := remarks.control_totals:
        summed = table(
            totals[:SHOWN_GAPS],
            col("month (UTC)", "month"),
            col("account", lambda of: of.account or ""),
            col("currency", lambda of: of.currency or ""),
            col("lines", "lines", "number", digits=9),
            col("billed", "billed_cost", "money"),
            col("effective cost", "effective_cost", "money"),
            note=_say_more(len(totals)),
        )
        yield Section("Control total of this bill", tables=(summed,))
    if prices := remarks.unmatched_prices:
        yield Section(
            "Prices that match no GPU",
            "No GPU of the books is of this model, pool or name then, so these prices price nothing; `loadfactor show"
            " paid_gpu_hours --by accelerator,pool` lists what there is.",
            tables=(
                table(
                    prices[:SHOWN_GAPS],
                    col("price of", "of"),
                    col("basis", "basis"),
                    col("per GPU-hour", "price_per_gpu_hour", "number"),
                    col("currency", lambda price: price.currency or ""),
                    note=_say_more(len(prices)),
                ),
            ),
        )


def name_rows(rows: dict[str, int]) -> str:
    """How many rows of which tables."""
    return ", ".join(f"{count:,} {_name_rows(name, count)}" for name, count in rows.items()) or "nothing"


def _name_rows(table: str, count: int) -> str:
    """Names of the rows of a table: one outage, two outages, progress either way."""
    words = table.replace("_", " ")
    return words.removesuffix("s") if count == 1 and table != "progress" else words


def _sections(receipt: Receipt, books: Books) -> Iterator[Section]:
    replaced = [gap for gap in receipt.gaps if gap.where == CHARGES.name]
    if unread := [gap for gap in receipt.gaps if gap.where != CHARGES.name]:
        title = "About this bill" if CHARGES.name in receipt.rows else "Not measured"
        what, times = col("what", "what"), col("times", "count", "number", digits=9)
        file = col("file", lambda gap: Path(gap.where).name)
        yield Section(title, tables=(table(unread[:SHOWN_GAPS], file, what, times, note=_say_more(len(unread))),))
    if replaced:
        number_ = col("number", "count", "number", digits=9)
        counts = table(replaced[:SHOWN_GAPS], col("what", "what"), number_, note=_say_more(len(replaced)))
        yield Section("Replaced by this delivery", tables=(counts,))
    if "samples" in receipt.rows and not books.store.manifest.of("allocations"):
        yield Section(
            lead="No allocations say who held these GPUs: their hours have an unknown holder and count as unattributed."
            " Import allocations, use an exporter with job labels, or import the log with --job JOB."
        )
    if "progress" in receipt.rows:
        with books.snapshot() as snapshot:
            yield from _say_unheld(snapshot.list_unheld_work(), books.store.name)
    if "served_requests" in receipt.rows:
        of_job = f"loadfactor report --job JOB --store {quote(books.store.name)}"
        yield Section(suggestions=(Suggestion(of_job, "who used a job that serves, and what that cost"),))
    start, end = books.store.span()
    if start < end:  # prices alone cover no time
        there = quote(books.store.name)
        yield Section(
            lead=f"The books now cover {instant(read_ms(start))} to {instant(read_ms(end))}.",
            suggestions=(Suggestion(f"loadfactor report --store {there}", "how full the fleet was, and what it cost"),),
        )


def _say_unheld(work: Sequence[UnheldWork], store: str) -> Iterator[Section]:
    if alone := [one for one in work if one.is_unheld]:
        one, several = alone[0], f" and {len(alone) - 1:,} more" if len(alone) > 1 else ""
        yield Section(
            lead=f"No GPU of {one.name}{several} is known yet, so that what was made has no cost.",
            suggestions=(Suggestion(f"{say_log(one)} --store {quote(store)}", "brings it, also after this import"),),
        )
    if partly := [one for one in work if not one.is_unheld]:
        worst = max(partly, key=lambda one: one.outside_share)
        yield Section(
            lead=f"{percent(worst.outside_share)} of what {worst.name} made is from before or after it held GPUs that the books"
            " know: it counts in no cost."
        )


def _say_more(count: int) -> str:
    return f"and {count - SHOWN_GAPS} more; --json lists them all" if count > SHOWN_GAPS else ""


MARKS = {"wrong": "✗", "missing": "!", "note": "·"}


def build_doctor(request: StoreRequest) -> Document:
    """The check of the books."""
    return build_document(request.books)


@dataclass(frozen=True)
class BooksCheck:
    """Both sides of the books, what is left between them, and the findings, worst first."""

    balances: bool
    installed_gpu_hours: float
    booked_gpu_hours: float
    residual_gpu_hours: float
    installed_cost: float | None
    booked_cost: float | None
    residual_cost: float | None
    currency: str
    findings: tuple[Finding, ...]


def build_document(books: Books) -> Document:
    """The check of these books; the answer is no where they do not balance or are damaged."""
    checked = books.check()
    found, both = checked.findings, checked.balance
    data = BooksCheck(
        both.holds,
        both.installed_gpu_hours,
        both.booked_gpu_hours,
        both.residual_gpu_hours,
        both.installed_cost,
        both.booked_cost,
        both.residual_cost,
        books.store.currency,
        found,
    )
    findings = table(
        found,
        col("", lambda finding: MARKS[finding.grade]),
        col("found", lambda finding: say_finding(finding, data.currency)),
        col("what to do", "do"),
    )
    return Document(
        _headline(both, data.currency),
        (Section(tables=(findings,)),) if found else (),
        data=data,
        is_no=not both.holds or any(f.grade == "wrong" for f in found),
    )


def say_finding(finding: Finding, currency: str) -> str:
    """A finding, the share that is covered, and the GPU-hours it is about with their cost."""
    parts = [] if finding.coverage is None else [percent(finding.coverage)]
    if finding.gpu_hours is not None:
        cost = "" if finding.cost is None else f", {money(finding.cost, currency)}"
        parts.append(f"{'the rest is ' if parts else ''}{number(finding.gpu_hours)} GPU-hours{cost}")
    return f"{finding.what}: {'; '.join(parts)}" if parts else finding.what


def _headline(both: Balance, currency: str) -> str:
    if both.installed_gpu_hours == both.booked_gpu_hours == 0:
        return "The books know of no GPU-hours yet: there is nothing to balance."
    verdict = "The books balance" if both.holds else "The books do not balance"
    hours = f"{number(both.booked_gpu_hours, 6)} of {number(both.installed_gpu_hours, 6)} GPU-hours booked"
    residual = "" if both.holds else f" (residual {both.residual_gpu_hours:+.3g})"
    return f"{verdict}: {hours}{residual}, {_cost(both, currency)}."


def _cost(both: Balance, currency: str) -> str:
    if both.residual_cost is None:
        return "cost unknown: some GPUs have no price"
    return f"{money(both.booked_cost, currency)} of {money(both.installed_cost, currency)}"


SHOWN_FILES = 2


@dataclass(frozen=True)
class ImportsList:
    """The imports, in order."""

    imports: tuple[ImportRecord, ...]


def build_forget_page(request: ForgetRequest) -> Document:
    """Take an import out of the books."""
    with ProgressBar() as bar:
        record = request.books.forget(request.number, bar)
    kept = sum(count for _, what, count in record.gaps if what == GONE)
    notes = (
        f"{kept:,} of its rows were dropped before ([retention]): the ledger of their days stays as it was booked.",
    )
    headline = f"Import {record.number} is forgotten: {name_rows(record.rows)} from {record.source}."
    return Document(headline, notes=notes if kept else (), data=record)


@dataclass(frozen=True)
class Merged:
    """What each import of another store brought."""

    other: str
    merged: tuple[Receipt, ...]


def build_merge_page(request: MergeRequest) -> Document:
    """Bring over what another store holds."""
    other = Books.open(find_store(request.other))
    books = Books(find_store(request.store), settings().idle_below)
    if not books.store.place.has_books():  # new books are kept in the other's currency unless the settings name one
        books = Books(find_store(request.store), books.idle_below, settings().currency or other.store.currency)
    with ProgressBar() as bar:
        receipts = books.merge(other, progress=bar)
    data = Merged(str(request.other), tuple(receipts))
    if not receipts:
        return Document(f"Nothing to bring over: these books hold all that is in {request.other}.", data=data)
    listed = table(
        data.merged,
        col("import", "number", "number", digits=9),
        col("source", "source"),
        col("rows", lambda receipt: name_rows(receipt.rows)),
    )
    total: Counter[str] = Counter()
    for receipt in receipts:
        total.update(receipt.rows)
    return Document(f"Brought over from {request.other}: {name_rows(total)}.", (Section(tables=(listed,)),), data=data)


def build_imports_page(request: StoreRequest) -> Document:
    """The imports, in order."""
    records = tuple(request.books.imports)
    listed = table(
        records,
        col("import", "number", "number", digits=9),
        col("at", lambda record: instant(read_ms(record.at_ms)) if record.at_ms else None),
        col("source", "source"),
        col("rows", lambda record: name_rows(record.rows)),
        col("files", lambda record: _name_files(record.paths)),
    )
    many = f"{len(records):,} imports" if len(records) != 1 else "1 import"
    return Document(f"{many}.", (Section(tables=(listed,)),) if records else (), data=ImportsList(records))


def _name_files(paths: tuple[str, ...]) -> str:
    names = [Path(path).name for path in paths]
    more = len(names) - SHOWN_FILES
    return ", ".join(names[:SHOWN_FILES]) + (f" and {more:,} more" if more > 0 else "")
