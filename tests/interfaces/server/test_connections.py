"""Connections before a request is there: heads, chunks and trailers without end, drips, idlers, and who is served beside them."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
import uvicorn
import uvloop
from tests.waiting import LONGEST_S, wait_until

from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.interfaces.server.connections import Connection, Waiting
from loadfactor.interfaces.server.guard import Bounds

HEAD = b"GET /a HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
MOST_BYTES = 8 * BYTES_PER_MIB
"""What the buffers of two sockets take at most, before a server that reads no more is noticed."""


async def read_all(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body, or without having read it; /long with an answer that fills every buffer."""
    if scope["path"] == "/unread":
        length = 0
    else:
        length, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            length, more = length + len(message["body"]), message["more_body"]
    body = b"x" * (64 * BYTES_PER_MIB) if scope["path"] == "/long" else str(length).encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]}
    )
    await send({"type": "http.response.body", "body": body})


@contextmanager
def served(bounds: Bounds) -> Iterator[tuple[int, Waiting]]:
    """A server on loopback: its port, and its connections."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
    waiting = Waiting(bounds, lambda _peer: False)
    config = uvicorn.Config(read_all, http=partial(Connection, waiting), log_config=None, lifespan="off")  # type: ignore[arg-type]
    server = uvicorn.Server(config)

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server._serve(sockets=[listening]))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield listening.getsockname()[1], waiting
    finally:
        server.should_exit = server.force_exit = True
        thread.join()


def connect(port: int, start: bytes = b"") -> socket.socket:
    """A connection on which this was sent."""
    there = socket.create_connection(("127.0.0.1", port), timeout=LONGEST_S)
    there.sendall(start)
    return there


def read_status(there: socket.socket) -> int | None:
    """The status of the answer; None where the connection was closed without one."""
    data = b""
    with suppress(ConnectionError):
        while b"\r\n\r\n" not in data and (piece := there.recv(65_536)):
            data += piece
    return int(data.split(b" ")[1]) if data else None


def ask(port: int) -> int | None:
    """The status of a whole request."""
    with connect(port, HEAD + b"\r\n") as there:
        return read_status(there)


def send_on(there: socket.socket, piece: bytes) -> int:
    """Send the same again and again until nobody takes it: so many bytes."""
    sent = 0
    with suppress(OSError):
        while sent < 4 * MOST_BYTES:
            sent += there.send(piece)
    return sent


@pytest.mark.parametrize(
    ("start", "piece", "statuses"),
    [
        (HEAD, b"a: b\r\n" * 40_000, {431, None}),
        (HEAD + b"a: ", b"b" * 65_536, {431, None}),
        (HEAD, b"b" * 65_536, {431, None}),
        (b"GET /", b"a" * 65_536, {414, None}),
        (b"", b"\r\n" * 30_000, {431, None}),
        (CHUNKED, b"0" * 65_536, {400, None}),
        (CHUNKED + b"1;", b"a" * 65_536, {400, None}),
        (CHUNKED + b"0\r\n", b"a: b\r\n" * 40_000, {431, None}),
        (CHUNKED + b"0\r\na: ", b"b" * 65_536, {400, 431, None}),
        (HEAD + b"\r\n", (HEAD + b"\r\n") * 1_000, {200, 429, None}),
    ],
    ids=["headers", "a value", "a name", "an address", "lines", "a size", "an extension", "trailers", "a trailer", "requests"],
)  # fmt: skip
def test_nothing_around_a_body_is_without_end(start: bytes, piece: bytes, statuses: set[int | None]) -> None:
    """What never ends is refused when it passes its bound, whatever it is, and the next one is served."""
    with served(Bounds()) as (port, waiting):
        with connect(port, start) as there:
            assert send_on(there, piece) < MOST_BYTES or start == HEAD + b"\r\n"
            assert read_status(there) in statuses
        assert ask(port) == 200
        assert len(waiting.open) <= 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (HEAD + b"a: b\r\n" * 99 + b"\r\n", 200),
        (HEAD + b"a: b\r\n" * 100 + b"\r\n", 431),
        (HEAD + b"a: " + b"b" * 32_000 + b"\r\n\r\n", 200),
        (HEAD + b"a: " + b"b" * 33_000 + b"\r\n\r\n", 431),
        (CHUNKED + b"1;a=b\r\nx\r\n" * 20_000 + b"0\r\nc: d\r\n\r\n", 200),
        (CHUNKED + b"z\r\n", 400),
        (b"\x16\x03\x01\x02\x00", 400),
    ],
)
def test_what_is_too_much_is_refused_by_a_status(sent: bytes, status: int) -> None:
    """100 headers, 32 KiB of them; chunks may be small and many."""
    with served(Bounds()) as (port, _), connect(port, sent) as there:
        assert read_status(there) == status


def test_a_head_has_its_time() -> None:
    """A head that drips is refused when its time is over; who sends nothing is left, before a first request and after one."""
    with served(Bounds(head_s=0.4)) as (port, waiting):
        drips, silent, second = connect(port, HEAD), connect(port), connect(port, HEAD + b"\r\n")
        unread = connect(port, CHUNKED.replace(b"/a", b"/unread"))
        assert (read_status(second), read_status(unread)) == (200, 200)
        second.sendall(b"GET")
        began = time.monotonic()
        with suppress(OSError):
            while time.monotonic() - began < 0.9:
                drips.sendall(b"a")
                second.sendall(b"a")
                unread.sendall(b"1\r\na\r\n")
                time.sleep(0.05)
        assert (read_status(drips), read_status(second), read_status(silent), read_status(unread)) == (
            408,
            400,
            None,
            None,
        )
        wait_until(lambda: not waiting.open)


def test_who_asks_is_served_beside_thousands_who_do_not() -> None:
    """Of 2,000 half a head of which is there the oldest give way; every request beside them is answered."""
    with served(Bounds(connections=300, waiting_of_peer=200)) as (port, waiting):
        idle = []
        for n in range(2_000):
            idle.append(connect(port, HEAD))
            if n % 100 == 0:
                assert ask(port) == 200
        assert len(waiting.open) <= 201
        for there in idle:
            there.close()


def test_connections_that_are_served_are_never_closed_for_others() -> None:
    """Where every place is taken by a request that is served, the next connection is refused with 503."""
    with served(Bounds(connections=2)) as (port, waiting):
        busy = [connect(port, CHUNKED) for _ in range(2)]
        wait_until(lambda: len(waiting.open) == 2 and not any(there.cycle_is_over for there in waiting.open.copy()))
        assert ask(port) == 503
        for there in busy:
            there.sendall(b"0\r\n\r\n")
            assert read_status(there) == 200
        assert ask(port) == 200


def test_an_answer_that_nobody_reads_is_given_up() -> None:
    """Who asks for much and reads nothing holds neither memory nor a place."""
    start = HEAD.replace(b"/a", b"/long") + b"\r\n"
    with served(Bounds(unread_s=0.3)) as (port, waiting), connect(port, start) as there:
        assert there.recv(9) == b"HTTP/1.1 "
        wait_until(lambda: not waiting.open)


def test_a_refusal_is_one_line() -> None:
    """Of JSON, as every other one."""
    with served(Bounds()) as (port, _), connect(port, b"hello\r\n\r\n") as there:
        said = b"".join(iter(lambda: there.recv(1000), b""))
    assert json.loads(said.partition(b"\r\n\r\n")[2]) == {"error": "this is no request of HTTP; speak HTTP/1.1"}
