"""Asking an HTTP server once: one short connection a request, so that thousands of servers are asked at little cost.

A client with a pool of connections looks through all of them for every request; here a request is a connection, what is sent and
the bytes that follow, bounded in size and in time.
"""

import asyncio
import contextlib
import os
import ssl
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

from httptools import HttpParserError, HttpResponseParser

from loadfactor.base.errors import InputError
from loadfactor.base.units import BYTES_PER_KIB, BYTES_PER_MIB, MS_PER_S
from loadfactor.collect.fetch_errors import FetchError, LateError, TooMuchError
from loadfactor.collect.http_connection import PIECE_BYTES, HttpProxy, connect, write_address
from loadfactor.collect.lanes import Lane

LONG_BYTES: Final = 256 * BYTES_PER_KIB
"""An answer of more than this is received in turn. The page of 64 GPUs is some 150 KiB, packed 10."""
GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
"""What zlib calls gzip."""
_PAUSE_S: Final = 5 / MS_PER_S
"""After each piece of a long answer, for everybody else: servers that never end would take all there is."""
_UNPACKED_BYTES: Final = 512 * BYTES_PER_KIB
"""So much is unpacked between two pauses."""
_LONGEST_HEAD_BYTES: Final = 64 * BYTES_PER_KIB
_LONGEST_ERROR_BYTES: Final = 64 * BYTES_PER_KIB
_LONGEST_BLANK_BYTES: Final = 100


