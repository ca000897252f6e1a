"""The application: endpoints, what each of them asks for, and its OpenAPI document, behind the gate."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from time import time
from typing import Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from loadfactor import __version__
from loadfactor.base.errors import LoadfactorError
from loadfactor.base.health import HealthReason, derive_status
from loadfactor.books.books import Books
from loadfactor.collect.peer import STORE_FILES
from loadfactor.interfaces.plans.process import PlanProcess
from loadfactor.interfaces.reach import RefusedError
from loadfactor.interfaces.server.alert_service import AlertService
from loadfactor.interfaces.server.clock_service import ClockService
from loadfactor.interfaces.server.digest_service import DigestService
from loadfactor.interfaces.server.door import DOOR_NEEDS, add_door
from loadfactor.interfaces.server.endpoints import (
    BRIDGE,
    COMPARE,
    DIAGNOSIS,
    SAVINGS,
    SEFF,
    STATEMENTS,
    WHY_CHANGED,
    add_alerts,
    add_insight,
    add_lists,
    add_readings,
)
from loadfactor.interfaces.server.gate import Gate, answer_error, refuse
from loadfactor.interfaces.server.guard import Bounds, Guard, Need
from loadfactor.interfaces.server.intake import DirectWrites, add_intake, add_progress_intake
from loadfactor.interfaces.server.models import HealthAnswer
from loadfactor.interfaces.server.pages import PAGE_NEEDS, add_pages
from loadfactor.interfaces.server.pair import OUTBOX, PAIR, Leading, add_pair
from loadfactor.interfaces.server.question_pool import QuestionPool
from loadfactor.interfaces.server.quota import Quota
from loadfactor.interfaces.server.replies import Receiver, Served, describe_errors
from loadfactor.interfaces.server.retention_service import RetentionService
from loadfactor.interfaces.server.scrape import FleetGauges, GaugeWindow, add_scrape
from loadfactor.interfaces.server.standing import StandingAnswers

NEEDS: Final[dict[tuple[str, str], Need]] = {
    ("GET", "/health"): "nothing",
    ("GET", "/metrics"): "fleet",
    ("GET", "/openapi.json"): "any",
    ("POST", "/api/v1/write"): "write",
    ("POST", "/api/v1/progress"): "write",
    ("GET", "/api/v1/readings"): "read",
    ("GET", "/api/v1/coverage"): "read",
    ("GET", "/api/v1/metrics"): "read",
    ("GET", "/api/v1/jobs"): "read",
    ("GET", "/api/v1/devices"): "read",
    ("GET", "/api/v1/imports"): "fleet",
    ("POST", "/api/v1/imports"): "write",
    ("GET", "/api/v1/alerts"): "read",
    ("GET", DIAGNOSIS): "read",
    ("GET", SAVINGS): "fleet",
    ("GET", COMPARE): "fleet",
    ("GET", WHY_CHANGED): "fleet",
    ("GET", STATEMENTS): "read",
    ("GET", BRIDGE): "read",
    ("GET", SEFF): "read",
    ("GET", PAIR): "fleet",
    ("GET", OUTBOX): "fleet",
    ("GET", STORE_FILES + "/{name}"): "fleet",
    ("GET", "/api/v1/silences"): "fleet",
    ("POST", "/api/v1/silences"): "write",
    ("DELETE", "/api/v1/silences/{id}"): "write",
}
"""Every endpoint, and what it asks for."""
NEEDS_OF_ALL: Final = NEEDS | DOOR_NEEDS | PAGE_NEEDS
NEEDS_OF_TENANT: Final[dict[tuple[str, str], Need]] = {
    endpoint: "any" if need == "nothing" else need for endpoint, need in NEEDS_OF_ALL.items()
}
"""The same of a server of many tenants: an answer to who has no token would say that there is one of this name."""
LONG_RETRY_S: Final = 30
"""A diagnosis or savings take so long: who finds others waiting comes back then."""


def make_app(
    books: Books,
    receiver: Receiver,
    guard: Guard,
    bounds: Bounds | None = None,
    window: GaugeWindow | None = None,
    clock_s: Callable[[], float] = time,
    alerts: AlertService | None = None,
    digests: DigestService | None = None,
    leading: Leading | None = None,
    is_live: bool = True,
    quota: Quota | None = None,
    retention: RetentionService | None = None,
    clock: ClockService | None = None,
) -> Gate:
    """The ASGI app of a server over these books. `window`: what `/metrics` shows of the fleet; `clock_s`: seconds since 1970.

    `is_live`: whether the books go on, so that pages without a window show the last days. `quota`: of a tenant, what it may send;
    nothing of it is open to who has no token.
    """
    bounds, clock = bounds or Bounds(), clock or ClockService(books.store.place)
    pool = QuestionPool(bounds.questions, bounds.waiting_questions, bounds.retry_after_s)
    long_pool = QuestionPool(bounds.long_questions, bounds.waiting_long_questions, LONG_RETRY_S)
    plan_pool = QuestionPool(bounds.plans, bounds.waiting_plans, bounds.retry_after_s)
    planner = PlanProcess(bounds.plan_s)
    import_pool = QuestionPool(1, bounds.files, bounds.retry_after_s)  # one writes at a time

    def close() -> None:
        for each in (pool, long_pool, import_pool, plan_pool, planner):
            each.close()

    @asynccontextmanager
    async def live(_app: FastAPI) -> AsyncIterator[None]:
        yield
        close()

    app = FastAPI(
        title="loadfactor",
        version=__version__,
        description="The books of a GPU fleet: samples in, readings out.",
        docs_url=None,
        redoc_url=None,
        lifespan=live,
    )
    insights = StandingAnswers(long_pool, bounds.insight_fresh_s if is_live else 0.0)
    plans = StandingAnswers(plan_pool)
    served = Served(
        books, receiver, bounds, pool, long_pool, import_pool, insights, plans, planner, quota or Quota(), is_live
    )
    add_intake(app, served)  # first: nothing is called as often
    add_progress_intake(app, served)
    add_readings(app, served)
    add_lists(app, served)
    add_alerts(app, served)
    add_insight(app, served)
    add_pair(app, served, leading or Leading())
    reason_lists: list[Callable[[], list[HealthReason]]] = [receiver.reasons]
    reason_lists += [service.reasons for service in (alerts, digests, retention, clock) if service is not None]

    @app.get(
        "/health", responses={200: {"model": HealthAnswer, "description": "how the server does"}, **describe_errors()}
    )
    async def health() -> Response:
        """How the server and its sources do; answers at once, and asks for no token."""
        reasons = [reason for list_reasons in reason_lists for reason in list_reasons()]
        answer = receiver.health()
        answer |= {"status": derive_status(reasons), "reasons": [asdict(reason) for reason in reasons]}
        if alerts is not None:
            answer |= {"alerts": alerts.health()}
        if leading is not None:
            answer |= {"leads": leading.leads}
        if digests is not None:
            answer |= {"digests": digests.health()}
        answer |= {"clock": clock.health()}
        return JSONResponse(answer)

    add_door(app, bounds, guard, lambda: [("", guard, books.store.place.beside)])
    add_pages(app, served)
    gate = Gate(
        DirectWrites(app, served), guard, bounds, NEEDS_OF_ALL if quota is None else NEEDS_OF_TENANT, close=close
    )
    read_verdicts = None if alerts is None else lambda: alerts.verdicts
    gauges = FleetGauges(books, pool, window or GaugeWindow(), clock_s, read_verdicts)
    add_scrape(app, receiver, gauges, gate, served.quota)
    app.add_exception_handler(HTTPException, refuse_http)
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    for kind in (LoadfactorError, RefusedError, Exception):
        app.add_exception_handler(kind, refuse_failed)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    return gate


async def refuse_http(request: Request, error: Exception) -> Response:
    """The answer where there is no such address, or not this method."""
    assert isinstance(error, HTTPException)
    words = {404: "no such address; /openapi.json lists them", 405: "not this method here; /openapi.json lists them"}
    line = words.get(error.status_code, str(error.detail))
    return refuse(error.status_code, line, dict(error.headers or {}), request.scope)


async def refuse_failed(request: Request, error: Exception) -> Response:
    """The answer where an endpoint raised this."""
    return answer_error(error, request.scope)


async def _refuse_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"][1:])
    line = f"{name}: {first['msg'][:1].lower()}{first['msg'][1:]}; /openapi.json says what it takes"
    return refuse(400, line, None, request.scope)


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: FastAPI's, with our own words for a parameter that is none, and the token."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                operation["responses"].pop("422", None)
                need = NEEDS[method.upper(), path]
                operation["security"] = [] if need == "nothing" else [{"token": []}, {}]
        schemas = document["components"]["schemas"]
        schemas.pop("HTTPValidationError", None)
        schemas.pop("ValidationError", None)
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        app.openapi_schema = document
    return app.openapi_schema
