"""`loadfactor report`: the whole report on a fleet, for a terminal, as a file or for programs."""

from dataclasses import dataclass
from pathlib import Path

import typer

from loadfactor.base.errors import InputError
from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import BooksRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

ABOUT = (
    "Show how full the fleet was, what it cost and who waited.\n\n"
    "From paid to effective, over time, by team, queue waits, unit costs, jobs, data quality, what to try next."
)


@dataclass(frozen=True, kw_only=True)
class ReportRequest(BooksRequest):
    """What the report is about."""

    job: str | None = option(
        "The page of this job instead: what it cost and made, where money leaked and why, jobs like it.", None
    )
    why: bool = option(
        "Also why GPUs were not fuller, and what to change: what `diagnose --jobs 3` and `savings` say. Takes a while.",
        False,
    )
    trace: tuple[Path, ...] = option("With --job: traces of it, whose seconds become its money.", ())


def add_to(app: typer.Typer) -> None:
    """Add `report`."""
    add_command(app, "report", ReportRequest, build_page, ABOUT)


def build_page(request: ReportRequest) -> Document:
    """The report that the request asks for."""
    from loadfactor.interfaces.progress import ProgressBar
    from loadfactor.interfaces.report.inquiry import Inquiry, WhyQuestion
    from loadfactor.interfaces.report.page import build_document
    from loadfactor.metrics.query.question import check_dimensions

    if request.job is not None and request.by:
        raise InputError("the page of a job is not split; leave out --by or --job")
    if request.trace and request.job is None:
        raise InputError("traces are of a job; say --job, or ask `loadfactor diagnose TRACE`")
    filters = request.filters
    if request.why and request.job is None and list(filters) not in ([], ["team"]):
        raise InputError(
            "--why speaks of the fleet, a team or a job; choose with --where team=NAME alone, or with --job"
        )
    books = request.books
    with ProgressBar() as bar, books.snapshot() as snapshot:
        if request.why and snapshot.has_only_bills:
            raise InputError(
                "these books hold bills and no GPUs: nobody knows why they were not fuller; leave --why out"
            )
        window = request.window(snapshot)
        bar("asking the books", 0.0)
        by = check_dimensions(request.by)
        why = WhyQuestion(books, request.trace, bar) if request.why or request.job is not None else None
        return build_document(Inquiry(snapshot, by, *window, request.zone, request.basis, filters, request.job, why))
