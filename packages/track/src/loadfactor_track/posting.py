"""One body of records on its way to a server. It loads the HTTP client, for which only the thread that sends has to wait."""

from __future__ import annotations

import http.client
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from .units import BYTES_PER_MIB

PATH: Final = "/api/v1/progress"
TIMEOUT_S: Final = 10.0


class ServerAnswer(NamedTuple):
    """What a server said: its status and text."""

    status: int
    text: str


def post_records(url: str, token: str, body: bytes) -> ServerAnswer:
    """Send records. Raises OSError where nobody answers in time, or what answers speaks no HTTP, or the address is none."""
    headers = {"Content-Type": "application/x-ndjson"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        address = urlsplit(url)
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        connection = kind(address.hostname or "", address.port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", f"{address.path}{PATH}", body, headers)
            answer = connection.getresponse()
            return ServerAnswer(answer.status, answer.read(BYTES_PER_MIB).decode(errors="replace").strip())
        finally:
            connection.close()
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(str(error)) from error
