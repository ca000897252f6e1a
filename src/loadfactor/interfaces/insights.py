"""Diagnoses and savings as the command line, the server and Python ask for them: from a request to the page."""

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from loadfactor.base.errors import InputError
from loadfactor.base.request import make_request
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.functions import Page, make_function
from loadfactor.interfaces.requests import DiagnoseRequest, SavingsRequest

if TYPE_CHECKING:
    from datetime import datetime

    from loadfactor.books.books import Books
    from loadfactor.insight.diagnosis.diagnose import Progress
    from loadfactor.insight.diagnosis.finding import JobDiagnosis
    from loadfactor.insight.traces.report import JobRate


def build_diagnosis_page(request: DiagnoseRequest) -> Document:
    """The page of traces, or of a job, a team or the fleet by the books."""
    from loadfactor.interfaces.progress import ProgressBar

    if request.trace:
        if request.team:
            raise InputError("traces are of a job, not of a team; say --job, or leave --team out")
        from loadfactor.interfaces.pages.traces import build_traces_page

        return build_traces_page(request.trace, *(_read_job(request, request.job) if request.job else ()))
    with ProgressBar() as bar:
        return diagnose_books(request, request.books, bar)


def diagnose_books(
    request: DiagnoseRequest, books: "Books", progress: "Progress", leave_out: Collection[str] = ()
) -> Document:
    """The page of a job, a team or the fleet by these books; jobs to `leave_out` are counted and not looked at.

    Raises InputError for a job or a team that the books do not know.
    """
    if request.job and request.team:
        raise InputError("--job and --team both say of whom; give one of them")
    from loadfactor.insight.diagnosis import diagnose as diagnosing
    from loadfactor.interfaces.pages.diagnosis import build_diagnosis

    window = _find_window(request, books)
    found = diagnosing.diagnose_books(books, request.job, request.team, window, request.jobs, progress, leave_out)
    page = build_diagnosis(found)
    with books.snapshot() as snapshot:
        return replace(page, notes=(*page.notes, *snapshot.list_remarks(*window, "a diagnosis")))


def _find_window(request: DiagnoseRequest, books: "Books") -> "tuple[datetime, datetime]":
    start, end = request.window(books)
    first, last = books.span
    return start or first, end or last


def _read_job(request: DiagnoseRequest, job: str) -> "tuple[JobRate, JobDiagnosis]":
    """The rate that the job of traces paid, and its diagnosis by the books."""
    from loadfactor.insight.diagnosis.diagnose import diagnose_jobs
    from loadfactor.insight.traces.report import read_rate
    from loadfactor.interfaces.progress import ProgressBar
    from loadfactor.metrics.query.calendar import milliseconds

    books = request.books
    window = _find_window(request, books)
    rate = read_rate(books, job, window)
    with ProgressBar() as bar:
        (diagnosis,) = diagnose_jobs(books, (job,), (milliseconds(window[0]), milliseconds(window[1])), bar)
    return rate, diagnosis


def diagnose(**given: object) -> Page:
    """The answer of `loadfactor diagnose` as a page.

    Arguments:
        trace: files or folders of traces.
        job, team: of whom, by the books; without them and traces the fleet. start, end, last, store: which books, and when.
    """
    return Page(build_diagnosis_page(make_request(DiagnoseRequest, given)))


def build_savings_page(request: SavingsRequest) -> Document:
    """The savings of the window."""
    from loadfactor.interfaces.progress import ProgressBar

    with ProgressBar() as bar:
        return find_savings(request, request.books, bar)


def find_savings(request: SavingsRequest, books: "Books", progress: "Progress") -> Document:
    """The page of savings of the window by these books. Raises InputError where they know nothing of it."""
    from loadfactor.insight import savings
    from loadfactor.insight.levers.offers import PriceOffers
    from loadfactor.interfaces.pages.savings import build_savings
    from loadfactor.settings.config import settings

    offers = PriceOffers(request.spot_price, request.spot_hours, request.commit_price)
    start, end = request.window(books)
    applied = settings().lever
    page = build_savings(savings.find_savings(books, request.by, start, end, applied, offers, request.jobs, progress))
    with books.snapshot() as snapshot:
        return replace(page, notes=(*page.notes, *snapshot.list_remarks(start, end, "what levers cut idle time by")))


savings = make_function("savings", SavingsRequest, build_savings_page, "The answer of `loadfactor savings` as a page.")
