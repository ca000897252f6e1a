"""The endpoints that read: readings, coverage, metrics, jobs, devices and imports."""

import json
from typing import Annotated, Literal

import pyarrow as pa
from fastapi import FastAPI, Query
from starlette.requests import Request
from starlette.responses import Response

from loadfactor.interfaces.pages.lists import list_entries
from loadfactor.interfaces.server.models import (
    CoverageAnswer,
    DevicesAnswer,
    ImportsAnswer,
    JobsAnswer,
    MetricsAnswer,
    ReadingsAnswer,
)
from loadfactor.interfaces.server.questions import (
    answer_coverage,
    answer_devices,
    answer_jobs,
    answer_readings,
    read_question,
)
from loadfactor.interfaces.server.replies import Form, RowsAnswer, Served, access_of, describe_rows, reply

Names = Annotated[list[str] | None, Query(max_length=64, description="Names, repeated or separated by commas.")]
Text = Annotated[str | None, Query(max_length=200)]
Start = Annotated[str | None, Query(alias="from", max_length=64, description="Start of the window.")]
End = Annotated[str | None, Query(max_length=64, description="End of the window, itself not included.")]
Last = Annotated[str | None, Query(max_length=64, description="The last part of the window alone: 90min, 12h, 7d, 4w.")]
Where = Annotated[list[str] | None, Query(max_length=64, description="Only these: team=vision,job=4711.")]
Limit = Annotated[int, Query(ge=1, le=100_000)]
Offset = Annotated[int, Query(ge=0, le=1_000_000_000)]
Basis = Literal["effective", "contracted", "owned", "list", "estimate"]


def add_readings(app: FastAPI, served: Served) -> None:
    """Add readings and coverage to an app."""
    books, pool, bounds = served.books, served.pool, served.bounds
    folder = books.store.folder

    @app.get("/api/v1/readings", responses=describe_rows(ReadingsAnswer), response_class=Response)
    async def readings(
        request: Request,
        metric: Names = None,
        by: Names = None,
        start: Start = None,
        to: End = None,
        last: Last = None,
        timezone: Text = None,
        basis: Basis | None = None,
        where: Where = None,
        sort: Text = None,
        reverse: bool = False,
        limit: Annotated[int | None, Query(ge=1, le=1_000_000_000)] = None,
        without_idle: bool = False,
        format: Form = "json",
    ) -> Response:
        """Readings of metrics (all of them when none is named), as `loadfactor show --format json` prints them."""
        given = {
            "metrics": metric,
            "by": by,
            "start": start,
            "end": to,
            "last": last,
            "timezone": timezone,
            "basis": basis,
        }
        order = {"where": where, "sort": sort, "reverse": reverse, "limit": limit, "without_idle": without_idle}
        asked, access = read_question(given | order, bounds), access_of(request)
        return await reply(request, pool, folder, lambda: answer_readings(books, asked, access, bounds), format)

    @app.get("/api/v1/coverage", responses=describe_rows(CoverageAnswer), response_class=Response)
    async def coverage(
        request: Request,
        metric: Names = None,
        by: Names = None,
        start: Start = None,
        to: End = None,
        last: Last = None,
        timezone: Text = None,
        where: Where = None,
        format: Form = "json",
    ) -> Response:
        """How much of what metrics speak of was known."""
        given = {
            "metrics": metric,
            "by": by,
            "start": start,
            "end": to,
            "last": last,
            "timezone": timezone,
            "where": where,
        }
        asked, access = read_question(given, bounds), access_of(request)
        return await reply(request, pool, folder, lambda: answer_coverage(books, asked, access, bounds), format)


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
        start: Start = None,
        to: End = None,
        last: Last = None,
        timezone: Text = None,
        where: Where = None,
        limit: Limit = 1_000,
        offset: Offset = 0,
        format: Form = "json",
    ) -> Response:
        """Each time a job held GPUs, in the order of the starts."""
        given = {"start": start, "end": to, "last": last, "timezone": timezone, "where": where}
        asked, access = read_question(given, bounds), access_of(request)
        return await reply(request, pool, folder, lambda: answer_jobs(books, asked, access, limit, offset), format)

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
            return RowsAnswer("imports", records, lambda: pa.Table.from_pylist([_plain(vars(r)) for r in records]))

        return await reply(request, pool, folder, work, format)


def _plain(record: dict[str, object]) -> dict[str, object]:
    """A record with what is nested in it as JSON text, so that it fits into columns."""
    return {name: json.dumps(v) if isinstance(v, (dict, tuple)) else v for name, v in record.items()}
