"""Asking an exporter for its page of metrics: one short connection each, so that thousands are asked at little cost.

An HTTP client with a pool of connections looks through all of them for every request; here a scrape is a connection, a request and
the bytes that follow, bounded in size and, by the caller, in time.
"""

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from httptools import HttpParserError, HttpResponseParser

from loadfactor.collect.prometheus_server import PAUSE_S, FetchError
from loadfactor.collect.scraped_page import LARGEST_PAGE_BYTES, unpack_gzip
from loadfactor.errors import InputError
from loadfactor.sources.prometheus.metrics_page import TargetLabels
from loadfactor.units import BYTES_PER_KIB, BYTES_PER_MIB

LONG_BYTES: Final = 256 * BYTES_PER_KIB
MOST_LONG: Final = 4
"""So many pages of more than `LONG_BYTES` are received at once; the page of 64 GPUs is some 150 KiB, packed 10."""
USUAL_PATH: Final = "/metrics"
_PIECE_BYTES: Final = 64 * BYTES_PER_KIB
_LONGEST_HEAD_BYTES: Final = 64 * BYTES_PER_KIB
_SAID_CHARACTERS: Final = 100
_ACCEPT: Final = "text/plain;version=0.0.4;q=1,*/*;q=0.1"

Acquire = Callable[[], contextlib.AbstractAsyncContextManager[object]]
"""A turn to receive a long page."""


@dataclass(frozen=True)
class Target:
    """An exporter: where it listens, what to ask it for, and what its rows are told of it. `path` begins with a slash."""

    host: str
    port: int
    path: str = USUAL_PATH
    is_tls: bool = False
    labels: TargetLabels = ()

    @property
    def address(self) -> str:
        """Host and port, as people write them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def name(self) -> str:
        """What to call it: where it listens, and its page where that is none of the usual name."""
        return self.address + (self.path if self.path != USUAL_PATH else "")

    @property
    def url(self) -> str:
        """Where its page is."""
        return f"{'https' if self.is_tls else 'http'}://{self.address}{self.path}"


@dataclass(frozen=True)
class ExporterAccess:
    """How the exporters of a group are asked. `tls` checks their certificates; None where none of them has one."""

    bearer_token_file: Path | None = None
    tls: ssl.SSLContext | None = None
    timeout_s: float = 10.0

    def read_token(self) -> str:
        """The token, empty where none is asked for; it is read each time, so that it may be renewed. Raises InputError."""
        if self.bearer_token_file is None:
            return ""
        try:
            return self.bearer_token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the token cannot be read: {error}") from error


@dataclass(frozen=True)
class ExporterAnswer:
    """A page as it came, from when to when by our clock, and the header Date; empty where it says none."""

    at_s: float
    end_s: float
    content: bytes
    is_gzip: bool
    date: str

    def unpack(self) -> bytes:
        """The text of the page. Raises SourceError."""
        return unpack_gzip(self.content) if self.is_gzip else self.content


async def fetch_page(target: Target, access: ExporterAccess, long_pages: Acquire) -> ExporterAnswer:
    """The page of an exporter. Raises FetchError, of a few words, also where it takes longer than `access` allows."""
    try:
        async with asyncio.timeout(access.timeout_s):
            return await _fetch(target, access, long_pages)
    except TimeoutError:
        raise FetchError(f"no answer within {access.timeout_s:g} s") from None
    except ssl.SSLError as error:
        raise FetchError(f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}") from error
    except OSError as error:  # also of names that are not found
        said = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise FetchError(said.lower()) from error
    except (HttpParserError, asyncio.IncompleteReadError) as error:
        raise FetchError("its answer is no HTTP") from error


async def _fetch(target: Target, access: ExporterAccess, long_pages: Acquire) -> ExporterAnswer:
    token = access.read_token()
    lines = [f"GET {target.path} HTTP/1.1", f"Host: {target.address}", f"Accept: {_ACCEPT}", "Accept-Encoding: gzip"]
    lines += ["User-Agent: loadfactor", "Connection: close", *([f"Authorization: Bearer {token}"] if token else [])]
    at_s = time.time()
    tls = access.tls if target.is_tls else None
    reader, writer = await asyncio.open_connection(target.host, target.port, ssl=tls, limit=_PIECE_BYTES)
    try:
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = _Answer()
        parser = HttpResponseParser(answer)
        async with contextlib.AsyncExitStack() as turn:
            async for piece in _receive(reader):
                before = len(answer.content)
                parser.feed_data(piece)
                answer.bound(len(piece))
                if before <= LONG_BYTES < len(answer.content):
                    await turn.enter_async_context(long_pages())
                elif before > LONG_BYTES:
                    await asyncio.sleep(PAUSE_S)
                if answer.is_complete:
                    break
        return answer.check(parser.get_status_code(), at_s)
    finally:
        writer.transport.abort()  # nothing is left to be sent, and a close of TLS would be waited for


async def _receive(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while piece := await reader.read(_PIECE_BYTES):
        yield piece


class _Answer:
    """An HTTP answer as it comes in. It does not know its parser: a page in a circle would stay in memory for a while."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.is_complete = False
        self._headers: dict[bytes, bytes] = {}
        self._has_head = False
        self._head_bytes = 0

    def bound(self, size: int) -> None:
        """So many bytes came. Raises FetchError where there are too many."""
        if not self._has_head:
            self._head_bytes += size
        if self._head_bytes > _LONGEST_HEAD_BYTES:
            raise FetchError("its answer has too long a head")
        if len(self.content) > LARGEST_PAGE_BYTES:
            raise FetchError(f"its page is larger than {LARGEST_PAGE_BYTES // BYTES_PER_MIB} MiB")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of the parser."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Of the parser."""
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """Of the parser."""
        self.content += body

    def on_message_complete(self) -> None:
        """Of the parser."""
        self.is_complete = True

    def check(self, status: int, at_s: float) -> ExporterAnswer:
        """The whole page. Raises FetchError where it is none."""
        headers = self._headers
        has_length = b"content-length" in headers or b"transfer-encoding" in headers  # else its end is the connection's
        if not self._has_head or (not self.is_complete and has_length):
            raise FetchError("the connection ended before its answer did")
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if status != HTTPStatus.OK:
            said = "" if encoding != b"identity" else self.content[:_SAID_CHARACTERS].decode(errors="replace")
            raise FetchError(" ".join(f"answered {status} {said}".split()))
        if encoding not in (b"identity", b"gzip"):
            raise FetchError(f"its page is packed with {encoding.decode(errors='replace')}, which it was not asked for")
        date = headers.get(b"date", b"").decode(errors="replace")
        return ExporterAnswer(at_s, time.time(), bytes(self.content), encoding == b"gzip", date)
