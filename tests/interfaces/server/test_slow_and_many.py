"""Clients that send slowly or ask all at once are refused, and hold nobody else up."""

import asyncio
import json
import threading
from typing import Any

import pytest
from tests.interfaces.server.conftest import Remembering

from loadfactor.base.errors import BusyError
from loadfactor.books.books import Books
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.gate import Gate
from loadfactor.interfaces.server.guard import Bounds, Guard
from loadfactor.interfaces.server.replies import QuestionPool
from loadfactor.store.tokens import TokenFile

HEADERS = [(b"host", b"localhost"), (b"content-encoding", b"snappy")]


def make(books: Books, bounds: Bounds) -> tuple[Gate, Remembering]:
    """A server, and its receiver."""
    receiver = Remembering()
    return make_app(books, receiver, Guard(TokenFile(books.store.folder)), bounds), receiver


async def send_write(app: Gate, pieces: list[dict[str, Any]]) -> tuple[int, str]:
    """Send a write in these pieces, then nothing more: the status and the content of the answer."""
    sent: list[dict[str, Any]] = []
    left = iter(pieces)

    async def receive() -> dict[str, Any]:
        for piece in left:
            return piece
        await asyncio.sleep(3600)
        return {}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/api/v1/write", "query_string": b"", "headers": HEADERS,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1), "scheme": "http", "root_path": "",
    }  # fmt: skip
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:]).decode()


def test_a_body_that_does_not_come_is_given_up(empty: Books) -> None:
    """A client that stops in the middle of its body is refused when its time is over, and nothing is received."""
    app, receiver = make(empty, Bounds(write_s=0.05))
    status, said = asyncio.run(send_write(app, [{"type": "http.request", "body": b"ha", "more_body": True}]))
    assert (status, list(json.loads(said)), receiver.bodies) == (408, ["error"], [])


def test_a_body_that_breaks_off_is_not_received(empty: Books) -> None:
    """A client that leaves in the middle of its body leaves nothing behind."""
    app, receiver = make(empty, Bounds())
    left = [{"type": "http.request", "body": b"ha", "more_body": True}, {"type": "http.disconnect"}]
    asyncio.run(send_write(app, left))
    assert receiver.bodies == []


def test_more_requests_at_once_than_may_are_refused(empty: Books) -> None:
    """Beyond the bound of requests at once the next one is told to come back."""

    async def both() -> tuple[int, int]:
        app, _ = make(empty, Bounds(in_flight=1, write_s=0.2))
        first = asyncio.create_task(send_write(app, []))
        await asyncio.sleep(0.05)
        second, _ = await send_write(app, [])
        return (await first)[0], second

    assert asyncio.run(both()) == (408, 429)


def test_more_questions_than_may_wait_are_refused() -> None:
    """Questions beyond those worked on and waiting are refused at once; when one is done, the next is taken."""

    async def ask() -> list[object]:
        pool, go = QuestionPool(1, 1, 2), threading.Event()
        asked = [asyncio.create_task(pool.ask(go.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await pool.ask(lambda: True)
        go.set()
        answers = [await each for each in asked]
        await asyncio.sleep(0)
        return [*answers, await pool.ask(lambda: "next")]

    assert asyncio.run(ask()) == [True, True, "next"]
