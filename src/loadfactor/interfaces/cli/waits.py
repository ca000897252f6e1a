"""`loadfactor waits`: how long jobs waited, and how long one that is in the queue now may have to."""

from dataclasses import dataclass
from shlex import quote

import typer

from loadfactor.base.errors import InputError
from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import WindowRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = (
    "Show how long jobs waited, and how long one in the queue may have to.\n\n"
    "Jobs that wait still or were cancelled waiting count as having waited at least so long: medians and quantiles are Kaplan–Meier"
    " estimates with 95 % intervals. With --job: how much longer jobs like it waited that had waited as long."
)


@dataclass(frozen=True, kw_only=True)
class WaitsRequest(WindowRequest):
    """Of which waits, and by what."""

    by: tuple[str, ...] = option(
        "Split by one or several of size, queue, reason, team, user, project, experiment, purpose, pool.", ("size",)
    )
    job: str | None = option("Estimate how much longer this job will wait.", None)


def add_to(app: typer.Typer) -> None:
    """Add `waits`."""
    add_command(app, "waits", WaitsRequest, build_page, ABOUT)


def build_page(request: WaitsRequest) -> Document:
    """The waits of the window, or what they tell of one job."""
    from loadfactor.interfaces.pages.waits import build_estimate, build_waits

    books = request.books
    start, end = request.window(books)
    words = f" --store {quote(str(books.store.folder))}"
    if request.job is not None:
        if request.where:
            raise InputError("--job compares with jobs like it and takes no --where; use one of the two")
        return build_estimate(books.estimate_wait(request.job, start, end), words)
    return build_waits(books.find_waits(request.by, start, end, request.filters), words)
