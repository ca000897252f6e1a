"""`loadfactor bill`: commands that look into bills."""

from dataclasses import dataclass

import typer

from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import StoreRequest
from loadfactor.interfaces.cli.commands import add_commands
from loadfactor.interfaces.document import Document

ABOUT = "Look into bills: what commitments saved, and what bills and the books disagree about."
ABOUT_COMMITMENTS = (
    "Show what commitments, reservations and spot capacity saved.\n\n"
    "Effective savings rate, coverage, utilization and unused cost of each, by the bills that were imported."
)
ABOUT_COMPARE = (
    "List what bills and the books disagree about, in money.\n\n"
    "GPUs billed and never seen, seen and never billed, hours that differ, prices that differ from the contract."
)


@dataclass(frozen=True, kw_only=True)
class CompareRequest(StoreRequest):
    """Which month of the bills to compare with the books."""

    month: str | None = option("The month to compare: 2026-10. [default: all that both speak of]", None)


def add_to(app: typer.Typer) -> None:
    """Add `bill` and its commands."""
    commands = (
        ("commitments", StoreRequest, build_page, ABOUT_COMMITMENTS),
        ("compare", CompareRequest, build_comparison_page, ABOUT_COMPARE),
    )
    add_commands(app, "bill", ABOUT, *commands)


def build_page(request: StoreRequest) -> Document:
    """All commitments of the bills."""
    from loadfactor.interfaces.pages.commitments import build_commitments

    return build_commitments(request.books.commitments())


def build_comparison_page(request: CompareRequest) -> Document:
    """Bills beside the books."""
    from loadfactor.interfaces.pages.bill_comparison import build_comparison

    return build_comparison(request.books.compare_bills(request.month))
