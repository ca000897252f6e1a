"""Answers of questions over HTTP: their tag, 304 where nothing changed, gzip where it is accepted, streams where they are long."""

import asyncio
import hashlib
import io
import os
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from loadfactor import __version__
from loadfactor.base.health import HealthReason
from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.books.books import Books
from loadfactor.catalog.facts import digest_catalog
from loadfactor.collect.live import ReceiverCounts, WriteAnswer
from loadfactor.insight.alerts.delivery.outbox import NAME as ALERTS
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.plans.process import PlanProcess
from loadfactor.interfaces.render.json import render_csv, render_json
from loadfactor.interfaces.server.guard import Access, Bounds
from loadfactor.interfaces.server.models import ErrorAnswer
from loadfactor.interfaces.server.question_pool import QuestionPool
from loadfactor.interfaces.server.standing import StandingAnswers
from loadfactor.settings.config import settings
from loadfactor.store.live_copy import LOG_SUFFIX
from loadfactor.store.live_copy import NAME as LIVE
from loadfactor.store.store import Store


class Receiver(Protocol):
    """Whoever takes samples in. Its methods are called on the event loop and answer at once, but for `write`."""

    async def write(self, body: bytes, origin: str) -> WriteAnswer:
        """Take a remote_write request as it came; returns when it is durable.

        Raises InputError for what cannot be taken, BusyError where too much waits, StoreError where it cannot be kept.
        """
        ...

    async def keep_progress(self, records: Sequence[dict[str, Any]]) -> None:
        """Take the records of a tracked run; returns when they are durable. Raises as `write`."""
        ...

    def health(self) -> dict[str, Any]:
        """`{"status", "sources": [{"name", "status", "last_sample", "error"}], "lag_s"}`; never waits for a lock."""
        ...

    def reasons(self) -> list[HealthReason]:
        """List what is wrong with collecting and booking; never waits for a lock."""
        ...

    def counts(self) -> ReceiverCounts:
        """Counts since the process began."""
        ...


ERRORS = {
    400: "the request cannot be understood",
    401: "a token is needed",
    403: "the token is not enough",
    404: "it is not there, or not any more",
    408: "the body came too slowly",
    413: "the body is too large",
    414: "the address is too long",
    415: "the body is packed or written in another way",
    421: "the server was called by a name that is not its own",
    429: "too much at once: come back after Retry-After seconds",
    431: "the headers are too long",
    500: "an error in loadfactor itself",
    503: "the store cannot be read or written now",
}


@dataclass(frozen=True)
class Served:
    """The books, who takes samples in, the bounds, the threads for questions, short ones and long ones, and for imports.

    `insights` and `plans` are long answers of pages; `planner` makes the plans.
    """

    books: Books
    receiver: Receiver
    bounds: Bounds
    pool: QuestionPool
    long_pool: QuestionPool
    import_pool: QuestionPool
    insights: StandingAnswers
    plans: StandingAnswers
    planner: PlanProcess
    is_live: bool = True


def describe_errors(*answers: int) -> dict[int | str, dict[str, object]]:
    """The responses of an endpoint that are errors, as OpenAPI describes them: those given and those every endpoint may give."""
    every = (400, 401, 403, 414, 421, 429, 431, 500, 503)
    return {status: {"model": ErrorAnswer, "description": ERRORS[status]} for status in sorted({*every, *answers})}


def describe_rows(model: type) -> dict[int | str, dict[str, object]]:
    """The responses of an endpoint that answers with rows in any form."""
    other: dict[str, object] = {MEDIA[form].partition(";")[0]: {} for form in ("csv", "arrow")}
    answers: dict[int | str, dict[str, object]] = {
        200: {"model": model, "description": "the rows", "content": other},
        304: {"description": "unchanged since the answer of this ETag"},
    }
    return answers | describe_errors()


Form = Literal["json", "csv", "arrow"]
PageForm = Literal["html", "json", "csv", "cells", "pdf", "xlsx"]
MEDIA: Final[dict[str, str]] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
    "html": "text/html; charset=utf-8",
    "cells": "application/octet-stream",
    "pdf": "application/pdf",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
PIECE: Final = 2_000
"""Rows that are written at once."""
PAGE_PIECE_BYTES: Final = 256 * BYTES_PER_KIB
MOST_AT_ONCE: Final = 3
"""Pieces that are worked out before the first is sent."""
_GZIP: Final = zlib.MAX_WBITS | 16
_LEVEL: Final = 5


class Answer(Protocol):
    """What can be written in a form."""

    def write(self, form: Any, packed: bool) -> Iterator[bytes]:
        """The bytes in this form, with gzip where `packed`."""
        ...


