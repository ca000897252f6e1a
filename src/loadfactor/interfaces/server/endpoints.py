"""The endpoints that read: readings, coverage, lists, diagnoses and savings."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import pyarrow as pa
from fastapi import Depends, FastAPI, Query
from starlette.requests import Request
from starlette.responses import Response

from loadfactor.insight.diagnosis.finding import FleetDiagnosis
from loadfactor.insight.savings import FleetSavings
from loadfactor.interfaces.pages.lists import list_entries
from loadfactor.interfaces.requests import DiagnoseRequest, SavingsRequest
from loadfactor.interfaces.server.guard import Bounds
from loadfactor.interfaces.server.models import (
    CoverageAnswer,
    DevicesAnswer,
    ImportsAnswer,
    JobsAnswer,
    MetricsAnswer,
    ReadingsAnswer,
    describe_shape,
)
from loadfactor.interfaces.server.questions import (
    answer_coverage,
    answer_devices,
    answer_diagnosis,
    answer_jobs,
    answer_readings,
    answer_savings,
    read_long_question,
    read_question,
)
from loadfactor.interfaces.server.replies import (
    Form,
    RowsAnswer,
    Served,
    access_of,
    describe_errors,
    describe_rows,
    reply,
)

DIAGNOSIS: Final = "/api/v1/diagnosis"
SAVINGS: Final = "/api/v1/savings"
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


def add_readings(app: FastAPI, served: Served) -> None:
    """Add readings and coverage to an app."""
    books, pool, bounds = served.books, served.pool, served.bounds
    folder = books.store.folder

    @app.get("/api/v1/readings", responses=describe_rows(ReadingsAnswer), response_class=Response)
    async def readings(request: Request, query: Annotated[ReadingsQuery, Depends()], format: Form = "json") -> Response:
        """Readings of metrics (all of them when none is named), as `loadfactor show --format json` prints them."""
        question, access = read_question(vars(query), bounds), access_of(request)
        return await reply(request, pool, folder, lambda: answer_readings(books, question, access, bounds), format)

    @app.get("/api/v1/coverage", responses=describe_rows(CoverageAnswer), response_class=Response)
    async def coverage(request: Request, query: Annotated[MetricsQuery, Depends()], format: Form = "json") -> Response:
        """How much of what metrics speak of was known."""
        question, access = read_question(vars(query), bounds), access_of(request)
        return await reply(request, pool, folder, lambda: answer_coverage(books, question, access, bounds), format)


def add_lists(app: FastAPI, served: Served) -> None:
    """Add the lists of metrics, jobs, devices and imports to an app."""
    books, pool, bounds = served.books, served.pool, served.bounds
    folder = books.store.folder

    @app.get("/api/v1/metrics", responses=describe_rows(MetricsAnswer), response_class=Response)
    async def metrics(request: Request, format: Form = "json") -> Response:
        """The declarations of all metrics, as `loadfactor metrics --format json` prints them."""
        entries = list_entries()
        answer = RowsAnswer("metrics", entries, lambda: pa.Table.from_pylist([vars(entry) for entry in entries]))
        return await reply(request, pool, folder, lambda: answer, format)

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
        return await reply(request, pool, folder, lambda: answer_jobs(books, question, access, limit, offset), format)

    @app.get("/api/v1/devices", responses=describe_rows(DevicesAnswer), response_class=Response)
    async def devices(request: Request, limit: Limit = 1_000, offset: Offset = 0, format: Form = "json") -> Response:
        """The GPUs; for a token of one team, those it held."""
        access = access_of(request)
        return await reply(request, pool, folder, lambda: answer_devices(books, access, limit, offset), format)

    @app.get("/api/v1/imports", responses=describe_rows(ImportsAnswer), response_class=Response)
    async def imports(request: Request, format: Form = "json") -> Response:
        """What was read into the books, as `loadfactor imports --format json` prints it."""

        def work() -> RowsAnswer:
            records = books.imports
            return RowsAnswer("imports", records, lambda: pa.Table.from_pylist([_flatten(vars(r)) for r in records]))

        return await reply(request, pool, folder, work, format)


def _flatten(record: dict[str, object]) -> dict[str, object]:
    """A record with nested values as JSON text, so that it fits into columns."""
    return {name: json.dumps(v) if isinstance(v, (dict, tuple)) else v for name, v in record.items()}


def add_insight(app: FastAPI, served: Served) -> None:
    """Add diagnoses and savings to an app. One is worked on at a time: they take seconds to minutes."""
    books, pool, bounds = served.books, served.long_pool, served.bounds
    folder = books.store.folder

    def describe(kind: type, about: str) -> dict[str, Any]:
        shape = {"model": describe_shape(kind), "description": about}
        return {"responses": {200: shape, **UNCHANGED, **describe_errors()}, "response_class": Response}

    @app.get(DIAGNOSIS, **describe(FleetDiagnosis, "the diagnosis"))
    async def diagnosis(request: Request, query: Annotated[DiagnosisQuery, Depends()]) -> Response:
        """Why the GPUs of a job, of a team or of the fleet were not fuller, as `loadfactor diagnose --format json` prints it."""
        question, access = read_long_question(DiagnoseRequest, vars(query)), access_of(request)
        return await reply(request, pool, folder, lambda: answer_diagnosis(books, question, access, bounds))

    @app.get(SAVINGS, **describe(FleetSavings, "the levers"))
    async def savings(request: Request, query: Annotated[SavingsQuery, Depends()]) -> Response:
        """What to change, and what that would have saved, as `loadfactor savings --format json` prints it."""
        question = read_long_question(SavingsRequest, vars(query))
        return await reply(request, pool, folder, lambda: answer_savings(books, question, bounds))
