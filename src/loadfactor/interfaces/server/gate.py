"""The gate every request passes before a route sees it: bounds, rate, who asks, a request id, and a line in the log."""

import json
import re
import time
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loadfactor.base.errors import BusyError, InputError, LoadfactorError, StoreError
from loadfactor.base.removed import find_removed_address
from loadfactor.base.spelling import spell_out
from loadfactor.base.units import MS_PER_S
from loadfactor.interfaces.reach import RefusedError
from loadfactor.interfaces.server.bodies import Bodies
from loadfactor.interfaces.server.guard import (
    Access,
    Bounds,
    Caller,
    Guard,
    Need,
)
from loadfactor.interfaces.server.log import hide_secrets, write_line
from loadfactor.interfaces.web.frame import render_refusal
from loadfactor.sources.prometheus.remote_write import BodyTooLarge

STORE_RETRY_S = 5
_FLAG = re.compile(r"(`[^`]*`)|(?<![\w-])--([a-z])")


LOGIN: Final = "/login"
API: Final = "/api/"
STATIC: Final = "/static/"
HTML: Final = "text/html; charset=utf-8"
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""What a browser may do with a page: take styles, scripts and pictures from here, send forms here, and nothing else."""
PAGE_HEADERS: Final = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}


def is_page(path: str) -> bool:
    """True for what a browser opens; false for endpoints, which programs call."""
    return not path.startswith((API, STATIC)) and path not in (HEALTH, "/metrics", "/openapi.json")


def wants_html(scope: Scope) -> bool:
    """True where a browser opens a page: it accepts HTML, and the address names no other form."""
    accepted = _header(scope["headers"], b"accept") or ""
    is_other = re.search(rb"(^|&)format=(?!html)", scope["query_string"]) is not None
    return is_page(scope["path"]) and "text/html" in accepted and not is_other


def answer_html(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A page, under the policy of all pages."""
    return Response(text.encode("utf-8", "replace"), status, {**PAGE_HEADERS, **(headers or {})}, HTML)


def refuse(status: int, message: str, headers: dict[str, str] | None = None, scope: Scope | None = None) -> Response:
    """The answer to a request that is not served: a page where a browser opens one, and the way to sign in where that helps."""
    line = hide_secrets(spell_out(" ".join(message.split())))
    if scope is not None and wants_html(scope):
        if status == 401 and scope["method"] == "GET" and scope["path"] != LOGIN:
            query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
            place = scope["path"] + query
            return Response(None, 303, {"Location": f"{LOGIN}?next={quote(place, safe='')}"})
        return answer_html(render_refusal(status, line), status, headers)
    body = json.dumps({"error": line}, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, status, headers, "application/json")


def answer_error(error: Exception, scope: Scope | None = None) -> Response:
    """The answer where a request failed with this; the words of the command line's options become those of parameters."""
    message = _FLAG.sub(lambda found: found[1] or found[2], str(error))
    if isinstance(error, RefusedError):
        return refuse(error.status, message, {"WWW-Authenticate": "Bearer"} if error.status == 401 else None, scope)
    if isinstance(error, BusyError):
        return refuse(429, message, {"Retry-After": str(max(1, ceil(error.retry_after_s)))}, scope)
    if isinstance(error, BodyTooLarge):
        return refuse(413, message, None, scope)
    if isinstance(error, InputError):
        return refuse(400, message, None, scope)
    if isinstance(error, StoreError):
        return refuse(503, message, {"Retry-After": str(STORE_RETRY_S)}, scope)
    if isinstance(error, LoadfactorError):
        return refuse(500, message, None, scope)
    line = f"an error in loadfactor itself ({type(error).__name__}); the log says more under this request id"
    return refuse(500, line, None, scope)


