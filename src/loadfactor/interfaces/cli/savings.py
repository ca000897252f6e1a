"""`loadfactor savings`: what to change, and what that would have saved of what was lost."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from loadfactor.base.limits import WAIT_H
from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import SpanRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.functions import make_function

if TYPE_CHECKING:
    from loadfactor.books.books import Books
    from loadfactor.insight.diagnosis.fleet import Progress

ABOUT = (
    "Show what to change, and what each change would have saved of what was lost.\n\n"
    "Levers are applied one after another, so that what one took the next cannot save: their sum is never more than the losses of"
    " the waterfall. What nobody observed, counted or priced is never saved. Levers that were pulled, [[lever]] in loadfactor.toml,"
    " are followed up: work per dollar before and after."
)


@dataclass(frozen=True, kw_only=True)
class SavingsRequest(SpanRequest):
    """In which window, and by whom."""

    by: tuple[str, ...] = option("Split by team or user, or both.", ())
    jobs: int = option(
        "How many jobs, those that lose most, are diagnosed for what their code could do.", 5, at_least=0
    )
    spot_price: float | None = option("Price of a spot GPU-hour, for jobs that report checkpoints.", None, above=0)
    spot_hours: float = option("Hours between interruptions of one spot instance.", 24.0, within=WAIT_H)
    commit_price: float | None = option("Price of a committed GPU-hour, for the base of the demand.", None, above=0)


def add_to(app: typer.Typer) -> None:
    """Add `savings`."""
    add_command(app, "savings", SavingsRequest, build_page, ABOUT)


def build_page(request: SavingsRequest) -> Document:
    """The savings of the window."""
    from loadfactor.interfaces.progress import ProgressBar

    with ProgressBar() as bar:
        return build_books_page(request, request.books, bar)


def build_books_page(request: SavingsRequest, books: "Books", progress: "Progress") -> Document:
    """The savings of the window by these books. Raises InputError where they know nothing of it."""
    from loadfactor.insight.levers.offers import PriceOffers
    from loadfactor.insight.savings import find_savings
    from loadfactor.interfaces.pages.savings import build_savings
    from loadfactor.settings.config import settings

    offers = PriceOffers(request.spot_price, request.spot_hours, request.commit_price)
    window, done = request.window(books), settings().lever
    return build_savings(find_savings(books, request.by, *window, done, offers, request.jobs, progress))


savings = make_function("savings", SavingsRequest, build_page, "The answer of `loadfactor savings` as a page.")
