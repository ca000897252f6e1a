"""`loadfactor waterfall`: where what was paid went, on the way to what was useful."""

from dataclasses import dataclass

import typer

from loadfactor.interfaces.cli.books_request import BooksRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = (
    "Show where what was paid went, on the way to what was useful.\n\n"
    "On the way it was held, observed, not idle, active, math (MFU) and kept. Losses, what nobody knows and what was useful add up"
    " to what was paid, in GPU-hours and money. The order is fixed: each step takes from what the one before left. Networks of jobs"
    " are named by [[network]] in loadfactor.toml."
)


@dataclass(frozen=True, kw_only=True)
class WaterfallRequest(BooksRequest):
    """Of what, and by what."""


def add_to(app: typer.Typer) -> None:
    """Add `waterfall`."""
    add_command(app, "waterfall", WaterfallRequest, build_page, ABOUT)


def build_page(request: WaterfallRequest) -> Document:
    """The waterfall of the window."""
    from loadfactor.interfaces.pages.waterfall import build_waterfall

    books = request.books
    start, end = request.window(books)
    return build_waterfall(books.waterfall(request.by, start, end, request.zone, request.basis, request.filters))
