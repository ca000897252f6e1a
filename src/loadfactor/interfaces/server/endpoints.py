"""The endpoints that read: readings, coverage, lists, diagnoses, savings, statements and alerts."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import pyarrow as pa
from fastapi import Depends, FastAPI, Query
from fastapi import Path as InPath
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from loadfactor.base.errors import InputError
from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.books.charging.bridge import Bridge
from loadfactor.books.charging.fleet_chargeback import FleetChargeback
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.delivery.board import (
    LIVING,
    STATES,
    belongs_to,
    describe_listed,
    describe_silence,
    read_board,
)
from loadfactor.insight.alerts.rules import RULES
from loadfactor.insight.changes import Change
from loadfactor.insight.comparison import RunComparison
from loadfactor.insight.diagnosis.finding import FleetDiagnosis
from loadfactor.insight.savings import FleetSavings
from loadfactor.interfaces.insights import find_savings
from loadfactor.interfaces.pages.alerts import end_silence as lift
from loadfactor.interfaces.pages.alerts import make_silence
from loadfactor.interfaces.pages.lists import list_entries
from loadfactor.interfaces.reports.seff import SeffAnswer
from loadfactor.interfaces.requests import (
    BridgeRequest,
    ChargebackRequest,
    DiagnoseRequest,
    RunsRequest,
    SavingsRequest,
    WhyChangedRequest,
)
from loadfactor.interfaces.server.guard import Access, Bounds
from loadfactor.interfaces.server.intake import read_body
from loadfactor.interfaces.server.models import (
    AlertsAnswer,
    CoverageAnswer,
    DevicesAnswer,
    ImportsAnswer,
    JobsAnswer,
    MetricsAnswer,
    ReadingsAnswer,
    SilenceAnswer,
    SilenceRequest,
    SilencesAnswer,
    describe_shape,
)
from loadfactor.interfaces.server.questions import (
    Progress,
    answer_bridge,
    answer_change,
    answer_comparison,
    answer_coverage,
    answer_devices,
    answer_diagnosis,
    answer_jobs,
    answer_readings,
    answer_seff,
    answer_statements,
    limit_time,
    read_long_question,
    read_question,
)
from loadfactor.interfaces.server.replies import (
    Form,
    PageAnswer,
    RowsAnswer,
    Served,
    access_of,
    describe_errors,
    describe_rows,
    reply,
)
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import iso
from loadfactor.settings.config import settings
from loadfactor.store.trusted_time import read_clock

DIAGNOSIS: Final = "/api/v1/diagnosis"
SAVINGS: Final = "/api/v1/savings"
COMPARE: Final = "/api/v1/compare"
WHY_CHANGED: Final = "/api/v1/why-changed"
STATEMENTS: Final = "/api/v1/statements"
BRIDGE: Final = "/api/v1/bridge"
SEFF: Final = "/api/v1/seff"
UNCHANGED: Final[dict[int | str, dict[str, object]]] = {304: {"description": "unchanged since the answer of this ETag"}}

NAMES: Final = "Names, repeated or separated by commas."
Names = Annotated[list[str] | None, Query(max_length=64, description=NAMES)]
Text = Annotated[str | None, Query(max_length=200)]
Where = Annotated[list[str] | None, Query(max_length=64, description="Only these: team=vision,job=4711.")]
Limit = Annotated[int, Query(ge=1, le=100_000)]
Offset = Annotated[int, Query(ge=0, le=1_000_000_000)]
Price = Annotated[float | None, Query(gt=0, description="Of a GPU-hour.")]


@dataclass(kw_only=True)
class WindowQuery:
    """The window of a question; fields are those of the requests of the command line."""

    start: Annotated[str | None, Query(alias="from", max_length=64, description="Start of the window.")] = None
    end: Annotated[
        str | None, Query(alias="to", max_length=64, description="End of the window, itself not included.")
    ] = None
    last: Annotated[
        str | None, Query(max_length=64, description="The last part of the window alone: 90min, 12h, 7d, 4w.")
    ] = None
    timezone: Text = None


@dataclass(kw_only=True)
class MetricsQuery(WindowQuery):
    """Metrics of a window, of a part of the fleet, split by dimensions."""

    metrics: Annotated[list[str] | None, Query(alias="metric", max_length=64, description=NAMES)] = None
    by: Names = None
    where: Where = None


@dataclass(kw_only=True)
class ReadingsQuery(MetricsQuery):
    """Readings, in an order."""

    basis: Literal["effective", "contracted", "owned", "list", "estimate"] | None = None
    sort: Text = None
    reverse: bool = False
    limit: Annotated[int | None, Query(ge=1, le=1_000_000_000)] = None
    without_idle: bool = False


@dataclass(kw_only=True)
class JobsQuery(WindowQuery):
    """Jobs of a part of the fleet."""

    where: Where = None


@dataclass(kw_only=True)
class DiagnosisQuery(WindowQuery):
    """A job, a team or the fleet."""

    job: Text = None
    team: Text = None
    jobs: Annotated[int, Query(ge=1, le=Bounds.diagnosed_jobs, description="So many jobs are looked at.")] = 20


@dataclass(kw_only=True)
class SavingsQuery(WindowQuery):
    """Savings by team or user, and other prices."""

    by: Names = None
    jobs: Annotated[int, Query(ge=0, le=Bounds.diagnosed_jobs, description="So many jobs are diagnosed.")] = 5
    spot_price: Price = None
    spot_hours: Annotated[float | None, Query(gt=0, description="Between interruptions of an instance.")] = None
    commit_price: Price = None


@dataclass(kw_only=True)
class RunsQuery(WindowQuery):
    """Two runs, in one kind of money."""

    first: Annotated[str, Query(max_length=200, description="A job, an experiment, a team, or a week: 2026-W41.")]
    second: Annotated[str, Query(max_length=200, description="The other one.")]
    basis: Literal["effective", "contracted", "owned", "list", "estimate"] | None = None


@dataclass(kw_only=True)
class WhyChangedQuery(WindowQuery):
    """A metric, of a part of the fleet, and the window to compare with."""

    metric: Annotated[str, Query(max_length=200, description="The name of a metric.")]
    by: Names = None
    where: Where = None
    against: Annotated[str | None, Query(max_length=200, description="FROM/TO, else the window before.")] = None
    month: Text = None
    basis: Literal["effective", "contracted", "owned", "list", "estimate"] | None = None


@dataclass(kw_only=True)
class MonthQuery:
    """A month, in a time zone."""

    month: Annotated[str | None, Query(max_length=64, description="2026-10; else all that is known.")] = None
    timezone: Text = None


@dataclass(kw_only=True)
class StatementsQuery(MonthQuery):
    """Statements by names."""

    by: Names = None
    currency: Text = None


@dataclass(kw_only=True)
class BridgeQuery(MonthQuery):
    """The bridge of a team, else of the fleet."""

    team: Text = None


def add_readings(app: FastAPI, served: Served) -> None:
    """Add readings and coverage to an app."""
    books, pool, bounds = served.books, served.pool, served.bounds
    store = books.store

    @app.get("/api/v1/readings", responses=describe_rows(ReadingsAnswer), response_class=Response)
    async def readings(request: Request, query: Annotated[ReadingsQuery, Depends()], format: Form = "json") -> Response:
        """Readings of metrics (all of them when none is named), as `loadfactor show --format json` prints them."""
        question, access = read_question(vars(query), bounds), access_of(request)
        return await reply(request, pool, store, lambda: answer_readings(books, question, access, bounds), format)

    @app.get("/api/v1/coverage", responses=describe_rows(CoverageAnswer), response_class=Response)
    async def coverage(request: Request, query: Annotated[MetricsQuery, Depends()], format: Form = "json") -> Response:
        """How much of what metrics speak of was known."""
        question, access = read_question(vars(query), bounds), access_of(request)
        return await reply(request, pool, store, lambda: answer_coverage(books, question, access, bounds), format)


def add_lists(app: FastAPI, served: Served) -> None:
    """Add the lists of metrics, jobs, devices and imports to an app."""
    books, pool, bounds = served.books, served.pool, served.bounds
    store = books.store

    @app.get("/api/v1/metrics", responses=describe_rows(MetricsAnswer), response_class=Response)
    async def metrics(request: Request, format: Form = "json") -> Response:
        """The declarations of all metrics, as `loadfactor metrics --format json` prints them."""
        entries = list_entries()
        answer = RowsAnswer("metrics", entries, lambda: pa.Table.from_pylist([vars(entry) for entry in entries]))
        return await reply(request, pool, store, lambda: answer, format)

    @app.get("/api/v1/jobs", responses=describe_rows(JobsAnswer), response_class=Response)
    async def jobs(
        request: Request,
        query: Annotated[JobsQuery, Depends()],
        limit: Limit = 1_000,
        offset: Offset = 0,
        format: Form = "json",
    ) -> Response:
        """Each time a job held GPUs, in the order of the starts."""
        question, access = read_question(vars(query), bounds), access_of(request)
        return await reply(request, pool, store, lambda: answer_jobs(books, question, access, limit, offset), format)

    @app.get("/api/v1/devices", responses=describe_rows(DevicesAnswer), response_class=Response)
    async def devices(request: Request, limit: Limit = 1_000, offset: Offset = 0, format: Form = "json") -> Response:
        """The GPUs; for a token of one team, those it held."""
        access = access_of(request)
        return await reply(request, pool, store, lambda: answer_devices(books, access, limit, offset), format)

    @app.get("/api/v1/imports", responses=describe_rows(ImportsAnswer), response_class=Response)
    async def imports(request: Request, format: Form = "json") -> Response:
        """Imports of the books, as `loadfactor imports --format json` prints it."""

        def work() -> RowsAnswer:
            records = books.imports
            return RowsAnswer("imports", records, lambda: pa.Table.from_pylist([_flatten(vars(r)) for r in records]))

        return await reply(request, pool, store, work, format)


def _flatten(record: dict[str, object]) -> dict[str, object]:
    """A record with nested values as JSON text, so that it fits into columns."""
    return {name: json.dumps(v) if isinstance(v, (dict, tuple)) else v for name, v in record.items()}


def add_insight(app: FastAPI, served: Served) -> None:
    """Add diagnoses, savings, comparisons and statements to an app. One is worked on at a time: they take seconds to minutes."""
    books, pool, bounds = served.books, served.long_pool, served.bounds
    store = books.store

    def limit() -> Progress:
        return limit_time(bounds.long_question_s)

    def describe(kind: type, about: str) -> dict[str, Any]:
        shape = {"model": describe_shape(kind), "description": about}
        return {"responses": {200: shape, **UNCHANGED, **describe_errors()}, "response_class": Response}

    @app.get(DIAGNOSIS, **describe(FleetDiagnosis, "the diagnosis"))
    async def diagnosis(request: Request, query: Annotated[DiagnosisQuery, Depends()]) -> Response:
        """Why the GPUs of a job, of a team or of the fleet were not fuller, as `loadfactor diagnose --format json` prints it."""
        question, access = read_long_question(DiagnoseRequest, vars(query)), access_of(request)
        return await reply(request, pool, store, lambda: PageAnswer(answer_diagnosis(books, question, access, limit())))

    @app.get(SAVINGS, **describe(FleetSavings, "the levers"))
    async def savings(request: Request, query: Annotated[SavingsQuery, Depends()]) -> Response:
        """Changes to make, and what each would have saved, as `loadfactor savings --format json` prints it."""
        question = read_long_question(SavingsRequest, vars(query))
        return await reply(request, pool, store, lambda: PageAnswer(find_savings(question, books, limit())))

    @app.get(COMPARE, **describe(RunComparison, "both sides"))
    async def compare(request: Request, query: Annotated[RunsQuery, Depends()]) -> Response:
        """Two runs side by side, as `loadfactor compare --format json` prints them."""
        question = read_long_question(RunsRequest, vars(query))
        return await reply(request, pool, store, lambda: answer_comparison(books, question, bounds))

    @app.get(WHY_CHANGED, **describe(Change, "the parts"))
    async def why_changed(request: Request, query: Annotated[WhyChangedQuery, Depends()]) -> Response:
        """Why a metric changed, as `loadfactor why-changed --format json` prints it."""
        question = read_long_question(WhyChangedRequest, vars(query))
        return await reply(request, pool, store, lambda: answer_change(books, question))

    @app.get(STATEMENTS, **describe(FleetChargeback, "the statements"))
    async def statements(request: Request, query: Annotated[StatementsQuery, Depends()]) -> Response:
        """Who is charged what, as `loadfactor chargeback --format json` prints it; a token of a team has its own statements."""
        question, access = read_long_question(ChargebackRequest, vars(query)), access_of(request)
        return await reply(request, pool, store, lambda: answer_statements(books, question, access))

    @app.get(SEFF, **describe(SeffAnswer, "the job, or its parts"))
    async def seff(request: Request, job: Annotated[str, Query(max_length=200)]) -> Response:
        """One job in a few numbers, as `loadfactor seff --format json` prints it; for a token of a team its own jobs."""
        access = access_of(request)
        return await reply(request, served.pool, store, lambda: answer_seff(books, job, access))

    @app.get(BRIDGE, **describe(Bridge, "the steps"))
    async def bridge(request: Request, query: Annotated[BridgeQuery, Depends()]) -> Response:
        """From the bill to what a budget has spent, as `loadfactor bill bridge --format json` prints it."""
        question, access = read_long_question(BridgeRequest, vars(query)), access_of(request)
        return await reply(request, pool, store, lambda: answer_bridge(books, question, access))


ALERTS: Final = "/api/v1/alerts"
SILENCES: Final = "/api/v1/silences"
LONGEST_BODY_BYTES: Final = 64 * BYTES_PER_KIB

State = Literal["firing", "pending", "resolved", "all"]


def add_alerts(app: FastAPI, served: Served) -> None:
    """Add them to an app."""
    place = served.books.store.place

    @app.get(ALERTS, responses={200: {"model": AlertsAnswer, "description": "alerts"}, **describe_errors()})
    async def alerts(
        request: Request,
        state: Annotated[list[State] | None, Query(max_length=4, description="By default firing and pending.")] = None,
        rule: Annotated[str | None, Query(max_length=200, description="Of this rule alone.")] = None,
        id: Annotated[str | None, Query(max_length=64, description="This one alone, in whatever state.")] = None,
        limit: Annotated[int, Query(ge=1, le=100_000)] = 10_000,
    ) -> Response:
        """Alerts with their evidence, the most severe first; a token of a team sees the alerts of that team."""
        access = access_of(request)
        states = STATES if id is not None or (state and "all" in state) else tuple(state or LIVING)

        def work() -> dict[str, Any]:
            board, rules = (
                read_board(place.folder, read_clock(place).expiry_ms, states),
                configure(RULES, settings().alert),
            )
            found = [
                describe_listed(listed, rules)
                for listed in board.alerts
                if belongs_to(listed.alert, access.team)
                and (rule is None or listed.alert.rule == rule)
                and (id is None or listed.alert.fingerprint == id)
            ]
            judged = None if board.judged_ms is None else iso(instant(board.judged_ms))
            return {"judged": judged, "alerts": found[:limit]}

        return JSONResponse(await served.pool.ask(work))

    @app.get(SILENCES, responses={200: {"model": SilencesAnswer, "description": "silences"}, **describe_errors()})
    async def silences(
        all: Annotated[bool, Query(description="Also those that are over.")] = False,
    ) -> Response:
        """The silences, in the order they were made."""

        def work() -> dict[str, Any]:
            expiry_ms = read_clock(place).expiry_ms
            listed = [of for of in read_board(place.folder, expiry_ms, ()).silences if all or of.is_active(expiry_ms)]
            return {"silences": [describe_silence(silence, expiry_ms) for silence in listed]}

        return JSONResponse(await served.pool.ask(work))

    @app.post(
        SILENCES,
        status_code=201,
        responses={201: {"model": SilenceAnswer, "description": "the silence"}, **describe_errors(408, 413)},
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": SilenceRequest.model_json_schema()}},
            }
        },
    )
    async def add_silence(request: Request) -> Response:
        """Silences alerts that match for a time; they fire all the same, and the end of what was sent before is sent."""
        pieces = [piece async for piece in read_body(request, LONGEST_BODY_BYTES, served.bounds.write_s)]
        try:
            new = SilenceRequest.model_validate_json(b"".join(pieces))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{name or 'the body'}: {first['msg'][:1].lower()}{first['msg'][1:]}") from error
        who = _name_caller(access_of(request), new.who)

        def work() -> dict[str, Any]:
            silence = make_silence(place, new.rule, new.by, (new.for_, new.until), new.reason, who)
            return describe_silence(silence, read_clock(place).expiry_ms)

        return JSONResponse(await served.pool.ask(work), 201)

    @app.delete(
        SILENCES + "/{id}",
        responses={200: {"model": SilenceAnswer, "description": "the silence that was lifted"}, **describe_errors()},
    )
    async def lift_silence(request: Request, id: Annotated[str, InPath(max_length=64)]) -> Response:
        """Ends a silence now; what it held back and still fires is sent."""
        who = _name_caller(access_of(request), "")
        return JSONResponse(
            await served.pool.ask(lambda: describe_silence(lift(place, id, who), read_clock(place).expiry_ms))
        )


def _name_caller(access: Access, given: str) -> str:
    """The caller, for the audit log: the token, and whom it claims to act for."""
    token = f"token {access.token}" if access.token else ""
    return f"{given} ({token})" if given and token else given or token or "the server's machine"
