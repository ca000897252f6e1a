"""Signing in and out with a browser, and the files that pages link to."""

from hmac import compare_digest
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from loadfactor.base.errors import StoreError
from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.interfaces.reach import RefusedError
from loadfactor.interfaces.server.gate import LOGIN, answer_html
from loadfactor.interfaces.server.guard import GRANTS, SECURE_COOKIE, Bounds, Caller, Guard, Need
from loadfactor.interfaces.server.intake import read_body
from loadfactor.interfaces.server.log import write_line
from loadfactor.interfaces.server.replies import access_of
from loadfactor.interfaces.server.sessions import LONGEST_SESSION_S
from loadfactor.interfaces.web.frame import FILES, FORM_KEY, render_login
from loadfactor.store.disk import append_audit

LOGOUT: Final = "/logout"
DOOR_NEEDS: Final[dict[tuple[str, str], Need]] = {
    ("GET", LOGIN): "nothing",
    ("POST", LOGIN): "nothing",
    ("POST", LOGOUT): "any",
    ("GET", "/static/{id}"): "nothing",
}
LONGEST_FORM_BYTES: Final = 64 * BYTES_PER_KIB
MOST_FIELDS: Final = 100
KEPT: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
UNSAFE: Final = (
    "signing in needs TLS, so that nobody on the way reads the token: give tls_cert and tls_key in [server] of the configuration, "
    "put a trusted proxy with TLS in front, or open the page on the server's own machine"
)


def add_door(app: FastAPI, bounds: Bounds, guard: Guard, folder: Path) -> None:
    """Add them to an app. `folder` has its audit log."""

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        """A style, a script or a picture; its name changes with what is in it."""
        if name not in FILES:
            raise RefusedError(404, "no such file")
        content, media = FILES[name]
        return Response(content, 200, KEPT, media)

    @app.get(LOGIN, include_in_schema=False)
    async def login(request: Request) -> Response:
        """The form that takes a token."""
        if guard.name_cookie(_caller_of(request)) is None:
            raise RefusedError(403, UNSAFE)
        return answer_html(render_login(find_local(request.query_params.get("next", ""))))

    @app.post(LOGIN, include_in_schema=False)
    async def sign_in(request: Request) -> Response:
        """Begin a session of a token."""
        caller = _caller_of(request)
        name = guard.name_cookie(caller)
        if name is None:
            raise RefusedError(403, UNSAFE)
        if caller.origin is None:
            raise RefusedError(403, "sign in with the form of this page; a program sends its token with each request")
        fields = await read_form(request, bounds.write_s)
        place, token = find_local(fields.get("next", "")), fields.get("token", "").strip()
        record = guard.find(token)
        if record is None:
            return answer_html(render_login(place, "This token is not known, or was revoked."), 401)
        if "read" not in GRANTS[record.right]:
            return answer_html(render_login(place, "This token only sends; sign in with one that reads."), 403)
        try:
            append_audit(folder, "sign in", id=record.id)
        except StoreError as error:  # a full disk keeps nobody from reading: the log has the line then
            write_line(level="error", event="sign in", id=record.id, error=str(error))
        cookie = _cookie(name, guard.sessions.begin(record), LONGEST_SESSION_S)
        return _send_on(place, cookie)

    @app.post(LOGOUT, include_in_schema=False)
    async def sign_out(request: Request) -> Response:
        """End the session."""
        caller = _caller_of(request)
        await read_checked_form(request, bounds.write_s)
        name = guard.end_session(caller)
        return _send_on(LOGIN, _cookie(name, "", 0) if name else None)


def _send_on(place: str, cookie: str | None) -> Response:
    return Response(None, 303, {"Location": place} | ({"Set-Cookie": cookie} if cookie else {}))


def _cookie(name: str, value: str, max_age_s: float) -> str:
    secure = "; Secure" if name == SECURE_COOKIE else ""
    return f"{name}={value}; Path=/; Max-Age={max_age_s:.0f}; HttpOnly; SameSite=Strict{secure}"


def _caller_of(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def find_local(place: str) -> str:
    """The place after signing in: an address of this server, `/` for any other.

    >>> find_local("/teams?last=7d"), find_local("//evil.example"), find_local("/\\\\evil.example"), find_local("https://evil.example")
    ('/teams?last=7d', '/', '/', '/')
    """
    is_local = place.startswith("/") and not place.startswith("//") and "\\" not in place and place.isprintable()
    return quote(place, safe="/?&=%:,+.~!*'();@$-_") if is_local else "/"


async def read_form(request: Request, longest_s: float) -> dict[str, str]:
    """The fields of a form; of one that is there twice, the last. Raises RefusedError for what is no form."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise RefusedError(415, "send the form of the page")
    body = b"".join([piece async for piece in read_body(request, LONGEST_FORM_BYTES, longest_s)])
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise RefusedError(400, "the form cannot be read; send it from the page") from error
    return {name: values[-1] for name, values in fields.items()}


async def read_checked_form(request: Request, longest_s: float) -> dict[str, str]:
    """The fields of a form that one of our pages sent. Raises RefusedError where another made the browser send it."""
    fields, access = await read_form(request, longest_s), access_of(request)
    if not access.form_key or not compare_digest(fields.get(FORM_KEY, "").encode(), access.form_key.encode()):
        raise RefusedError(403, "the form is not of this session; open the page again")
    return fields
