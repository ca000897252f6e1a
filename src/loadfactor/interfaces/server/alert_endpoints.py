"""The endpoints of alerts: what fires and why, and silences: listed, made and lifted."""

from typing import Annotated, Any, Final, Literal

from fastapi import FastAPI, Query
from fastapi import Path as InPath
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from loadfactor.base.errors import InputError
from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.delivery.board import (
    LIVING,
    STATES,
    belongs_to,
    describe_listed,
    describe_silence,
    read_board,
)
from loadfactor.insight.alerts.delivery.dispatcher import now_ms
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.pages.alerts import end_silence as lift
from loadfactor.interfaces.pages.alerts import make_silence
from loadfactor.interfaces.server.guard import Access
from loadfactor.interfaces.server.intake import read_body
from loadfactor.interfaces.server.models import AlertsAnswer, SilenceAnswer, SilenceRequest, SilencesAnswer
from loadfactor.interfaces.server.replies import Served, access_of, describe_errors
from loadfactor.metrics.query.calendar import instant
from loadfactor.metrics.query.reading import iso
from loadfactor.settings.config import settings

ALERTS: Final = "/api/v1/alerts"
SILENCES: Final = "/api/v1/silences"
LONGEST_BODY_BYTES: Final = 64 * BYTES_PER_KIB

State = Literal["firing", "pending", "resolved", "all"]


def add_alerts(app: FastAPI, served: Served) -> None:
    """Add them to an app."""
    folder = served.books.store.folder

    @app.get(ALERTS, responses={200: {"model": AlertsAnswer, "description": "alerts"}, **describe_errors()})
    async def alerts(
        request: Request,
        state: Annotated[list[State] | None, Query(max_length=4, description="By default firing and pending.")] = None,
        rule: Annotated[str | None, Query(max_length=200, description="Of this rule alone.")] = None,
        id: Annotated[str | None, Query(max_length=64, description="This one alone, in whatever state.")] = None,
        limit: Annotated[int, Query(ge=1, le=100_000)] = 10_000,
    ) -> Response:
        """What fires and why, the most severe first; a token of a team sees the alerts of that team."""
        access = access_of(request)
        states = STATES if id is not None or (state and "all" in state) else tuple(state or LIVING)

        def work() -> dict[str, Any]:
            board, rules = read_board(folder, now_ms(), states), configure(RULES, settings().alert)
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
        now = now_ms()
        board = await served.pool.ask(lambda: read_board(folder, now, ()))
        found = [describe_silence(silence, now) for silence in board.silences if all or silence.is_active(now)]
        return JSONResponse({"silences": found})

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
        """Has alerts that match told to nobody for a time; they fire all the same, and what was told before has its end told."""
        pieces = [piece async for piece in read_body(request, LONGEST_BODY_BYTES, served.bounds.write_s)]
        try:
            new = SilenceRequest.model_validate_json(b"".join(pieces))
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{name or 'the body'}: {first['msg'][:1].lower()}{first['msg'][1:]}") from error
        who = _name_caller(access_of(request), new.who)
        silence = await served.pool.ask(
            lambda: make_silence(
                folder,
                new.rule,
                new.by,
                (new.for_, new.until),
                new.reason,
                who,
            )
        )
        return JSONResponse(describe_silence(silence, now_ms()), 201)

    @app.delete(
        SILENCES + "/{id}",
        responses={200: {"model": SilenceAnswer, "description": "the silence that was lifted"}, **describe_errors()},
    )
    async def lift_silence(request: Request, id: Annotated[str, InPath(max_length=64)]) -> Response:
        """Ends a silence now; what it held back and fires still is told."""
        who = _name_caller(access_of(request), "")
        silence = await served.pool.ask(lambda: lift(folder, id, who))
        return JSONResponse(describe_silence(silence, now_ms()))


def _name_caller(access: Access, given: str) -> str:
    """The caller, for the audit log: the token, and whom it claims to act for."""
    token = f"token {access.token}" if access.token else ""
    return f"{given} ({token})" if given and token else given or token or "the server's machine"
