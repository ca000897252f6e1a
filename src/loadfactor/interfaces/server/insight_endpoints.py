"""The endpoints of insight: why GPUs were not fuller, and what to change. One at a time: they take seconds to minutes."""

from typing import Annotated, Final

from fastapi import FastAPI, Query
from starlette.requests import Request
from starlette.responses import Response

from loadfactor.interfaces.requests import DiagnoseRequest, SavingsRequest
from loadfactor.interfaces.server.endpoints import End, Last, Names, Start, Text
from loadfactor.interfaces.server.guard import Bounds
from loadfactor.interfaces.server.insight_models import DiagnosisAnswer, SavingsAnswer
from loadfactor.interfaces.server.questions import answer_diagnosis, answer_savings, read_long_question
from loadfactor.interfaces.server.replies import Served, access_of, describe_errors, reply

DIAGNOSIS: Final = "/api/v1/diagnosis"
SAVINGS: Final = "/api/v1/savings"
UNCHANGED: Final[dict[int | str, dict[str, object]]] = {304: {"description": "unchanged since the answer of this ETag"}}
Jobs = Annotated[int, Query(ge=1, le=Bounds.diagnosed_jobs, description="So many jobs are looked at.")]
Price = Annotated[float | None, Query(gt=0, description="Of a GPU-hour.")]


def add_insight(app: FastAPI, served: Served) -> None:
    """Add them to an app."""
    books, pool, bounds = served.books, served.long_pool, served.bounds
    folder = books.store.folder

    @app.get(
        DIAGNOSIS,
        responses={200: {"model": DiagnosisAnswer, "description": "the diagnosis"}, **UNCHANGED, **describe_errors()},
        response_class=Response,
    )
    async def diagnosis(
        request: Request,
        job: Text = None,
        team: Text = None,
        start: Start = None,
        to: End = None,
        last: Last = None,
        timezone: Text = None,
        jobs: Jobs = 20,
    ) -> Response:
        """Why the GPUs of a job, of a team or of the fleet were not fuller, as `loadfactor diagnose --format json` prints it."""
        given = {"job": job, "team": team, "start": start, "end": to, "last": last, "timezone": timezone, "jobs": jobs}
        asked, access = read_long_question(DiagnoseRequest, given), access_of(request)
        return await reply(request, pool, folder, lambda: answer_diagnosis(books, asked, access, bounds))

    @app.get(
        SAVINGS,
        responses={200: {"model": SavingsAnswer, "description": "the levers"}, **UNCHANGED, **describe_errors()},
        response_class=Response,
    )
    async def savings(
        request: Request,
        by: Names = None,
        start: Start = None,
        to: End = None,
        last: Last = None,
        timezone: Text = None,
        jobs: Annotated[int, Query(ge=0, le=Bounds.diagnosed_jobs, description="So many jobs are diagnosed.")] = 5,
        spot_price: Price = None,
        spot_hours: Annotated[float | None, Query(gt=0, description="Between interruptions of an instance.")] = None,
        commit_price: Price = None,
    ) -> Response:
        """What to change, and what that would have saved, as `loadfactor savings --format json` prints it."""
        given = {"by": by, "start": start, "end": to, "last": last, "timezone": timezone, "jobs": jobs}
        prices = {"spot_price": spot_price, "spot_hours": spot_hours, "commit_price": commit_price}
        asked = read_long_question(SavingsRequest, given | prices)
        return await reply(request, pool, folder, lambda: answer_savings(books, asked, bounds))
