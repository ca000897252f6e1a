"""Questions of the books that the endpoints ask, in the reach of a token; each opens a session and is worked out in a thread."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from time import monotonic
from typing import Any

import ibis
import pyarrow as pa

from loadfactor.base.errors import InputError
from loadfactor.base.request import RequestT, make_request
from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.formats import duration
from loadfactor.interfaces.insights import diagnose_books as build_diagnosis
from loadfactor.interfaces.pages.compare import compare_books
from loadfactor.interfaces.pages.why_changed import build_change, explain_request
from loadfactor.interfaces.reach import NothingKnownError, RefusedError, is_empty, keep_to_team, names_of_team
from loadfactor.interfaces.reports.seff import SeffAnswer
from loadfactor.interfaces.requests import (
    BridgeRequest,
    ChargebackRequest,
    DiagnoseRequest,
    RunsRequest,
    ShowRequest,
    WhyChangedRequest,
)
from loadfactor.interfaces.server.guard import Access, Bounds
from loadfactor.interfaces.server.replies import PageAnswer, RowsAnswer
from loadfactor.ledger.labels import drop_repeats
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.metrics.query.reading import Readings
from loadfactor.tables.schema import DIMENSIONS

Progress = Callable[[str, float], None]
COVERAGE = ("metric", "by", "from", "to", "coverage", "activity_basis")
NOTHING = pa.table({})


def read_question(given: Mapping[str, Any], bounds: Bounds) -> ShowRequest:
    """The request of a question, read as the command line reads it. Raises InputError."""
    lists = {name: ",".join(value) for name, value in given.items() if isinstance(value, list)}
    request = make_request(ShowRequest, {name: v for name, v in {**given, **lists}.items() if v not in (None, "")})
    for what, names, most in (
        ("dimensions", request.by, bounds.dimensions),
        ("metrics", request.metrics, bounds.metrics),
    ):
        if len(names) > most:
            raise InputError(f"{len(names)} {what} at once, at most {most} are taken; ask for fewer")
    if not request.by and (request.sort or request.reverse or request.limit):
        raise InputError("--sort, --reverse and --limit order groups; say which with --by")
    return request


def answer_readings(books: Books, request: ShowRequest, access: Access, bounds: Bounds) -> RowsAnswer:
    """Readings, none where the books know nothing yet. Raises InputError and RefusedError."""
    found = _ask(books, request, access, bounds)
    return RowsAnswer(
        "readings", () if found is None else found, lambda: NOTHING if found is None else found.to_arrow()
    )


def answer_coverage(books: Books, request: ShowRequest, access: Access, bounds: Bounds) -> RowsAnswer:
    """The coverage of metrics, alike."""
    found = _ask(books, request, access, bounds)
    rows = [{name: value for name, value in r.as_json().items() if name in COVERAGE} for r in found or ()]
    return RowsAnswer("coverage", rows, lambda: pa.Table.from_pylist(rows))


def answer_jobs(books: Books, request: ShowRequest, access: Access, limit: int, offset: int) -> RowsAnswer:
    """Jobs that held GPUs in the window."""
    others = [name for name in request.filters if name not in ("job", "pool", *JOB_DIMENSIONS)]
    if others:
        raise InputError(f"jobs cannot be chosen by {others[0]!r}; take one of job, pool, {', '.join(JOB_DIMENSIONS)}")
    with books.snapshot() as snapshot:
        try:
            start, end = request.window(snapshot)
            filters = keep_to_team(snapshot, request.filters, access.team)
        except NothingKnownError:
            return _as_rows("jobs", NOTHING)
        return _as_rows("jobs", list_jobs(snapshot, start, end, filters, limit, offset))


def answer_devices(books: Books, access: Access, limit: int, offset: int) -> RowsAnswer:
    """GPUs; of a team, those it held."""
    with books.snapshot() as snapshot:
        try:
            keep_to_team(snapshot, {}, access.team)
        except NothingKnownError:
            return _as_rows("devices", NOTHING)
        return _as_rows("devices", list_devices(snapshot, access.team, limit, offset))


def _as_rows(name: str, rows: pa.Table) -> RowsAnswer:
    return RowsAnswer(name, rows.to_pylist(), lambda: rows)


def _ask(books: Books, request: ShowRequest, access: Access, bounds: Bounds) -> Readings | None:
    """The readings; None where the books know nothing yet."""
    with books.snapshot() as snapshot:
        if is_empty(snapshot):
            return None
        start, end = request.window(snapshot)
        check_size(snapshot, request.by, start, end, bounds)
        try:
            where = keep_to_team(snapshot, request.filters, access.team)
        except NothingKnownError:
            return None
        found = snapshot.show(
            request.metrics, request.by, start, end, request.zone, request.basis, where, request.without_idle
        )
    by = request.sort or ""
    return found.arrange(by.removeprefix("-"), by.startswith("-") != request.reverse, request.limit)


def check_size(
    snapshot: Snapshot, by: Iterable[str], start: datetime | None, end: datetime | None, bounds: Bounds
) -> None:
    """Raises InputError where GPUs times hours alone make more groups than an answer may have."""
    if not {"device", "hour"} <= set(by):
        return
    first, last = snapshot.span
    hours = (milliseconds(min(end or last, last)) - milliseconds(max(start or first, first))) // MS_PER_HOUR + 1
    rows = snapshot.view("devices")
    (devices,) = snapshot.fetch(rows.aggregate(devices=rows.device_id.nunique()))["devices"].to_pylist()
    if hours * devices > bounds.groups:
        raise InputError(
            f"{devices:,} GPUs × {hours:,} hours are more than {bounds.groups:,} groups; ask for a shorter window"
        )


JOB_DIMENSIONS = ("user", "team", "project", "experiment", "purpose")
INSTANT = pa.timestamp("ms", "UTC")


def list_jobs(
    snapshot: Snapshot, start: datetime | None, end: datetime | None, filters: dict[str, str], limit: int, offset: int
) -> pa.Table:
    """A row each time a job held GPUs in a window, in the order of the starts; `filters` are of the holder and the pool."""
    rows = drop_repeats(snapshot.view("allocations"))
    for name, value in filters.items():
        rows = rows.filter(rows[DIMENSIONS[name]] == value)
    gpus = ibis.coalesce(rows.gpus, 1.0) * ibis.coalesce(rows.share, 1.0)
    jobs = (
        rows.mutate(held=gpus)
        .group_by("job_id", "attempt", "from_utc")
        .aggregate(
            **{name: lambda t, column=DIMENSIONS[name]: t[column].max() for name in JOB_DIMENSIONS},
            gpus=lambda t: t.held.sum(),
            submitted=lambda t: t.submitted_utc.min(),
            to=lambda t: ibis.ifelse(t.to_utc.isnull().any(), ibis.null("int64"), t.to_utc.max()),
            end_state=lambda t: t.end_state.max(),
        )
    )
    if start is not None:
        jobs = jobs.filter(jobs.to.isnull() | (jobs.to > milliseconds(start)))
    if end is not None:
        jobs = jobs.filter(jobs.from_utc < milliseconds(end))
    jobs = jobs.rename({"job": "job_id", "from": "from_utc"})
    columns = ["job", "attempt", *JOB_DIMENSIONS, "gpus", "submitted", "from", "to", "end_state"]
    return as_instants(
        snapshot.fetch(jobs.select(columns).order_by("from", "job", "attempt").limit(limit, offset=offset))
    )


def list_devices(snapshot: Snapshot, team: str | None, limit: int, offset: int) -> pa.Table:
    """A row for each GPU and interval in which it stayed where it was, in the order of their names; of a team, those it held."""
    rows: Any = snapshot.view("devices")
    if team is not None:
        held = [name for name in names_of_team(snapshot, "device", team) if name is not None]
        rows = rows.filter(rows.device_id.isin(held)) if held else rows.limit(0)
    rows = rows.rename({"device": "device_id", "from": "from_utc", "to": "to_utc"})
    columns = ["device", "node", "accelerator", "pool", "share", "from", "to"]
    return as_instants(snapshot.fetch(rows.select(columns).order_by("device", "from").limit(limit, offset=offset)))


def as_instants(rows: pa.Table) -> pa.Table:
    """Rows with the columns from, to and submitted as instants rather than milliseconds."""
    for name in ("from", "to", "submitted"):
        if name in rows.column_names:
            place = rows.column_names.index(name)
            rows = rows.set_column(place, name, rows[name].cast(INSTANT))
    return rows


def read_long_question(kind: Callable[..., RequestT], given: Mapping[str, Any]) -> RequestT:
    """The request of a long question, read as the command line reads it. Raises InputError."""
    lists = {name: ",".join(value) for name, value in given.items() if isinstance(value, list)}
    return make_request(kind, {name: v for name, v in {**given, **lists}.items() if v not in (None, "")})


def answer_diagnosis(books: Books, request: DiagnoseRequest, access: Access, tell: Progress) -> Document:
    """The page of `loadfactor diagnose`; for a token of one team, of that team and its jobs alone.

    Raises what `tell` does, InputError for what the books do not know, RefusedError for another team.
    """
    leave_out: frozenset[str] = frozenset()
    if access.team is not None:
        request, leave_out = _keep_diagnosis_to_team(books, request, access.team)
    return build_diagnosis(request, books, tell, leave_out)


def answer_comparison(books: Books, request: RunsRequest, bounds: Bounds) -> PageAnswer:
    """The answer of `loadfactor compare --format json`. Raises InputError where it takes too long, or the books do not know one."""
    return PageAnswer(compare_books(request, books, limit_time(bounds.long_question_s)))


def answer_change(books: Books, request: WhyChangedRequest) -> PageAnswer:
    """The answer of `loadfactor why-changed --format json`. Raises InputError where a window or a metric is none."""
    with books.snapshot() as snapshot:
        return PageAnswer(build_change(explain_request(request, snapshot)))


def answer_statements(books: Books, request: ChargebackRequest, access: Access) -> PageAnswer:
    """The answer of `loadfactor chargeback --format json`; for a token of one team its statements alone, and no sum of the fleet.

    Raises InputError where the books know no cost.
    """
    by = request.by or ("team",)
    if access.team is not None and "team" not in by:
        raise InputError("a token of a team reads statements by team, or by team and others; write by=team")
    with books.snapshot() as snapshot:
        _check_known(snapshot, access.team)
        found = snapshot.chargeback(request.month, by, request.currency, request.zone)
    if access.team is not None:
        own = tuple(s for s in found.statements if s.owner is not None and s.by["team"] == access.team)
        found = replace(
            found,
            statements=own,
            spreads=(),
            totals={},
            remarks=(),
            coverage_share=None,
            tag_coverage_share=None,
            unpriced_gpu_hours=None,
        )
    return PageAnswer(Document("", data=found))


def answer_bridge(books: Books, request: BridgeRequest, access: Access) -> PageAnswer:
    """The answer of `loadfactor bill bridge --format json`; for a token of one team its own. Raises InputError and RefusedError."""
    if access.team is not None and request.team not in (None, access.team):
        raise RefusedError(403, f"this token reads team {access.team!r} alone; leave team=… out")
    with books.snapshot() as snapshot:
        _check_known(snapshot, access.team)
        try:
            found = snapshot.bridge(access.team or request.team, request.month, request.zone)
        except InputError as error:
            if access.team is None:
                raise
            raise InputError(f"the books know no cost of team {access.team!r} then; ask for another month") from error
    return PageAnswer(Document("", data=found))


def answer_seff(books: Books, job: str, access: Access) -> PageAnswer:
    """The answer of `loadfactor seff --format json`; for a token of one team those jobs and parts that are of it.

    Raises InputError for a job that the books do not know, as for one of another team.
    """
    with books.snapshot() as snapshot:
        _check_known(snapshot, access.team)
        try:
            found = snapshot.summarize_jobs(job)
        except InputError as error:
            if access.team is None:
                raise
            raise InputError(f"no job called {job!r} of team {access.team!r}") from error
        shared = frozenset() if access.team is None else _list_shared_jobs(snapshot, access.team)
    own = tuple(of for of in found if access.team in (None, of.team) and of.job not in shared)
    if not own:
        raise InputError(f"no job called {job!r} of team {access.team!r}")
    return PageAnswer(Document("", data=SeffAnswer(own)))


def _check_known(snapshot: Snapshot, team: str | None) -> None:
    """Raises InputError where the books do not know the team of a token: other names are none of its business."""
    try:
        keep_to_team(snapshot, {}, team)
    except NothingKnownError as error:
        raise InputError("the books know nothing yet of what this token may read") from error


def limit_time(
    longest_s: float, clock_s: Callable[[], float] = monotonic, then: Progress = lambda _what, _share: None
) -> Progress:
    """A receiver of progress that ends it with an InputError once it takes longer than that, and else passes it on."""
    end_s = clock_s() + longest_s

    def tell(what: str, share: float) -> None:
        then(what, share)
        if clock_s() > end_s:
            raise InputError(
                f"this takes longer than {duration(longest_s)}; ask for a shorter window or fewer jobs, or ask the "
                "command line, which has no such limit"
            )

    return tell


def _list_shared_jobs(snapshot: Snapshot, team: str) -> frozenset[str]:
    """Jobs that this team held and somebody else, too."""
    rows = snapshot.view("allocations")
    jobs = rows.group_by("job_id").aggregate(
        is_theirs=(rows.team == team).any(), is_others=(rows.team != team).any() | rows.team.isnull().any()
    )
    found = snapshot.fetch(jobs.filter(jobs.is_theirs & jobs.is_others).select("job_id"))
    return frozenset(found["job_id"].to_pylist())


def _keep_diagnosis_to_team(
    books: Books, request: DiagnoseRequest, team: str
) -> tuple[DiagnoseRequest, frozenset[str]]:
    """The same question of one team, and jobs of which others held a part, so that their diagnosis would tell of them."""
    if request.team not in (None, team):
        raise RefusedError(403, f"this token reads team {team!r} alone; leave team=… out")
    with books.snapshot() as snapshot:
        try:
            keep_to_team(snapshot, {"job": request.job} if request.job else {}, team)
        except NothingKnownError as error:
            raise InputError("the books know nothing yet of what this token may read") from error
        shared = _list_shared_jobs(snapshot, team)
    if request.job in shared:
        raise InputError(f"job {request.job!r} is not of this team alone; ask with a token that reads everything")
    return (request if request.job else replace(request, team=team)), shared
