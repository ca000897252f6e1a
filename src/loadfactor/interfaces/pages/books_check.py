"""The page of `loadfactor doctor`: whether the books balance, and what is missing, damaged or contradictory."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadfactor.interfaces.document import DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import money, number, percent

if TYPE_CHECKING:
    from loadfactor.books.books import Books
    from loadfactor.books.check import Balance, Finding

MARKS = {"wrong": "✗", "missing": "!", "note": "·"}
COLUMNS = (TableColumn(""), TableColumn("found"), TableColumn("what to do"))


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
    findings: tuple["Finding", ...]


def build_document(books: "Books") -> Document:
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
    rows = [(MARKS[f.grade], say_finding(f, data.currency), f.do) for f in found]
    return Document(
        _headline(both, data.currency),
        (Section(tables=(DataTable(COLUMNS, rows),)),) if rows else (),
        data=data,
        is_no=not both.holds or any(f.grade == "wrong" for f in found),
    )


def say_finding(finding: "Finding", currency: str) -> str:
    """What was found, the share that is covered, and the GPU-hours it is about with their cost."""
    said = [] if finding.coverage is None else [percent(finding.coverage)]
    if finding.gpu_hours is not None:
        cost = "" if finding.cost is None else f", {money(finding.cost, currency)}"
        said.append(f"{'the rest is ' if said else ''}{number(finding.gpu_hours)} GPU-hours{cost}")
    return f"{finding.what}: {'; '.join(said)}" if said else finding.what


def _headline(both: "Balance", currency: str) -> str:
    if both.installed_gpu_hours == both.booked_gpu_hours == 0:
        return "The books know of no GPU-hours yet: there is nothing to balance."
    verdict = "The books balance" if both.holds else "The books do not balance"
    hours = f"{number(both.booked_gpu_hours, 6)} of {number(both.installed_gpu_hours, 6)} GPU-hours booked"
    return f"{verdict}: {hours} (residual {both.residual_gpu_hours:+.1e}), {_cost(both, currency)}."


def _cost(both: "Balance", currency: str) -> str:
    if both.residual_cost is None:
        return "cost unknown: some GPUs have no price"
    return f"{money(both.booked_cost, currency)} of {money(both.installed_cost, currency)}"