@dataclass(frozen=True)
class HttpRequest:
    """What is sent, and where: `path` begins with a slash, `tls` is None where the server has none.

    A request with `content` is a POST, another a GET.
    """

    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    proxy: HttpProxy | None = None

    @property
    def address(self) -> str:
        """Host and port, as people write them."""
        return write_address(self.host, self.port)

    def pack(self) -> bytes:
        """The bytes of it."""
        is_forwarded = self.proxy is not None and self.tls is None
        place = f"http://{self.address}{self.path}" if is_forwarded else self.path
        lines = [f"{'GET' if self.content is None else 'POST'} {place} HTTP/1.1", f"Host: {self.address}"]
        lines += ["Accept-Encoding: gzip", "User-Agent: loadfactor", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if is_forwarded and self.proxy and self.proxy.authorization:
            lines.append(f"Proxy-Authorization: {self.proxy.authorization}")
        if self.content is not None:
            lines.append(f"Content-Length: {len(self.content)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + (self.content or b"")


@dataclass(frozen=True)
class FetchBounds:
    """What is taken of an answer: so many bytes, in so many seconds in all, of which so many may pass without a byte.

    `begins`: what a good answer begins with, but for blanks; of others, and of errors, only some is read. `unpacks`: whether the
    content is unpacked as it comes, or left as it was packed.
    """

    largest_bytes: int
    timeout_s: float
    silence_s: float
    begins: bytes = b""
    unpacks: bool = False


@dataclass(frozen=True)
class HttpAnswer:
    """An answer as it came, and from when to when by our clock; of an error, its beginning. Names of headers are in lower case."""

    status: int
    headers: Mapping[bytes, bytes]
    content: bytes
    is_gzip: bool
    at_s: float
    end_s: float

    @property
    def date(self) -> str:
        """The header Date; empty where there is none."""
        return self.headers.get(b"date", b"").decode(errors="replace")


def read_token(file: Path | None, whose: str = "") -> dict[str, str]:
    """The header with the token in a file; read for each request, so that it may be renewed. Raises InputError."""
    if file is None:
        return {}
    try:
        return {"Authorization": f"Bearer {file.read_text().strip()}"}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the token{whose and f' of {whose}'} cannot be read: {error}") from error


async def fetch(request: HttpRequest, bounds: FetchBounds, lane: Lane) -> HttpAnswer:
    """The answer to a request, whatever its status. A long one is received in a turn of the lane.

    Raises FetchError, in a few words; TooMuchError and LateError where it passes the bounds.
    """
    deadline = _Deadline(bounds)
    try:
        async with deadline.timeout:
            return await _fetch(request, bounds, lane, deadline)
    except TimeoutError:
        raise LateError(f"no answer within {deadline.said_s:g} s") from None
    except ssl.SSLError as error:
        raise FetchError(f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}") from error
    except OSError as error:  # also of names that are not found
        said = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        raise FetchError(said.lower()) from error
    except HttpParserError as error:
        raise FetchError("its answer is no HTTP") from error
    except UnicodeError as error:
        raise FetchError(f"{request.host} is no name of a host") from error


async def _fetch(request: HttpRequest, bounds: FetchBounds, lane: Lane, deadline: "_Deadline") -> HttpAnswer:
    at_s = time.time()
    reader, writer = await connect(request.host, request.port, request.tls, request.proxy, lane.lookups)
    try:
        writer.write(request.pack())
        answer = _Answer(bounds)
        parser = HttpResponseParser(answer)
        has_turn = False
        async with contextlib.AsyncExitStack() as turn:
            while not answer.is_complete and (piece := await reader.read(PIECE_BYTES)):
                deadline.hear()
                parser.feed_data(piece)
                answer.see(parser.get_status_code(), len(piece))
                while answer.take():
                    if not answer.is_long:
                        continue
                    if not has_turn:
                        deadline.wait()
                        await turn.enter_async_context(lane.long_turns)
                        has_turn = True
                    else:
                        await asyncio.sleep(_PAUSE_S)
                    deadline.hear()
                if answer.is_enough:
                    break
        return answer.finish(at_s)
    finally:
        writer.transport.abort()  # nothing is left to be sent, and a close of TLS would be waited for


class _Deadline:
    """When a server was silent for too long, or all of it took too long: one timer for both."""

    def __init__(self, bounds: FetchBounds) -> None:
        self._bounds = bounds
        now = asyncio.get_running_loop().time()
        self._end = now + bounds.timeout_s
        self.timeout = asyncio.timeout_at(min(self._end, now + bounds.silence_s))

    def hear(self) -> None:
        """Something came."""
        now = asyncio.get_running_loop().time()
        self.timeout.reschedule(min(self._end, now + self._bounds.silence_s))

    def wait(self) -> None:
        """What follows is not the server's fault."""
        self.timeout.reschedule(self._end)

    @property
    def said_s(self) -> float:
        """The bound that was passed, in seconds."""
        is_all = self.timeout.when() == self._end
        return self._bounds.timeout_s if is_all else self._bounds.silence_s


class _Answer:
    """An HTTP answer as it comes in. It does not know its parser: a page in a circle would stay in memory for a while."""

    def __init__(self, bounds: FetchBounds) -> None:
        self.content = bytearray()
        self.is_complete = False
        self._bounds = bounds
        self._status = 0
        self._received = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._has_head = False
        self._head_bytes = 0
        self._encoding = b"identity"
        self._unpacking = zlib.decompressobj(GZIP_WINDOW)

    def see(self, status: int, size: int) -> None:
        """So many bytes came. Raises FetchError where the head does not end."""
        self._status = status
        self._head_bytes += 0 if self._has_head else size
        if self._head_bytes > _LONGEST_HEAD_BYTES:
            raise FetchError("its answer has too long a head")

    def take(self) -> bool:
        """Add some of what came to `content`; whether there was something. Raises FetchError, also where it is too much."""
        if self._bounds.unpacks and self._encoding == b"gzip":
            try:
                found = self._unpacking.decompress(self._received, _UNPACKED_BYTES)
            except zlib.error as error:
                raise FetchError("its answer is not packed with gzip, though it says so") from error
            self._received = bytearray(self._unpacking.unconsumed_tail)
        else:
            found, self._received = bytes(self._received), bytearray()
        self.content += found
        if len(self.content) > self._bounds.largest_bytes:
            raise TooMuchError(f"its answer is larger than {self._bounds.largest_bytes // BYTES_PER_MIB} MiB")
        return bool(found) and not self.is_enough

    @property
    def is_long(self) -> bool:
        """Whether it is one of those that are received in turn."""
        return len(self.content) > LONG_BYTES

    @property
    def is_enough(self) -> bool:
        """Whether more of it need not be read."""
        begin = self.content[:_LONGEST_BLANK_BYTES].lstrip()
        is_good = self._status == HTTPStatus.OK and begin.startswith(self._bounds.begins)
        return not is_good and len(self.content) > _LONGEST_ERROR_BYTES

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of the parser."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Of the parser."""
        self._has_head = True
        self._encoding = self._headers.get(b"content-encoding", b"identity").strip().lower()

    def on_body(self, body: bytes) -> None:
        """Of the parser."""
        self._received += body

    def on_message_complete(self) -> None:
        """Of the parser."""
        self.is_complete = True

    def finish(self, at_s: float) -> HttpAnswer:
        """The whole of it. Raises FetchError where it was cut, or cannot be read."""
        has_length = (
            b"content-length" in self._headers or b"transfer-encoding" in self._headers
        )  # else it ends with the connection
        is_gzip = self._encoding == b"gzip"
        is_cut = not self.is_complete and has_length
        if is_gzip and self._bounds.unpacks:
            is_gzip, is_cut = False, is_cut or (bool(self.content) and not self._unpacking.eof)
        if not self._has_head or (is_cut and not self.is_enough):
            raise FetchError("the connection ended before its answer did")
        if self._encoding not in (b"identity", b"gzip"):
            said = self._encoding.decode(errors="replace")
            raise FetchError(f"its answer is packed with {said}, which it was not asked for")
        return HttpAnswer(self._status, self._headers, bytes(self.content), is_gzip, at_s, time.time())
