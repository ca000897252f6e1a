"""The endpoints that take something in: remote_write requests, and files to import."""

import asyncio
import re
import shutil
import tempfile
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Final

from fastapi import FastAPI, Query
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from loadfactor.base.errors import InputError, LoadfactorError, no_such
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.reach import RefusedError
from loadfactor.interfaces.render.json import render_json
from loadfactor.interfaces.requests import read_moment, read_zone
from loadfactor.interfaces.server.gate import IMPORTS
from loadfactor.interfaces.server.models import ReceiptAnswer
from loadfactor.interfaces.server.replies import Served, access_of, describe_errors
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.sources import SOURCES
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.progress_records.records import check_lines
from loadfactor.sources.prometheus.remote_write import BodyTooLarge
from loadfactor.store.disk import append_audit
from loadfactor.store.importing import Receipt

WRITE: Final = "/api/v1/write"
ORIGIN: Final = "remote_write"
FILE_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}"
GZIP_START: Final = b"\x1f\x8b"


def add_intake(app: FastAPI, served: Served) -> None:
    """Add them to an app."""
    bounds = served.bounds

    @app.post(
        WRITE,
        status_code=204,
        response_class=Response,
        responses={204: {"description": "every sample is durable"}, **describe_errors(408, 413, 415)},
        openapi_extra=describe_body("application/x-protobuf", "A remote_write 1.0 request, packed with snappy."),
    )
    async def write(request: Request) -> Response:
        """Takes samples as Prometheus and VictoriaMetrics send them; answers when they are durable."""
        return await take_write(request, served)

    @app.post(
        IMPORTS,
        status_code=201,
        response_class=Response,
        responses={
            201: {"model": ReceiptAnswer, "description": "the receipt of the import"},
            **describe_errors(408, 413, 415),
        },
        openapi_extra=describe_body("application/octet-stream", "The file as it is."),
    )
    async def add_import(
        request: Request,
        source: Annotated[str, Query(max_length=64, description="One of the sources of `loadfactor import`.")],
        filename: Annotated[str, Query(pattern=f"^{FILE_NAME}$", description="Name of the file.")],
        timezone: Annotated[str | None, Query(max_length=64)] = None,
        step: Annotated[float | None, Query(gt=0, le=1e6)] = None,
        node: Annotated[str | None, Query(max_length=200)] = None,
        pool: Annotated[str | None, Query(max_length=200)] = None,
        at: Annotated[str | None, Query(max_length=64)] = None,
        held_by: Annotated[str | None, Query(max_length=200)] = None,
        price_per_gpu_hour: Annotated[float | None, Query(gt=0, le=1e9)] = None,
    ) -> Response:
        """Reads a file into the books, or nothing of it where it is wrong. The same file twice adds nothing."""
        if source not in [entry.name for entry in SOURCES]:
            raise no_such("source", source, [entry.name for entry in SOURCES])
        if request.headers.get("content-encoding", "identity") != "identity":
            raise RefusedError(415, "send the file as it is; one that ends in .gz may be packed with gzip")
        zone = read_zone(timezone)
        taken = read_moment(at, zone)
        options = ReadOptions(
            timezone=zone if timezone else None,
            step_s=step,
            node=node,
            pool=pool,
            at_ms=milliseconds(taken) if taken else None,
            held_by=held_by,
            price_per_gpu_hour=price_per_gpu_hour,
        )
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="loadfactor-upload-"))
        try:
            path = folder / filename
            with path.open("wb") as file:
                async for piece in read_body(request, bounds.upload_bytes, bounds.upload_s):
                    await asyncio.to_thread(file.write, piece) if len(piece) > BYTES_PER_MIB else file.write(piece)
            access = access_of(request)
            receipt = await served.import_pool.ask(lambda: _add(served, source, path, options, access.token))
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, True)
        return Response(render_json(Document("", data=receipt)), 201, media_type="application/json")


async def take_write(request: Request, served: Served) -> Response:
    if request.headers.get("content-encoding", "snappy") != "snappy":
        raise RefusedError(415, "only snappy is understood; send Content-Encoding: snappy")
    if "v2" in request.headers.get("content-type", ""):
        raise RefusedError(415, "only remote_write 1.0 is understood; send prometheus.WriteRequest")
    pieces = [piece async for piece in read_body(request, served.bounds.write_bytes, served.bounds.write_s)]
    await served.receiver.write(b"".join(pieces), ORIGIN)
    return Response(status_code=204)


