"""`loadfactor diagnose`: why GPUs were not fuller, by the books of a job, a team or the fleet, or by traces of profilers."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from loadfactor.base.errors import InputError
from loadfactor.base.request import option
from loadfactor.interfaces.cli.books_request import SpanRequest
from loadfactor.interfaces.cli.commands import add_command
from loadfactor.interfaces.document import Document

if TYPE_CHECKING:
    from loadfactor.books.books import Books
    from loadfactor.insight.diagnosis.finding import JobDiagnosis
    from loadfactor.insight.diagnosis.fleet import Progress
    from loadfactor.insight.diagnosis.trace_money import JobRate
    from loadfactor.interfaces.render.page import Page

ABOUT = (
    "Say why GPUs were not fuller, from the books or from traces.\n\n"
    "Without a trace: of a job, a team or the whole fleet, causes ranked by what is at stake, with evidence,"
    " what speaks against them, what to change, and what cannot be told.\n\nTraces: "
    "Kineto or Chrome JSON of torch.profiler, XPlane of TensorFlow and JAX, exports of Nsight Systems (SQLite,"
    " Parquet, Arrow), gzip"
    " too; several ranks of a job together. Each device's time is divided exactly, the ranks are compared, causes are"
    " ranked with their"
    " evidence; what a trace cannot tell is said. The files are only read."
)


@dataclass(frozen=True, kw_only=True)
class DiagnoseRequest(SpanRequest):
    """What is to be diagnosed."""

    trace: tuple[Path, ...] = option(
        "Traces: files, folders of them, or a folder that `nsys export` wrote.", (), is_argument=True
    )
    job: str | None = option(
        "Of this job: with traces, their seconds become its money, beside what its books say.", None
    )
    team: str | None = option("Of the jobs of this team.", None)
    jobs: int = option("How many jobs of a team or of the fleet are looked at, those that lost most.", 20, at_least=1)


def add_to(app: typer.Typer) -> None:
    """Add `diagnose`."""
    add_command(app, "diagnose", DiagnoseRequest, build_page, ABOUT)


def build_page(request: DiagnoseRequest) -> Document:
    """The page of what was asked for."""
    if request.trace:
        if request.team:
            raise InputError("traces are of a job, not of a team; say --job, or leave --team out")
        from loadfactor.interfaces.pages.traces import build_traces_page

        return build_traces_page(request.trace, *(_read_job(request, request.job) if request.job else ()))
    from loadfactor.interfaces.progress import ProgressBar

    with ProgressBar() as bar:
        return build_books_page(request, request.books, bar)


def build_books_page(
    request: DiagnoseRequest, books: "Books", progress: "Progress", leave_out: Collection[str] = ()
) -> Document:
    """The page of a job, a team or the fleet by these books; jobs to `leave_out` are counted and not looked at.

    Raises InputError for a job or a team that the books do not know.
    """
    if request.job and request.team:
        raise InputError("--job and --team both say of whom; give one of them")
    from loadfactor.insight.diagnosis.fleet import diagnose_books
    from loadfactor.interfaces.pages.diagnosis import build_diagnosis

    start, end = request.window(books)
    first, last = books.span
    window = start or first, end or last
    return build_diagnosis(diagnose_books(books, request.job, request.team, window, request.jobs, progress, leave_out))


def _read_job(request: DiagnoseRequest, job: str) -> "tuple[JobRate, JobDiagnosis]":
    """What the job of traces paid, and what its books say of it."""
    from loadfactor.insight.diagnosis.fleet import diagnose_jobs
    from loadfactor.insight.diagnosis.trace_money import read_rate
    from loadfactor.interfaces.progress import ProgressBar
    from loadfactor.metrics.query.calendar import milliseconds

    books = request.books
    start, end = request.window(books)
    first, last = books.span
    window = start or first, end or last
    rate = read_rate(books, job, window)
    with ProgressBar() as bar:
        (diagnosis,) = diagnose_jobs(books, (job,), (milliseconds(window[0]), milliseconds(window[1])), bar)
    return rate, diagnosis


def diagnose(**given: object) -> "Page":
    """The answer of `loadfactor diagnose` as a page.

    Arguments:
        trace: files or folders of traces.
        job, team: of whom, by the books; without them and traces the fleet. start, end, last, store: which books, and when.
    """
    from loadfactor.base.request import make_request
    from loadfactor.interfaces.render.page import Page

    return Page(build_page(make_request(DiagnoseRequest, given)))