@dataclass(frozen=True)
class RowsAnswer:
    """Rows under a name: as records (dataclasses, objects with `as_json` or mappings), and as an Arrow table."""

    name: str
    records: Sequence[Any]
    arrow: Callable[[], pa.Table]

    def write(self, form: Form, packed: bool) -> Iterator[bytes]:
        """The bytes in this form, with gzip where `packed`."""
        pieces = {"json": self._write_json, "csv": self._write_csv, "arrow": self._write_arrow}[form]()
        return pack(pieces) if packed else pieces

    def _pieces(self) -> Iterator[Document]:
        for start in range(0, len(self.records), PIECE):
            yield Document("", data=self.records[start : start + PIECE])

    def _write_json(self) -> Iterator[bytes]:
        opening = f'{{"{self.name}": [\n '
        for piece in self._pieces():
            yield (opening + render_json(piece)[len("[\n ") : -len("\n]")]).encode("utf-8", "replace")
            opening = ",\n "
        yield b"\n]}\n" if self.records else f'{{"{self.name}": []}}\n'.encode()

    def _write_csv(self) -> Iterator[bytes]:
        for number, piece in enumerate(self._pieces()):
            text = render_csv(piece)
            yield (text.partition("\n")[2] if number else text).encode("utf-8", "replace")

    def _write_arrow(self) -> Iterator[bytes]:
        table = self.arrow()
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            for batch in table.to_batches(max_chunksize=PIECE):
                writer.write_batch(batch)
                yield _drain(sink)
        yield _drain(sink)


@dataclass(frozen=True)
class PageAnswer:
    """The JSON of a page, as the command line prints it."""

    page: Document

    def write(self, _form: Form, packed: bool) -> Iterator[bytes]:
        """The bytes, with gzip where `packed`."""
        text = (render_json(self.page) + "\n").encode("utf-8", "replace")
        pieces = (text[start : start + PAGE_PIECE_BYTES] for start in range(0, len(text), PAGE_PIECE_BYTES))
        return pack(pieces) if packed else iter(pieces)


def _drain(sink: io.BytesIO) -> bytes:
    written = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return written


def pack(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces with gzip."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


Begun = tuple[list[bytes], Iterator[bytes]]


def begin(pieces: Iterator[bytes]) -> Begun:
    """The first pieces, worked out now, and all of them; fewer than `MOST_AT_ONCE` are the whole of it."""
    first = list(islice(pieces, MOST_AT_ONCE))
    return first, chain(first, pieces)


VARY = "Accept, Accept-Encoding, Accept-Language, Authorization, Cookie"


def access_of(request: Request) -> Access:
    """The access that the gate gave this request."""
    access: Access = request.state.access
    return access


async def reply(
    request: Request,
    pool: QuestionPool,
    store: Store,
    work: Callable[[], "Answer"],
    form: Form | PageForm = "json",
    marks: tuple[Any, ...] = (),
) -> Response:
    """Work an answer out and send it, or say that the one the client has is still right. `marks`: what else it depends on."""
    return await send(request, store, lambda packed: pool.ask(lambda: begin(work().write(form, packed))), form, marks)


async def send(
    request: Request,
    store: Store,
    work: Callable[[bool], Awaitable["Begun"]],
    form: Form | PageForm,
    marks: tuple[Any, ...] = (),
) -> Response:
    """The same of an answer that `work` begins to write, with gzip where it is given True."""
    packed = _wants_gzip(request.headers.get("accept-encoding", ""))
    tag = f'"{await digest_state(request, store, packed, form, access_of(request), marks)}"'
    headers = {"ETag": tag, "Vary": VARY} | ({"Content-Encoding": "gzip"} if packed else {})
    tags = request.headers.get("if-none-match", "")
    if any(part.strip().removeprefix("W/") in (tag, "*") for part in tags.split(",")):
        return Response(None, 304, {"ETag": tag, "Vary": VARY})

    begun, pieces = await work(packed)
    if len(begun) < MOST_AT_ONCE:
        return Response(b"".join(begun), 200, headers, MEDIA[form])
    return StreamingResponse(pieces, 200, headers, MEDIA[form])


async def digest_state(request: Request, store: Store, *of: object) -> str:
    """What an answer depends on, digested: the books (files and live batches), settings, program and address, and `of`."""
    beside = [_state_of(store.folder / name) for name in (LIVE, LIVE + LOG_SUFFIX, ALERTS, ALERTS + LOG_SUFFIX)]
    state = (await asyncio.to_thread(store.place.read_mark), beside)  # a bucket is read
    program = (__version__, digest_catalog(), repr(settings()))
    identity = (program, state, request.url.path, request.url.query, *of)
    return hashlib.sha256(repr(identity).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """Facts that change with every change of a file."""
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_ino, there.st_mtime_ns, there.st_size


def _wants_gzip(accepted: str) -> bool:
    """True where gzip is accepted by name.

    >>> [_wants_gzip(a) for a in ("gzip, deflate", "br;q=1.0, gzip;q=0.8", "gzip;q=0", "*", "")]
    [True, True, False, False, False]
    """
    for part in accepted.lower().split(","):
        name, _, weight = part.strip().partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