class DirectWrites:
    """An ASGI app around another one, which it spares the writes: the way through its routes costs more than taking one."""

    def __init__(self, app: ASGIApp, served: Served) -> None:
        self._app, self._served = app, served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; errors of a write are for the caller to answer."""
        if scope["type"] == "http" and scope["path"] == WRITE and scope["method"] == "POST":
            answer = await take_write(Request(scope, receive), self._served)
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _add(served: Served, source: str, path: Path, options: ReadOptions, token: str) -> Receipt:
    """Import an uploaded file, with a line in the audit log; errors name the file as it was uploaded."""
    folder = f"{path.parent}/"
    try:
        check_unpacked(path, served.bounds.unpacked_bytes)
        receipt = served.books.add(source, [path], options)
    except LoadfactorError as error:
        error.args = (str(error).replace(folder, ""),)
        raise
    append_audit(
        served.books.store.folder,
        "import",
        f"token {token}" if token else "",
        number=receipt.number,
        source=source,
        file=path.name,
        already=receipt.already,
    )
    return Receipt(
        receipt.source,
        receipt.rows,
        tuple(
            type(gap)(gap.where.replace(folder, ""), gap.what.replace(folder, ""), gap.count) for gap in receipt.gaps
        ),
        receipt.already,
        receipt.number,
    )


async def read_body(request: Request, most_bytes: int, longest_s: float) -> AsyncIterator[bytes]:
    """The pieces of a body. Raises BodyTooLarge as soon as it is, and RefusedError where it comes too slowly."""
    claimed = request.headers.get("content-length", "0")
    if not re.fullmatch(r"[0-9]{1,18}", claimed):
        raise InputError("Content-Length is no number of bytes")
    too_large = BodyTooLarge(f"at most {most_bytes:,} bytes are taken at once; send less")
    if int(claimed) > most_bytes:
        raise too_large
    taken = 0
    try:
        async with asyncio.timeout(longest_s):
            async for piece in request.stream():
                taken += len(piece)
                if taken > most_bytes:
                    raise too_large
                if piece:  # an empty one ends a body
                    yield piece
    except TimeoutError as error:
        raise RefusedError(408, f"the body did not come within {longest_s:g} seconds; send less at once") from error
    except ClientDisconnect as error:
        raise RefusedError(400, "the body broke off") from error


def check_unpacked(path: Path, most_bytes: int) -> None:
    """Raises BodyTooLarge where a file packed with gzip is larger than may be when it is unpacked; others pass."""
    with path.open("rb") as file:
        if file.read(len(GZIP_START)) != GZIP_START:
            return
        file.seek(0)
        total, unpacker = 0, zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        while piece := unpacker.unconsumed_tail or file.read(BYTES_PER_MIB):
            try:
                total += len(unpacker.decompress(piece, BYTES_PER_MIB))
            except zlib.error:
                return  # the reader says what is wrong with it
            if total > most_bytes:
                raise BodyTooLarge(
                    f"{path.name} is more than {most_bytes:,} bytes when it is unpacked; send less at once"
                )
            if unpacker.eof:
                rest, unpacker = unpacker.unused_data, zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
                file.seek(-len(rest), 1)


def describe_body(media: str, about: str) -> dict[str, object]:
    content = {media: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"description": about, "required": True, "content": content}}


PROGRESS: Final = "/api/v1/progress"


def add_progress_intake(app: FastAPI, served: Served) -> None:
    """Add it to an app."""

    @app.post(
        PROGRESS,
        status_code=204,
        response_class=Response,
        responses={204: {"description": "every record is durable"}, **describe_errors(408, 413, 415)},
        openapi_extra=describe_body("application/x-ndjson", "Lines of progress files, the first of kind begin."),
    )
    async def keep_progress(request: Request) -> Response:
        """Takes what `loadfactor.track` sends; answers when it is durable. A record that comes twice counts once."""
        if request.headers.get("content-encoding", "identity") != "identity":
            raise RefusedError(415, "send the lines as they are, without Content-Encoding")
        pieces = [piece async for piece in read_body(request, served.bounds.write_bytes, served.bounds.write_s)]
        lines = [line for line in b"".join(pieces).split(b"\n") if line.strip()]
        await served.receiver.keep_progress(await asyncio.to_thread(check_lines, lines))
        return Response(status_code=204)
