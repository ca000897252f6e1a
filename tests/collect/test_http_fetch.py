"""Requests to any HTTP server and to one exporter: what is sent, what is taken of an answer, and bounds of size and time."""

import asyncio
import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.collect.raw_server import OK, Handler, send, serve
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.up_process import free_port
from tests.waiting import LONGEST_S

from loadfactor.base.errors import InputError, LoadfactorError, SourceError
from loadfactor.collect import http_fetch
from loadfactor.collect.exporters import Target, fetch_page
from loadfactor.collect.http_fetch import (
    LONG_BYTES,
    MOST_LONG,
    MOST_LOOKUPS,
    FetchBounds,
    FetchError,
    HttpAnswer,
    HttpProxy,
    HttpRequest,
    LateError,
    RequestPool,
    TooMuchError,
    fetch,
)
from loadfactor.collect.payloads import LARGEST_PAGE_BYTES, pack_page, unpack_gzip, unpack_page
from loadfactor.collect.prometheus_server import PrometheusServer, fetch_answer

JSON = b'{"status":"success"}'
BOUNDS = FetchBounds(1 << 20, LONGEST_S, LONGEST_S, begins=b"{", unpacks=True)


def ask(handler: Handler, bounds: FetchBounds = BOUNDS) -> HttpAnswer:
    """The answer of a server."""

    async def run() -> HttpAnswer:
        return await fetch(HttpRequest("127.0.0.1", await serve(handler), "/"), bounds, RequestPool())

    return asyncio.run(run())


def pack(content: bytes) -> bytes:
    """An answer packed with gzip."""
    packed = gzip.compress(content)
    return OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed


