"""The sums of the ledger that are kept beside it, as files: which hours they tell, and which of them answers a question.

A sum by hour loses hours as the ledger does; one by day loses the day, and is kept of days that are over in the books. What no sum
tells is read of the ledger, so a sum that is not there costs time and nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.books.ledger_inputs import select_ledger
from loadfactor.ledger.columns import KEPT_SUMS
from loadfactor.store.manifest import StoredFile, intersect, merge, subtract
from loadfactor.store.session import Session
from loadfactor.tables.schema import Span

if TYPE_CHECKING:
    from loadfactor.store.writer import Writer

ROWS_AT_ONCE: Final = 250_000
"""Rows of the ledger that are added up into a file: more need more memory, and who asks for a day reads more of others."""
LEDGER_FILES: Final = "ledger files"
"""The name of `LedgerFiles` among what a session derived."""


@dataclass(frozen=True)
class LedgerFiles:
    """What of the ledger is kept and counts in a session: its files, those of its sums, and hours that were booked in memory."""

    ledger: tuple[StoredFile, ...]
    sums: Mapping[str, Sequence[StoredFile]]
    booked_now: tuple[Span, ...] = ()


def list_sums(session: Session, booked_now: tuple[Span, ...] = ()) -> dict[str, list[StoredFile]]:
    """The files of kept sums by table, without the periods that these hours lie in."""
    return {table: drop_hours(table, session.manifest.of(table), booked_now) for table in KEPT_SUMS}


def drop_hours(table: str, files: Iterable[StoredFile], stale: tuple[Span, ...]) -> list[StoredFile]:
    """The files of a sum without the periods that stale hours lie in."""
    gone = merge([_widen(span, KEPT_SUMS[table]) for span in stale])
    return [left for file in files for left in file.keep(subtract(file.booked, gone))]


def find_untold(table: str, files: Iterable[StoredFile], span: Span) -> tuple[Span, ...]:
    """The periods of the books that a sum can tell and these files do not: hours, and days that are over."""
    start, end = _widen(span, MS_PER_HOUR)
    period = KEPT_SUMS[table]
    return subtract(merge([(start - start % period, end - end % period)]), merge(_list_hours(files)))


def write_sum(writer: "Writer", table: str, hours: tuple[Span, ...]) -> list[StoredFile]:
    """Add the ledger of these hours up, some days at a time, and keep it. Hours of which no ledger is kept stay untold."""
    made: list[StoredFile] = []
    for part in _divide(writer.manifest.of("ledger"), hours):
        if files := limit_hours(writer.manifest.of("ledger"), part):
            writer.create_view("ledger_rows", select_ledger(writer, files))
            made.append(writer.copy_sum(table, recall("sums", lambda: expressions().write_sums())[table], part))
    return made


def _divide(ledger: Iterable[StoredFile], hours: tuple[Span, ...]) -> Iterator[tuple[Span, ...]]:
    """These hours in parts of whole days with so many rows of the ledger, as far as it is kept."""
    rows: dict[int, int] = {}
    for file in ledger:
        rows[file.day or 0] = rows.get(file.day or 0, 0) + file.rows
    days: list[int] = []
    for day in sorted(rows):
        days.append(day)
        if sum(rows[of] for of in days) >= ROWS_AT_ONCE or day == max(rows):
            spans = merge([(of * MS_PER_DAY, (of + 1) * MS_PER_DAY) for of in days])
            if part := intersect(hours, spans):
                yield part
            days = []


def limit_hours(files: Iterable[StoredFile], hours: tuple[Span, ...]) -> list[StoredFile]:
    """The files with these hours alone."""
    return [left for file in files for left in file.keep(intersect(file.booked, hours))]


def choose_sum(
    found: LedgerFiles, tables: Iterable[str], longest_ms: int, hours: tuple[Span, ...]
) -> tuple[list[StoredFile], tuple[Span, ...]]:
    """The files that have the fewest rows of these hours, of the sums named, and the hours that have to be read of the ledger.

    `longest_ms`: the longest period that will do. No file where the ledger has the fewest itself.
    """
    rest = intersect(hours, merge([*_list_hours(found.ledger), *found.booked_now]))
    best: tuple[list[StoredFile], tuple[Span, ...]] = [], rest
    least = _count_rows(found.ledger, rest)
    for table in tables:
        period = KEPT_SUMS[table]
        if period > longest_ms:
            continue
        whole = merge([(start + -start % period, end - end % period) for start, end in hours])
        files = limit_hours(found.sums.get(table, ()), whole)
        left = subtract(rest, merge(_list_hours(files)))
        rows = _count_rows(found.sums.get(table, ()), whole) + _count_rows(found.ledger, left)
        if rows < least:
            best, least = (files, left), rows
    return best


def _count_rows(files: Iterable[StoredFile], hours: tuple[Span, ...]) -> float:
    """About how many rows files have of these hours."""
    shares = ((file.rows, _measure(intersect(file.booked, hours)) / _measure(file.booked)) for file in files)
    return sum(rows * share for rows, share in shares)


def _measure(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)


def _list_hours(files: Iterable[StoredFile]) -> list[Span]:
    return [span for file in files for span in file.booked]


def _widen(span: Span, period: int) -> Span:
    return span[0] - span[0] % period, span[1] + -span[1] % period
