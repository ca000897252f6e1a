"""`loadfactor chargeback`: who pays which part of the bill; months closed, and what changed since."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import typer

from loadfactor.base.errors import InputError
from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import STORE_HELP, StoreRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = (
    "Charge the bill to teams and pools, cent by cent.\n\n"
    "Every cent of the bill (without one, of price × installed time) is on one statement: an owner's, or that of a pool like"
    " unallocated, down, shared or untagged. [chargeback] in loadfactor.toml says who bears idle, spare and shared cost. Months are"
    " those of UTC. --format focus writes the statements as a bill in FOCUS."
)


@dataclass(frozen=True, kw_only=True)
class ChargebackRequest(StoreRequest):
    """Of which month, by whom, and whether it is closed."""

    month: str | None = option("The month to charge, 2026-10. [default: all that the books know]", None)
    by: tuple[str, ...] = option(
        "Statements by one or several of team, project, experiment, user, purpose. [default: team]", ()
    )
    currency: str | None = option("Charge only lines of bills in this currency.", None)
    close: bool = option("Keep the statements of the month, in place of those kept before.", False)
    diff: bool = option("Show what changed since the month was closed.", False)
    store: Path | None = option(STORE_HELP, None)


def add_to(app: typer.Typer) -> None:
    """Add `chargeback`, with a format of its own."""
    from loadfactor.interfaces.pages.chargeback_focus import write_focus

    add_command(app, "chargeback", ChargebackRequest, build_page, ABOUT, {"focus": write_focus})


def build_page(request: ChargebackRequest) -> Document:
    """The statements of a month, or what changed in them."""
    from loadfactor.interfaces.pages.chargeback import build_changes, build_chargeback

    if request.close and request.diff:
        raise InputError("--close keeps statements and --diff compares them with those kept; use one of the two")
    if (request.close or request.diff) and request.month is None:
        raise InputError(f"--{'close' if request.close else 'diff'} is of one month; name it: --month 2026-10")
    books = request.books
    words = f" --store {quote(str(books.store.folder))}"
    if request.diff:
        return build_changes(books.compare_closed(request.month or "", request.by or None, request.currency), words)
    by = request.by or ("team",)
    if request.close:
        return build_chargeback(books.close_month(request.month or "", by, request.currency), words)
    return build_chargeback(books.chargeback(request.month, by, request.currency), words)
