"""Asking one exporter: what it answers, how it fails, and that neither size nor time is without bound."""

import asyncio
import gzip
import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.up_process import free_port

from loadfactor.base.errors import InputError, SourceError
from loadfactor.collect.exporters import Target, fetch_page
from loadfactor.collect.http_fetch import FetchError, HttpAnswer, RequestPool
from loadfactor.collect.payloads import LARGEST_PAGE_BYTES, pack_page, unpack_gzip, unpack_page

OK = b"HTTP/1.1 200 OK\r\n"


def ask(target: Target, token_file: Path | None = None) -> HttpAnswer:
    """Its page."""

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
    timeout_s: float = 5.0,
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
                await asyncio.sleep(60)
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
        found = ask(Target("127.0.0.1", exporter.port))
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
            ask(Target("127.0.0.1", exporter.port), file)
            assert exporter.asked[-1]["authorization"] == f"Bearer {token}"
        file.unlink()
        with pytest.raises(InputError, match="token cannot be read"):
            ask(Target("127.0.0.1", exporter.port), file)


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
    assert time.monotonic() - began < 10


def test_nobody_there() -> None:
    """A port that is closed, and a host that nobody knows."""
    with pytest.raises(FetchError, match="connection refused"):
        ask(Target("127.0.0.1", free_port()))
    with pytest.raises(FetchError, match=r"not known|temporary failure|no address"):
        ask(Target("no-such-host.invalid", 9400))


def test_certificates_are_checked(certificate: tuple[Path, Path]) -> None:
    """With the certificates of ca_file it answers; without them nothing is sent to it."""
    cert, key = certificate
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    page = OK + b"Content-Length: 4\r\n\r\na 1\n"

    assert answer(page, tls=tls, trusts=ssl.create_default_context(cafile=cert)).content == b"a 1\n"
    with pytest.raises(FetchError, match=r"TLS: self.signed certificate"):
        answer(page, tls=tls, trusts=ssl.create_default_context())
