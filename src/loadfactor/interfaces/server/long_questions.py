"""Diagnoses and savings over HTTP: what the command line answers, in the reach of a token and in bounded time."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any

from loadfactor.base.errors import InputError
from loadfactor.base.request import RequestT, make_request
from loadfactor.books.books import Books
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.formats import duration
from loadfactor.interfaces.insights import diagnose_books as build_diagnosis
from loadfactor.interfaces.insights import find_savings as build_savings
from loadfactor.interfaces.requests import DiagnoseRequest, SavingsRequest
from loadfactor.interfaces.server.bounds import Bounds
from loadfactor.interfaces.server.guard import Access, RefusedError
from loadfactor.interfaces.server.reach import NothingKnownError, keep_to_team
from loadfactor.interfaces.server.rows import PageAnswer


def read_long_question(kind: Callable[..., RequestT], given: Mapping[str, Any]) -> RequestT:
    """What a request asks, read as the command line reads it. Raises InputError."""
    lists = {name: ",".join(value) for name, value in given.items() if isinstance(value, list)}
    return make_request(kind, {name: v for name, v in {**given, **lists}.items() if v not in (None, "")})


def answer_diagnosis(books: Books, asked: DiagnoseRequest, access: Access, bounds: Bounds) -> PageAnswer:
    """What `loadfactor diagnose --format json` prints; for a token of one team, of that team and its jobs alone.

    Raises InputError where it takes too long, and for what the books do not know, RefusedError for another team.
    """
    leave_out: frozenset[str] = frozenset()
    if access.team is not None:
        asked, leave_out = _keep_to_team(books, asked, access.team)
    return PageAnswer(build_diagnosis(asked, books, limit_time(bounds.long_question_s), leave_out))


def answer_savings(books: Books, asked: SavingsRequest, bounds: Bounds) -> PageAnswer:
    """What `loadfactor savings --format json` prints. Raises InputError where it takes too long."""
    return PageAnswer(build_savings(asked, books, limit_time(bounds.long_question_s)))


def limit_time(longest_s: float, clock_s: Callable[[], float] = monotonic) -> Callable[[str, float], None]:
    """What is told of progress, and ends it with an InputError once it takes longer than that."""
    end_s = clock_s() + longest_s

    def tell(_what: str, _share: float) -> None:
        if clock_s() > end_s:
            raise InputError(
                f"this takes longer than {duration(longest_s)}; ask for a shorter window or fewer jobs, or ask the "
                "command line, which has no such limit"
            )

    return tell


def _keep_to_team(books: Books, asked: DiagnoseRequest, team: str) -> tuple[DiagnoseRequest, frozenset[str]]:
    """The same question of one team, and jobs of which others held a part, so that their diagnosis would tell of them."""
    if asked.team not in (None, team):
        raise RefusedError(403, f"this token reads team {team!r} alone; leave team=… out")
    with books.snapshot() as snapshot:
        try:
            keep_to_team(snapshot, {"job": asked.job} if asked.job else {}, team)
        except NothingKnownError as error:
            raise InputError("the books know nothing yet of what this token may read") from error
        shared = _list_shared_jobs(snapshot, team)
    if asked.job in shared:
        raise InputError(f"job {asked.job!r} is not of this team alone; ask with a token that reads everything")
    return (asked if asked.job else replace(asked, team=team)), shared


def _list_shared_jobs(snapshot: Snapshot, team: str) -> frozenset[str]:
    """Jobs that this team held and somebody else, too."""
    rows = snapshot.view("allocations")
    jobs = rows.group_by("job_id").aggregate(
        is_theirs=(rows.team == team).any(), is_others=(rows.team != team).any() | rows.team.isnull().any()
    )
    found = snapshot.fetch(jobs.filter(jobs.is_theirs & jobs.is_others).select("job_id"))
    return frozenset(found["job_id"].to_pylist())
