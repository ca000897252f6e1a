"""Every page: its address, its question, who may ask it, what builds it, and the command that says the same."""

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote
from typing import Final

from loadfactor.interfaces.document import Document
from loadfactor.interfaces.plans.process import PLANS
from loadfactor.interfaces.web import builders, sent
from loadfactor.interfaces.web.ask import Ask
from loadfactor.interfaces.web.configured import build_settings_page, build_sources
from loadfactor.interfaces.web.insights import build_standing
from loadfactor.interfaces.web.plans import show_plans

CHECK: Final = "check"
"""The long answer that stands beside answers for a window."""


@dataclass(frozen=True)
class Page:
    """One page. `name` is its word in the navigation; a page of one thing has none, and `{id}` in its path and question.

    `command` says the same, and is empty where none does. `of_fleet`: it says what only who reads everything may know.
    `has_window`: the state of its address is a window. `compares`: the period before can stand beside it.
    `is_document`: it can be had as PDF and as a spreadsheet, too.
    `cells`: what writes its heat map, for the script that draws it. `answer`: the long answer that it shows, `plan` for a plan.
    """

    path: str
    question: str
    build: Callable[[Ask], Document]
    command: Callable[[Ask], str]
    name: str = ""
    up: str = "/"
    of_fleet: bool = False
    has_window: bool = True
    has_search: bool = False
    compares: bool = False
    is_document: bool = False
    cells: Callable[[Ask], bytes] | None = None
    answer: str = ""

    def ask_question(self, name: str) -> str:
        """Its title, of this thing."""
        return self.question.replace("{id}", name)


def _show(words: str) -> Callable[[Ask], str]:
    return lambda ask: f"loadfactor show {words} {ask.say_options()}"


def _show_time(ask: Ask) -> str:
    request = ask.request
    by = ",".join(request.by) or "hour"
    return f"loadfactor show {' '.join(request.metrics or builders.OVER_TIME)} --by {quote(by)} {ask.say_options()}"


def _of_thing(words: str) -> Callable[[Ask], str]:
    return lambda ask: f"{words.replace('{id}', quote(ask.name))} {ask.say_options()}"


def _diagnose(ask: Ask) -> str:
    words = [f"--{name} {quote(value)}" for name, value in ask.request.filters.items()]
    return " ".join(["loadfactor diagnose", *words, ask.say_options(without=("where",))])


def _plain(words: str) -> Callable[[Ask], str]:
    return lambda _ask: words


PAGES: Final[tuple[Page, ...]] = (
    Page(
        "/",
        "How full is the fleet, and what does it cost?",
        builders.build_fleet,
        lambda ask: f"loadfactor report {ask.say_options()}",
        "Fleet",
        "",
    ),
    Page("/time", "How did it go over time?", builders.build_time, _show_time, "Time", compares=True),
    Page(
        "/teams",
        "What did each team use, pay and leave idle?",
        builders.build_teams,
        _show(f"{' '.join(builders.OF_A_GROUP)} --by team --sort=-cost"),
        "Teams",
        compares=True,
    ),
    Page(
        "/teams/{id}/statement",
        "What is team {id} charged for a month?",
        sent.build_statement_page,
        sent.say_statement,
        up="/teams",
        has_window=False,
        is_document=True,
    ),
    Page(
        "/teams/{id}",
        "What did team {id} use, pay and leave idle?",
        builders.build_team,
        _of_thing("loadfactor report --where team={id}"),
        up="/teams",
    ),
    Page(
        "/jobs",
        "Which job was it?",
        builders.build_jobs,
        _show(f"{' '.join(builders.OF_A_JOB)} --by job,team,user --sort=-cost"),
        "Jobs",
        has_search=True,
    ),
    Page(
        "/jobs/{id}",
        "What did job {id} cost and make, and where did its money leak?",
        builders.build_job,
        _of_thing("loadfactor report --job {id}"),
        up="/jobs",
    ),
    Page(
        "/gpus",
        "Which GPUs are idle?",
        builders.build_gpus,
        _show(f"{' '.join(builders.OF_A_GPU)} --by device,node,accelerator --sort=-idle_gpu_hours"),
        "GPUs",
        cells=builders.write_heat_cells,
    ),
    Page(
        "/gpus/{id}",
        "What did GPU {id} do, and for whom?",
        builders.build_gpu,
        _of_thing(f"loadfactor show {' '.join(builders.OF_A_JOB)} --by job,team --where device={{id}}"),
        up="/gpus",
    ),
    Page(
        "/diagnosis",
        "Why were GPUs not fuller?",
        build_standing,
        _diagnose,
        "Diagnosis",
        answer="diagnosis",
    ),
    Page(
        "/savings",
        "What should change, and what would it save?",
        build_standing,
        lambda ask: f"loadfactor savings {ask.say_options()}",
        "Savings",
        of_fleet=True,
        answer="savings",
    ),
    Page(
        "/queue",
        "Who waits, and how long?",
        builders.build_queue,
        lambda ask: f"loadfactor waits {ask.say_options()}",
        "Queue",
    ),
    Page(
        "/money",
        "Who pays for what?",
        builders.build_money,
        _show(f"{' '.join(builders.OF_A_GROUP)} --by team --sort=-cost"),
        "Money",
        compares=True,
    ),
    Page(
        "/digest",
        "What does the digest of the week say?",
        sent.build_digest_page,
        sent.say_digest,
        "Digest",
        has_window=False,
        is_document=True,
    ),
    Page(
        "/alerts",
        "What needs somebody now?",
        builders.build_alerts,
        _plain("loadfactor alerts"),
        "Alerts",
        has_window=False,
    ),
    Page(
        "/quality",
        "Can these numbers be trusted?",
        builders.build_quality,
        _plain("loadfactor doctor"),
        "Quality",
        of_fleet=True,
        answer=CHECK,
    ),
    Page(
        "/sources",
        "How does each source do?",
        build_sources,
        _plain("loadfactor check"),
        "Sources",
        of_fleet=True,
        has_window=False,
    ),
    *(
        Page(
            f"/plan/{kind.name}",
            kind.question,
            lambda ask: show_plans(ask.forms, ask.standing),
            lambda ask: ask.forms[0].command,
            "Plan" if kind.name == "serve" else "",
            "" if kind.name == "serve" else "/plan/serve",
            has_window=False,
            answer="plan",
        )
        for kind in PLANS
    ),
    Page("/views", "Which views did I save?", builders.build_views, _plain(""), "Views", has_window=False),
    Page(
        "/settings",
        "What is set, and what can be?",
        build_settings_page,
        _plain("loadfactor settings"),
        "Settings",
        of_fleet=True,
        has_window=False,
    ),
    Page(
        "/docs",
        "What does each number mean?",
        builders.build_docs,
        _plain("loadfactor metrics"),
        "Docs",
        has_window=False,
    ),
)
"""In the order of the navigation."""
