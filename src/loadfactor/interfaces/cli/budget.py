"""`loadfactor budget`: spent, burn rate, forecast, thresholds and unusual days of each budget."""

from dataclasses import dataclass
from shlex import quote

import typer

from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import StoreRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = (
    "Show what budgets have spent, their forecast and unusual days.\n\n"
    "Budgets are tables [[budget]] of loadfactor.toml. Charges of a bill count where one was imported, else the ledger's cost."
    " Leaves with 1 where one is overspent."
)


@dataclass(frozen=True, kw_only=True)
class BudgetRequest(StoreRequest):
    """Which period, and in which kind of money."""

    month: str | None = option("Periods that this month lies in: 2026-10. [default: the last one with costs]", None)
    basis: str | None = option(
        "Kind of money of the ledger: effective, contracted, owned, list or estimate. [default: the best there is]",
        None,
    )


def add_to(app: typer.Typer) -> None:
    """Add `budget`."""
    add_command(app, "budget", BudgetRequest, build_page, ABOUT)


def build_page(request: BudgetRequest) -> Document:
    """Where the budgets stand."""
    from loadfactor.interfaces.pages.budgets import build_budgets

    books = request.books
    review = books.budgets(request.month, request.basis)
    return build_budgets(review, f" --store {quote(str(books.store.folder))}")
