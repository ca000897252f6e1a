"""The text of every page, as kept in tests/interfaces/pages: at 100 columns, without colour.

`UPDATE_PAGES=1 pytest tests/interfaces/test_pages.py` writes them anew; read the difference before it is kept.
"""

import os
import re
from collections.abc import Callable
from contextlib import chdir
from datetime import UTC
from pathlib import Path

import pytest
from tests.commands import measure_width
from tests.long import mark_long

import loadfactor
from loadfactor.books.books import Books
from loadfactor.insight.diagnosis.rules import DIAGNOSES
from loadfactor.insight.savings import TITLES
from loadfactor.insight.traces.report import TRACE_CAUSES
from loadfactor.interfaces.digests.digest import Audience, build_digest
from loadfactor.interfaces.digests.period import INSTANT, find_period
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.insights import build_diagnosis_page as build_page_of_trace
from loadfactor.interfaces.insights import diagnose_books as build_books_diagnosis
from loadfactor.interfaces.insights import find_savings as build_books_savings
from loadfactor.interfaces.pages.bills import build_owned
from loadfactor.interfaces.pages.books import build_document as build_check
from loadfactor.interfaces.pages.bridge import build_bridge
from loadfactor.interfaces.pages.budgets import build_budgets, build_projects
from loadfactor.interfaces.pages.chargeback import build_chargeback
from loadfactor.interfaces.pages.compare import compare_books
from loadfactor.interfaces.pages.readings import build_document as build_readings
from loadfactor.interfaces.pages.statement import build_statement, build_statements, find_statement
from loadfactor.interfaces.pages.users import build_page as build_users
from loadfactor.interfaces.pages.waits import build_estimate, build_waits
from loadfactor.interfaces.pages.why_changed import build_page as build_change_page
from loadfactor.interfaces.render.ascii import to_ascii
from loadfactor.interfaces.render.terminal import render_text
from loadfactor.interfaces.reports.inquiry import Inquiry, WhyQuestion
from loadfactor.interfaces.reports.page import build_document as build_report
from loadfactor.interfaces.reports.seff import SeffAnswer, build_seff
from loadfactor.interfaces.reports.why import build_fleet_why
from loadfactor.interfaces.requests import (
    DiagnoseRequest,
    RunsRequest,
    SavingsRequest,
    SeffRequest,
    UsersRequest,
    WhyChangedRequest,
)
from loadfactor.interfaces.validations.rl import build_document as build_rl_validation
from loadfactor.interfaces.validations.serve import build_document as build_serving_validation
from loadfactor.interfaces.validations.training import build_document as build_training_validation
from loadfactor.interfaces.validations.training import build_mfu_document as build_mfu_validation
from loadfactor.planner.validation.request import (
    MfuRequest,
    RlValidationRequest,
    ServingValidationRequest,
    TrainingValidationRequest,
)
from loadfactor.settings.config import settings

JOB, OTHER_JOB = "481016", "481020"
KEPT = Path(__file__).parent / "pages"
ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "examples" / "trace.json"
STORE_WORDS = " --store books"
BY_TEAM = ("cost", "idle_cost", "idle_gpu_hours", "utilization", "cost_per_token", "queue_wait_s_p50")


def build_week(books: Books) -> Document:
    """The digest of the last week of these books for the fleet, beside the week before."""
    with books.snapshot() as snapshot:
        return build_digest(snapshot, find_period("week", snapshot.span[1] - INSTANT, UTC), Audience(), "http://here")


def build_fleet_report(books: Books) -> Document:
    with books.snapshot() as snapshot:
        return build_report(Inquiry(snapshot))


def build_job_report(books: Books) -> Document:
    """The page of one job of these books."""
    with books.snapshot() as snapshot:
        return build_report(Inquiry(snapshot, job=JOB, why=WhyQuestion(books)))


def build_why_report(books: Books) -> Document:
    """The section of the report on causes and levers alone."""
    with books.snapshot() as snapshot:
        return Document("", (build_fleet_why(Inquiry(snapshot), WhyQuestion(books)).section,))


def build_diagnosis(**asked: str) -> Callable[[Books], Document]:
    """The diagnosis of a job, a team or the fleet, of five jobs at most."""
    return lambda books: build_books_diagnosis(DiagnoseRequest(jobs=5, **asked), books, be_quiet)


def build_trace_of_job(books: Books) -> Document:
    """The diagnosis of the example's trace as one of a job of these books."""
    return build_page_of_trace(DiagnoseRequest(trace=(TRACE,), job=JOB, store=books.store.folder))


def be_quiet(_what: str, _share: float) -> None:
    """Tells nobody of progress."""


def build_job_estimate(books: Books) -> Document:
    """What a job of these books that still waits is told."""
    longest = books.find_waits(()).longest_waiting
    return build_estimate(books.estimate_wait(longest[-1].job), STORE_WORDS)


MONEY = """
[[budget]]
amount = 2500
[[budget]]
team = "vision"
amount = 80
period = "quarter"
[[project]]
name = "tts"
runs = 12
gpu_hours_per_run = 6
retry_percent = 20
evaluation_gpu_hours = 10
price_per_gpu_hour = 2.50
staff_cost = 400
[[project]]
name = "atlas-7b"
runs = 3
gpu_hours_per_run = 40
price_per_gpu_hour = 2.50
[[owned]]
accelerator = "h100-sxm"
server_price = 300_000
"""


NETWORK = """
[[network]]
datatype = "bf16"
"""


