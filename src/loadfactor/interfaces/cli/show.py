"""`loadfactor show METRIC… --by …`: readings of metrics."""

from dataclasses import dataclass

import typer

from loadfactor.base.errors import InputError
from loadfactor.base.request import option
from loadfactor.base.spelling import spell_out
from loadfactor.interfaces.cli.books_request import BooksRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = "Show metrics, in all or split by device, team, day and others."


@dataclass(frozen=True, kw_only=True)
class ShowRequest(BooksRequest):
    """Which metrics to show, and in which order."""

    metrics: tuple[str, ...] = option("Names of metrics; all of them when none is given.", (), is_argument=True)
    sort: str | None = option("Order groups by a metric or dimension, smallest first; -NAME: largest first.", None)
    reverse: bool = option("Turn the order round.", False)
    limit: int | None = option("Show at most so many groups.", None, at_least=1)
    without_idle: bool = option("Unit costs without the cost of idle and unobserved time.", False)


def add_to(app: typer.Typer) -> None:
    """Add `show`."""
    add_command(app, "show", ShowRequest, build_page, ABOUT)


def build_page(request: ShowRequest) -> Document:
    """The readings that the request asks for."""
    from loadfactor.interfaces.readings import build_document

    if not request.by and (request.sort or request.reverse or request.limit):
        raise InputError("--sort, --reverse and --limit order groups; say which with --by")
    if request.without_idle:
        _say_what_ignores_idle(request.metrics)
    books = request.books
    start, end = request.window(books)
    readings = books.show(
        request.metrics,
        request.by,
        start,
        end,
        timezone=request.zone,
        basis=request.basis,
        where=request.filters,
        without_idle=request.without_idle,
    )
    by = request.sort or ""
    descending = by.startswith("-") != request.reverse
    return build_document(readings.arrange(by.removeprefix("-"), descending, request.limit))


def _say_what_ignores_idle(names: tuple[str, ...]) -> None:
    """Say on stderr which of the metrics are no unit costs. Raises InputError where none of those named is one."""
    from loadfactor.metrics import metric
    from loadfactor.metrics.metric import PerUnit

    others = [name for name in names if not isinstance(metric(name).kind, PerUnit)]
    if names and len(others) == len(names):
        raise InputError(
            f"--without-idle changes unit costs alone, and {', '.join(others)} is none; ask for a cost_per_… as well"
        )
    if others:
        typer.echo(
            f"loadfactor: --without-idle changes unit costs alone; as without it: {spell_out(', '.join(others))}",
            err=True,
        )