def test_what_is_sent_to_prometheus(tmp_path: Path) -> None:
    """The query as a form, with a token from its file, or a name and a password from the address."""
    asked: list[bytes] = []

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        asked.append(head + await reader.readexactly(size))
        writer.write(pack(JSON))

    async def run(*servers: tuple[str, Path | None]) -> None:
        port = await serve(handler)
        for url, file in servers:
            server = PrometheusServer("a", url.format(port), file)
            answer = await fetch_answer(server, {"query": '{a="b c+ü"}[60ms]', "time": "1.5"})
            assert answer.content == JSON

    file = tmp_path / "token"
    file.write_text("secret\n")
    asyncio.run(run(("http://127.0.0.1:{}/pro xy/", file), ("http://me:p%40ss@localhost:{}", None)))
    first, second = asked
    assert first.startswith(b"POST /pro%20xy/api/v1/query HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer secret\r\n" in first
    assert first.endswith(b"\r\n\r\nquery=%7Ba%3D%22b%20c%2B%C3%BC%22%7D%5B60ms%5D&time=1.5")
    assert b"\r\nAuthorization: Basic bWU6cEBzcw==\r\n" in second


@pytest.mark.parametrize("url", ["http://[::1/", "http://a:99999", "http://:9090"])
def test_what_is_no_address(url: str) -> None:
    """It is the user's mistake, in one line."""
    with pytest.raises(InputError, match="the address of a "):
        PrometheusServer("a", url).write_query({})


def test_an_answer_is_unpacked_as_it_comes() -> None:
    """Packed answers come out as they were, of any size within the bounds."""
    content = b"{" + bytes(900_000)
    assert ask(send(pack(content))).content == content
    assert ask(send(pack(JSON)), replace(BOUNDS, unpacks=False)).is_gzip


@pytest.mark.parametrize(
    ("pieces", "kind", "said"),
    [
        ((pack(b"{" + bytes(100 << 20)),), TooMuchError, "larger than 1 MiB"),
        ((OK + b"\r\n{", *(b"[" * 65_536,) * 40), TooMuchError, "larger than 1 MiB"),
        ((pack(b"{" + bytes(500))[:-9],), FetchError, "ended before"),
        ((OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",), FetchError, "not packed with gzip"),
    ],
)
def test_answers_that_are_refused(pieces: tuple[bytes, ...], kind: type[FetchError], said: str) -> None:
    """Too large, packed or not; cut; not packed."""
    with pytest.raises(kind, match=said):
        ask(send(*pieces))


@pytest.mark.parametrize("head", [OK, b"HTTP/1.1 500 Oh\r\n"])
def test_only_the_beginning_of_an_error_is_read(head: bytes) -> None:
    """One that goes on for ever is left, whatever its status says."""
    answer = ask(send(head + b"\r\n", *(b"<html>" * 20_000,) * 20, ends=False), replace(BOUNDS, begins=b"{"))
    assert answer.status in (200, 500)
    assert answer.content.startswith(b"<html><html>")
    assert len(answer.content) < LONG_BYTES


def test_silence_and_the_whole_time_are_bounded() -> None:
    """A server that says nothing is left at one time, one that says something again and again at another."""
    with pytest.raises(LateError, match=r"no answer within 0\.2 s"):
        ask(send(OK + b"\r\n{", ends=False), replace(BOUNDS, silence_s=0.2))

    async def drip(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"\r\n")
        while True:
            writer.write(b"{")
            await writer.drain()
            await asyncio.sleep(0.01)

    with pytest.raises(LateError, match=r"no answer within 0\.3 s"):
        ask(drip, replace(BOUNDS, timeout_s=0.3))


def test_long_answers_take_turns() -> None:
    """While as many as may are received, a further long one waits, and a short one does not."""

    async def run() -> None:
        pool = RequestPool()
        short = HttpRequest("127.0.0.1", await serve(send(pack(JSON))), "/")
        long = HttpRequest("127.0.0.1", await serve(send(pack(b"{" + bytes(2 * LONG_BYTES)))), "/")
        for _ in range(MOST_LONG):
            await pool.long_turns.acquire()
        waits = asyncio.create_task(fetch(long, BOUNDS, pool))
        while not pool.long_turns._waiters:
            await asyncio.sleep(0.01)
        assert (await fetch(short, BOUNDS, pool)).content == JSON
        assert not waits.done()
        pool.long_turns.release()
        assert len((await waits).content) == 2 * LONG_BYTES + 1

    asyncio.run(run())


def test_names_that_nobody_answers_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of them are looked up, a server of another pool is asked."""
    answered = threading.Event()
    usual = socket.getaddrinfo

    def look_up(host: str, *rest: Any, **named: Any) -> Any:
        if not host.startswith("dead"):
            return usual("127.0.0.1", *rest, **named)
        assert answered.wait(LONGEST_S)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    async def run() -> None:
        doubtful, answering = RequestPool(), RequestPool()
        port = await serve(send(pack(JSON)))
        dead = [
            asyncio.create_task(fetch(HttpRequest(f"dead{number}", port, "/"), BOUNDS, doubtful))
            for number in range(2 * MOST_LOOKUPS)
        ]
        alive = await fetch(HttpRequest("alive", port, "/"), BOUNDS, answering)
        assert alive.content == JSON
        assert not any(task.done() for task in dead)
        answered.set()
        for failure in await asyncio.gather(*dead, return_exceptions=True):
            assert isinstance(failure, FetchError)
            assert str(failure) == "temporary failure in name resolution"
        assert (await fetch(HttpRequest("alive", port, "/"), BOUNDS, doubtful)).content == JSON

    asyncio.run(run())


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_through_a_proxy(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Requests without TLS are handed to it, those with TLS go through a tunnel; one that refuses is said."""
    cert, key = certificate
    server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_tls.load_cert_chain(cert, key)
    heads: list[bytes] = []
    content = b"{" + bytes(900_000)

    async def run() -> None:
        end = await serve(send(pack(content)), server_tls)

        async def proxy(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append(head)
            if not head.startswith(b"CONNECT"):
                writer.write(pack(JSON))
                return
            there, back = await asyncio.open_connection("127.0.0.1", end)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))

        by = HttpProxy("127.0.0.1", await serve(proxy), "Basic abc")
        plain = HttpRequest("prometheus.example", 9090, "/a", proxy=by)
        assert (await fetch(plain, BOUNDS, RequestPool())).content == JSON
        tunnel = HttpRequest("127.0.0.1", end, "/a", ssl.create_default_context(cafile=cert), proxy=by)
        assert (await fetch(tunnel, BOUNDS, RequestPool())).content == content
        no = HttpProxy("127.0.0.1", await serve(send(b"HTTP/1.1 407 Say who\r\n\r\n")))
        with pytest.raises(FetchError, match="the proxy answered 407"):
            await fetch(replace(tunnel, proxy=no), BOUNDS, RequestPool())

    monkeypatch.setattr(http_fetch, "LONG_BYTES", 1 << 30)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())
    assert heads[0].startswith(b"GET http://prometheus.example:9090/a HTTP/1.1\r\nHost: prometheus.example:9090\r\n")
    assert heads[1].startswith(b"CONNECT 127.0.0.1:")
    assert all(b"\r\nProxy-Authorization: Basic abc\r\n" in head for head in heads)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    writer.close()


def test_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used for what it is named for, and never for this machine itself."""
    monkeypatch.setenv("https_proxy", "http://me:pass@proxy.example:3128")
    monkeypatch.setenv("http_proxy", "socks5://proxy.example")
    monkeypatch.setenv("no_proxy", "inside.example")

    def find(url: str) -> HttpProxy | None:
        return PrometheusServer("a", url).write_query({}).proxy

    assert find("https://prometheus.example") == HttpProxy("proxy.example", 3128, "Basic bWU6cGFzcw==")
    for url in ("https://inside.example", "http://localhost:9090", "http://127.0.0.1:9090", "http://[::1]:9090"):
        assert find(url) is None
    with pytest.raises(LoadfactorError, match="the proxy that the environment names for http is none of"):
        find("http://prometheus.example")


def ask_exporter(target: Target, token_file: Path | None = None) -> HttpAnswer:

    async def fetch() -> HttpAnswer:
        return await fetch_page(target, RequestPool(), token_file=token_file)

    return asyncio.run(fetch())


def read(found: HttpAnswer) -> bytes:
    """The text of a page."""
    return unpack_gzip(found.content) if found.is_gzip else found.content


def answer(
    *pieces: bytes,
    tls: ssl.SSLContext | None = None,
    trusts: ssl.SSLContext | None = None,
    timeout_s: float = LONGEST_S,
    ends: bool = True,
) -> HttpAnswer:
    """The page of a server that sends these bytes, whatever it is asked, and ends or waits."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if not ends:
                await asyncio.sleep(3600)
            writer.close()

    async def fetch() -> HttpAnswer:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
        target = Target("127.0.0.1", server.sockets[0].getsockname()[1], is_tls=tls is not None)
        try:
            return await fetch_page(target, RequestPool(), timeout_s, tls=trusts)
        finally:
            server.close()

    return asyncio.run(fetch())


@pytest.mark.parametrize("packs", [False, True])
def test_a_page_as_the_exporter_sends_it(packs: bool) -> None:
    """It is kept as it was sent, packed or not, and comes out of a payload as it was served."""
    with FakeDcgmExporter(FleetTruth(gpus=8), packs=packs, clock=lambda: 1_772_409_700.0) as exporter:
        found = ask_exporter(Target("127.0.0.1", exporter.port))
        assert found.is_gzip is packs
        payload = pack_page(5, (("job", "a"),), found.content, found.is_gzip)
        page = unpack_page(payload)
    assert (page.at_ms, page.target) == (5, (("job", "a"),))
    assert page.page == read(found)
    assert page.page.count(b"DCGM_FI_DEV_GPU_UTIL{") == 8
    assert len(payload) < len(page.page) / 3
    asked = exporter.asked[0]
    assert (asked["accept-encoding"], asked["host"]) == ("gzip", exporter.address)
    assert "authorization" not in asked


def test_a_token_is_read_each_time(tmp_path: Path) -> None:
    """It may be renewed while the server runs; one that cannot be read is said."""
    file = tmp_path / "token"
    with FakeDcgmExporter(FleetTruth(gpus=1)) as exporter:
        for token in ("first", "second"):
            file.write_text(f"{token}\n")
            ask_exporter(Target("127.0.0.1", exporter.port), file)
            assert exporter.asked[-1]["authorization"] == f"Bearer {token}"
        file.unlink()
        with pytest.raises(InputError, match="token cannot be read"):
            ask_exporter(Target("127.0.0.1", exporter.port), file)


@pytest.mark.parametrize(
    ("pieces", "page"),
    [
        ((OK + b"Content-Length: 4\r\n\r\n", b"a 1\n"), b"a 1\n"),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\na \r\n", b"2\r\n1\n\r\n0\r\n\r\n"), b"a 1\n"),
        ((b"HTTP/1.0 200 OK\r\n\r\n", b"a 1\n"), b"a 1\n"),
        ((OK + b"content-encoding: GZIP\r\nContent-Length: 24\r\n\r\n", gzip.compress(b"a 1\n", mtime=0)), b"a 1\n"),
    ],
)
def test_ways_to_send_a_page(pieces: tuple[bytes, ...], page: bytes) -> None:
    """With its length, in chunks, up to the end of the connection, packed."""
    assert read(answer(*pieces)) == page


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ((OK + b"Content-Length: 9\r\n\r\na 1\n",), "ended before"),
        ((OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\na ",), "ended before"),
        ((OK,), "ended before"),
        ((), "ended before"),
        ((b"SSH-2.0-OpenSSH\r\n",), "no HTTP"),
        ((b"HTTP/1.1 403 Forbidden\r\nContent-Length: 8\r\n\r\nnot\nyou\n",), "answered 403 not you"),
        ((b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",), "answered 302"),
        ((OK + b"Content-Encoding: br\r\nContent-Length: 1\r\n\r\nx",), "packed with br"),
        ((OK + b"X: " + b"y" * 200_000 + b"\r\n",) * 2, "(no HTTP|long a head)"),
        ((OK + b"Content-Length: 99999999999\r\n\r\n", *(b"# " * (1 << 19),) * 20), "larger than 16 MiB"),
    ],
)
def test_what_is_no_answer(pieces: tuple[bytes, ...], said: str) -> None:
    """It is said in a few words; no redirect is followed, and no page is read without bound."""
    with pytest.raises(FetchError, match=said):
        answer(*pieces)


@pytest.mark.long
def test_a_bomb_is_not_unpacked() -> None:
    """A page that is small packed and enormous unpacked is refused before it takes memory."""
    bomb = gzip.compress(bytes(20 * LARGEST_PAGE_BYTES))
    with pytest.raises(SourceError, match="larger than 16 MiB"):
        unpack_page(pack_page(0, (), bomb, is_gzip=True))
    with pytest.raises(SourceError, match="cut off"):
        unpack_page(pack_page(0, (), gzip.compress(b"a 1\n" * 1000)[:-9], is_gzip=True))
    with pytest.raises(SourceError, match="not packed with gzip"):
        unpack_page(pack_page(0, (), b"a 1\n", is_gzip=True))


@pytest.mark.parametrize("pieces", [(), (OK + b"Content-Length: 9\r\n\r\n", b"a")])
def test_one_that_never_ends(pieces: tuple[bytes, ...]) -> None:
    """It is left at its time."""
    began = time.monotonic()
    with pytest.raises(FetchError, match=r"no answer within 0.3 s"):
        answer(*pieces, ends=False, timeout_s=0.3)
    assert time.monotonic() - began < LONGEST_S


def test_nobody_there() -> None:
    """A port that is closed, and a host that nobody knows."""
    with pytest.raises(FetchError, match="connection refused"):
        ask_exporter(Target("127.0.0.1", free_port()))
    with pytest.raises(FetchError, match=r"not known|temporary failure|no address"):
        ask_exporter(Target("no-such-host.invalid", 9400))


def test_certificates_are_checked(certificate: tuple[Path, Path]) -> None:
    """With the certificates of ca_file it answers; without them nothing is sent to it."""
    cert, key = certificate
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    page = OK + b"Content-Length: 4\r\n\r\na 1\n"

    assert answer(page, tls=tls, trusts=ssl.create_default_context(cafile=cert)).content == b"a 1\n"
    with pytest.raises(FetchError, match=r"TLS: self.signed certificate"):
        answer(page, tls=tls, trusts=ssl.create_default_context())
