"""Answers of questions over HTTP: their tag, 304 where nothing changed, gzip where it is asked for, streams where they are long."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from loadfactor import __version__
from loadfactor.interfaces.server.guard import Access
from loadfactor.interfaces.server.question_pool import QuestionPool
from loadfactor.interfaces.server.rows import MEDIA, MOST_AT_ONCE, Form, PageAnswer, RowsAnswer, begin
from loadfactor.store.live_copy import LOG_SUFFIX
from loadfactor.store.live_copy import NAME as LIVE
from loadfactor.store.manifest import NAME as MANIFEST

VARY = "Accept-Encoding, Authorization"


def access_of(request: Request) -> Access:
    """What the gate lets this request ask."""
    access: Access = request.state.access
    return access


async def reply(
    request: Request, pool: QuestionPool, folder: Path, work: Callable[[], RowsAnswer | PageAnswer], form: Form = "json"
) -> Response:
    """Work an answer out and send it, or say that the one the client has is still right."""
    packed = _wants_gzip(request.headers.get("accept-encoding", ""))
    tag = make_tag(request, folder, packed)
    headers = {"ETag": tag, "Vary": VARY} | ({"Content-Encoding": "gzip"} if packed else {})
    if _has(request.headers.get("if-none-match", ""), tag):
        return Response(None, 304, {"ETag": tag, "Vary": VARY})

    begun, pieces = await pool.ask(lambda: begin(work().write(form, packed)))
    if len(begun) < MOST_AT_ONCE:
        return Response(b"".join(begun), 200, headers, MEDIA[form])
    return StreamingResponse(pieces, 200, headers, MEDIA[form])


def make_tag(request: Request, folder: Path, packed: bool) -> str:
    """The tag of an answer: other books (files or live batches), another question or another asker have another one."""
    state = [_state_of(folder / name) for name in (MANIFEST, LIVE, LIVE + LOG_SUFFIX)]
    asked = (__version__, state, request.url.path, request.url.query, packed, access_of(request))
    return f'"{hashlib.sha256(repr(asked).encode("utf-8", "surrogatepass")).hexdigest()[:32]}"'


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """What changes with every change of a file."""
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_ino, there.st_mtime_ns, there.st_size


def _wants_gzip(accepted: str) -> bool:
    """True where gzip is asked for by name.

    >>> [_wants_gzip(a) for a in ("gzip, deflate", "br;q=1.0, gzip;q=0.8", "gzip;q=0", "*", "")]
    [True, True, False, False, False]
    """
    for part in accepted.lower().split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _has(tags: str, tag: str) -> bool:
    """True where an If-None-Match header names the tag."""
    return any(part.strip().removeprefix("W/") in (tag, "*") for part in tags.split(","))