def with_settings(build: Callable[[Books], Document], text: str = MONEY) -> Callable[[Books], Document]:
    """The page that is built with these settings: they name budgets, a project and owned GPUs, or a datatype."""

    def _build(books: Books) -> Document:
        written = Path("loadfactor.toml")
        written.write_text(text)
        settings.cache_clear()
        try:
            return build(books)
        finally:
            written.unlink()
            settings.cache_clear()

    return _build


OF_BOOKS: dict[str, Callable[[Books], Document]] = {
    "report": build_fleet_report,
    "digest": build_week,
    "report-job": with_settings(build_job_report, NETWORK),
    "report-why": build_why_report,
    "diagnose": build_diagnosis(),
    "diagnose-team": build_diagnosis(team="vision"),
    "diagnose-job": build_diagnosis(job=JOB),
    "diagnose-trace-of-job": build_trace_of_job,
    "savings": lambda books: build_books_savings(SavingsRequest(by=("team",)), books, be_quiet),
    "doctor": build_check,
    "waits": lambda books: build_waits(books.find_waits(["size"]), STORE_WORDS),
    "waits-by-team": lambda books: build_waits(books.find_waits(["team", "pool"]), STORE_WORDS),
    "waits-job": build_job_estimate,
    "budget": with_settings(lambda books: build_budgets(books.budgets(), STORE_WORDS)),
    "chargeback": with_settings(lambda books: build_chargeback(books.chargeback(), STORE_WORDS)),
    "statement": with_settings(
        lambda books: build_statement(find_statement(books.read_statements("2026-10"), "vision"), STORE_WORDS)
    ),
    "statements": with_settings(lambda books: build_statements(books.read_statements("2026-10"), STORE_WORDS)),
    "seff": lambda books: build_seff(SeffAnswer(books.summarize_jobs(JOB)), SeffRequest(job=JOB)),
    "users-wasteful": with_settings(
        lambda books: build_users(UsersRequest(wasteful=True, store=books.store.folder)),
        "[wasteful]\nidle_gpu_hours = 2\n",
    ),
    "bridge": with_settings(lambda books: build_bridge(books.bridge("vision"))),
    "project": with_settings(lambda books: build_projects(books.projects("owned"))),
    "owned": with_settings(lambda books: build_owned(books.owned())),
    "compare": with_settings(
        lambda books: compare_books(RunsRequest(first=JOB, second=OTHER_JOB), books, be_quiet), NETWORK
    ),
    "compare-teams": lambda books: compare_books(RunsRequest(first="vision", second="speech"), books, be_quiet),
    "why-changed": lambda books: build_change_page(
        WhyChangedRequest(metric="idle_cost", last="1d", by=("team",), store=books.store.folder)
    ),
    "show": lambda books: build_readings(books.show()),
    "show-by-team": lambda books: build_readings(books.show(BY_TEAM, ["team"])),
}
LLAMA = {"model": "llama-3.1-70b", "accelerator": "h100-sxm"}
OTHERS: dict[str, Callable[[], Document]] = {
    "diagnose-trace": lambda: build_page_of_trace(DiagnoseRequest(trace=(TRACE,))),
    "plan-train": lambda: loadfactor.plan_training(**LLAMA, gpus=(512,), tokens=15e12).document,
    "plan-rl": lambda: (
        loadfactor.plan_reinforcement(**LLAMA | {"model": "llama-3.1-8b"}, gpus=16, marginal=True).document
    ),
    "plan-serve": lambda: loadfactor.plan_serving(**LLAMA | {"model": "llama-3.1-8b"}).document,
    "plan-size": lambda: loadfactor.plan_size(trace=Path("examples/jobs.csv"), gpus=48).document,
    "plan-own": lambda: loadfactor.plan_ownership().document,
    "plan-breakeven": lambda: loadfactor.plan_breakeven().document,
    "validate-train": lambda: build_training_validation(TrainingValidationRequest()),
    "validate-rl": lambda: build_rl_validation(RlValidationRequest()),
    "validate-serve": lambda: build_serving_validation(ServingValidationRequest()),
    "validate-mfu": lambda: build_mfu_validation(MfuRequest()),
}
PAGES = (*OF_BOOKS, *OTHERS)


@pytest.mark.parametrize("name", [mark_long(name) if name == "plan-breakeven" else name for name in PAGES])
def test_a_page_is_as_it_was_read(simulated_books: Books, name: str) -> None:
    """The terminal text is the one that somebody has read and kept; at 80 columns, too, no line is wider than the terminal.

    The books of the simulated fleet are called `books`, plans run where the examples are.
    """
    folder = simulated_books.store.folder
    with chdir(folder.parent if name in OF_BOOKS else ROOT):
        page = OF_BOOKS[name](Books(Path(folder.name))) if name in OF_BOOKS else OTHERS[name]()
    for width in (80, 100):
        text = render_text(page, width) + "\n"
        assert measure_width(text) <= width
    plain = to_ascii(text)  # for a terminal without Unicode: one character for one
    assert (plain.isascii(), len(plain)) == (True, len(text))
    compare(f"{name}.txt", text)


def test_no_page_shows_the_name_that_programs_call_a_lever_or_a_cause() -> None:
    """People read titles; names with underscores are for JSON. No suggested command is broken: each stands whole in one line."""
    names = {*TITLES, *TRACE_CAUSES, *(rule.cause for rule in DIAGNOSES)}
    names = {name for name in names if "_" in name}
    for path in sorted(KEPT.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        assert not [name for name in names if re.search(rf"(?<![\w.]){name}(?![\w.])", text)], path.name
        assert not [line for line in text.splitlines() if re.search(r"`loadfactor [^`]*$", line)], path.name


def compare(name: str, text: str) -> None:
    """The kept page is this text; with UPDATE_PAGES it becomes this text."""
    path = KEPT / name
    if os.environ.get("UPDATE_PAGES"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
