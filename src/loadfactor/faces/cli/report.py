"""`loadfactor report`: the whole report on a fleet, for a terminal, as a file or for programs."""

from dataclasses import dataclass

import typer

from loadfactor.errors import InputError
from loadfactor.faces.cli.books_request import BooksRequest
from loadfactor.faces.cli.commands import add_command
from loadfactor.faces.document import Document
from loadfactor.request import option

ABOUT = (
    "Show how full the fleet was, what it cost and who waited.\n\n"
    "From paid to effective, over time, by team, queue waits, unit costs, jobs, data quality, what to try next."
)


@dataclass(frozen=True, kw_only=True)
class ReportRequest(BooksRequest):
    """What the report is about."""

    job: str | None = option(
        "The page of this job instead: what it cost and made, where money leaked, jobs like it.", None
    )


def add_to(app: typer.Typer) -> None:
    """Add `report`."""
    add_command(app, "report", ReportRequest, build_page, ABOUT)


def build_page(request: ReportRequest) -> Document:
    """The report that the request asks for."""
    from loadfactor.faces.progress import ProgressBar
    from loadfactor.faces.report.inquiry import Inquiry
    from loadfactor.faces.report.page import build_document
    from loadfactor.metrics.query.question import check_dimensions

    if request.job is not None and request.by:
        raise InputError("the page of a job is not split; leave out --by or --job")
    with ProgressBar() as bar, request.books.snapshot() as books:
        window = request.window(books)
        bar("asking the books", 0.0)
        by = check_dimensions(request.by)
        return build_document(Inquiry(books, by, *window, request.zone, request.basis, request.filters, request.job))