class Rates:
    """Buckets of the last `clients` clients. For one thread."""

    def __init__(self, per_s: float, burst: int, clients: int) -> None:
        self._per_s, self._burst, self._clients = per_s, burst, clients
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, now_s: float) -> bool:
        """Count a request; False where it is one too many."""
        left, at_s = self._buckets.pop(client, (float(self._burst), now_s))
        left = min(float(self._burst), left + (now_s - at_s) * self._per_s)
        passes = left >= 1
        self._buckets[client] = (left - passes, now_s)
        if len(self._buckets) > self._clients:
            self._buckets.popitem(last=False)
        return passes


TRACE: Final = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
"""A header `traceparent` of W3C Trace Context."""
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
SAFE_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"private, no-cache"))
LAST_CALLS = 6
"""Of an error in loadfactor itself, in the log."""
HEALTH = "/health"
WRITE = "/api/v1/write"
IMPORTS = "/api/v1/imports"

Needs = Mapping[tuple[str, str], Need]
"""The need of each endpoint, by method and path; what is not listed asks for a token that reads everything."""


class Gate:
    """An ASGI app around another one."""

    def __init__(
        self,
        app: ASGIApp,
        guard: Guard,
        bounds: Bounds,
        needs: Needs,
        clock_s: Callable[[], float] = time.monotonic,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """`close` ends the threads and processes of the app."""
        self.close = close
        self.answered: Counter[tuple[str, int]] = Counter()  # by path (of known ones) and status
        self._app, self._guard, self._bounds, self._needs, self._clock_s = app, guard, bounds, needs, clock_s
        self._rates = Rates(bounds.requests_per_s, bounds.burst, bounds.clients)
        self._sign_ins = Rates(bounds.sign_ins_per_s, bounds.sign_in_burst, bounds.clients)
        self._bodies = Bodies(bounds, clock_s)
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        else:
            self._in_flight += 1
            try:
                await self._serve(scope, receive, send)
            finally:
                self._in_flight -= 1

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_s = self._clock_s()
        headers = scope["headers"]
        given = _header(headers, b"x-request-id") or ""
        request_id = given if REQUEST_ID.fullmatch(given) else uuid4().hex
        sent = {"status": 0, "bytes": 0}
        access = Access("open")

        async def pass_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent["status"] = message["status"]
                given = list(message.get("headers", ()))
                safe = [
                    pair for pair in SAFE_HEADERS if pair[0] not in dict(given)
                ]  # a file that never changes is kept
                message = {**message, "headers": [*given, (b"x-request-id", request_id.encode()), *safe]}
            else:
                sent["bytes"] += len(message.get("body", b""))
            await send(message)

        failed = ""
        try:
            access, sender = self._admit(scope)
            scope.setdefault("state", {})["access"] = access
            if scope["method"] == "POST":
                with self._bodies.admit(sender, scope["path"] == IMPORTS, receive) as receive_piece:
                    await self._app(scope, receive_piece, pass_on)
            else:
                await self._app(scope, receive, pass_on)
        except (RefusedError, LoadfactorError) as error:
            await answer_error(error, scope)(scope, receive, pass_on)
        except Exception as error:
            failed = "".join(traceback.format_exception(error, limit=-LAST_CALLS))
            if sent["status"] not in (0, 500):
                raise  # the answer has begun: only closing the connection says that it is not whole
            if not sent["status"]:
                await answer_error(error, scope)(scope, receive, pass_on)
        finally:
            self._note(scope, sent, request_id, access, self._clock_s() - began_s, failed)

    def _admit(self, scope: Scope) -> tuple[Access, str]:
        """The access of a request, and whose it is: of a token, or of a client where none was needed.

        Raises RefusedError where it passes a bound or asks too much, BusyError.
        """
        bounds, headers, path, method = self._bounds, scope["headers"], scope["path"], scope["method"]
        peer = (scope.get("client") or ("", 0))[0]
        hosts = [value for name, value in headers if name == b"host"]
        if len(scope.get("raw_path") or path) + len(scope["query_string"]) > bounds.url_bytes:
            raise RefusedError(414, f"the address is longer than {bounds.url_bytes:,} bytes; ask for less at once")
        if len(hosts) != 1 or sum(name == b"authorization" for name, _ in headers) > 1:
            raise RefusedError(400, "a request has one Host and at most one Authorization header")
        caller = Caller(
            peer,
            hosts[0].decode("latin-1"),
            method,
            _header(headers, b"origin"),
            _header(headers, b"authorization"),
            _header(headers, b"x-forwarded-for"),
            _header(headers, b"x-forwarded-proto"),
            *self._read_proxied(headers),
            forwarded_host=_header(headers, b"x-forwarded-host"),
            own_address=(scope.get("server") or ("", 0))[0],
            cookie=_header(headers, b"cookie"),
            form_key=_header(headers, b"x-form-key"),
            is_tls=scope.get("scheme") == "https",
            is_page=is_page(path),
        )
        if path == HEALTH:
            self._guard.check_host(caller, takes_addresses=True)  # orchestrators ask by the address of a container
            return Access("open"), peer
        scope.setdefault("state", {})["caller"] = caller
        if self._in_flight > bounds.in_flight:
            raise BusyError("the server is busy; send it again a little later", bounds.retry_after_s)
        client = self._guard.client_of(caller)
        if not self._rates.take(client, self._clock_s()):
            raise BusyError(f"more than {bounds.requests_per_s:g} requests a second; send fewer", bounds.retry_after_s)
        if (method, path) == ("POST", LOGIN) and not self._sign_ins.take(client, self._clock_s()):
            raise BusyError("too many tries to sign in; try again in a few seconds", 1 / bounds.sign_ins_per_s)

        removal = find_removed_address(
            path
        )  # before anybody is asked for a token: tokens of removed places are of no use
        if removal is not None:
            raise RefusedError(410, removal.sentence)

        of_one = f"{path.rpartition('/')[0]}/{{id}}"
        of_page = f"/{path[1:].partition('/')[0]}/{{id}}"  # names in addresses may hold a slash
        known = (self._needs.get((method, of)) for of in (path, of_one, of_page))
        need: Need = next((need for need in known if need), "fleet")
        access = self._guard.admit(caller, need)
        return access, access.token or client

    def _read_proxied(self, headers: list[tuple[bytes, bytes]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The users and the groups in the headers that the configuration names."""
        users = self._guard.users
        if users is None:
            return (), ()
        named = (users.user_header.lower().encode(), users.groups_header.lower().encode())
        of_user, of_groups = (
            tuple(value.decode("utf-8", "replace") for name, value in headers if name == known and value)
            for known in named
        )
        return of_user, of_groups

    def _note(
        self, scope: Scope, sent: dict[str, int], request_id: str, access: Access, took_s: float, failed: str
    ) -> None:
        """Count the answer, and log it; a write that went well is counted alone, there are thousands of them."""
        method, path, status = scope["method"], scope["path"], sent["status"]
        known = any(path == of for _, of in self._needs)
        self.answered[path if known else "other", status] += 1
        if (path, status) == (WRITE, 204) or (path, status) == (HEALTH, 200):
            return
        facts: dict[str, Any] = {"token": access.token} if access.token else {}
        facts |= {"user": access.user} if access.user else {}
        if trace := TRACE.fullmatch(_header(scope["headers"], b"traceparent") or ""):
            facts["trace_id"] = trace[1]
        if failed:
            facts["traceback"] = failed
        write_line(
            level="error" if failed or status >= 500 else "info",
            request_id=request_id,
            client=(scope.get("client") or ("", 0))[0],
            method=method,
            path=path,
            status=status,
            bytes=sent["bytes"],
            took_ms=round(took_s * MS_PER_S, 1),
            **facts,
        )


def _header(headers: list[tuple[bytes, bytes]], name: bytes) -> str | None:
    return next((value.decode("latin-1") for known, value in headers if known == name), None)
