"""The endpoint that takes the progress of tracked runs: lines of JSON, as their files have them."""

import asyncio
from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from loadfactor.interfaces.server.guard import RefusedError
from loadfactor.interfaces.server.intake import describe_body, read_body
from loadfactor.interfaces.server.served import Served, describe_errors
from loadfactor.sources.progress_records.records import check_lines

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
