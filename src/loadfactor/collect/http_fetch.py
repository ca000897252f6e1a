"""Single HTTP requests, each on a short connection of its own, so that thousands of servers are polled at little cost.

A client with a pool of connections looks through all of them for every request; here a request is a connection, what is sent and
the bytes that follow, bounded in size and in time.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import time
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from threading import Thread
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from httptools import HttpParserError, HttpResponseParser

from loadfactor.base.errors import InputError, LoadfactorError, say_why
from loadfactor.base.units import BYTES_PER_KIB, BYTES_PER_MIB, MS_PER_S

MOST_ANSWERING: Final = 500
MOST_DOUBTFUL: Final = 500
"""So many servers are polled at once: those that answered the last request, and those that did not or are new."""
MOST_LONG: Final = 4
"""So many of a pool receive a long answer at once."""


class RequestPool:
    """Turns to ask, and among those that have one, to look a name up and to receive a long answer."""

    def __init__(self, most: int = 1) -> None:
        self.turns = asyncio.Semaphore(most)
        self.long_turns = asyncio.Semaphore(MOST_LONG)
        self.lookups = NameLookups()


class RequestPools:
    """The pools that all requests share: servers that do not answer wait among themselves, so that no other waits for them."""

    def __init__(self) -> None:
        self._answering = RequestPool(MOST_ANSWERING)
        self._doubtful = RequestPool(MOST_DOUBTFUL)

    def choose(self, answers: bool) -> RequestPool:
        """The pool of a server that answered the last request, or of one that did not."""
        return self._answering if answers else self._doubtful


class FetchError(LoadfactorError):
    """A server could not be reached, or its answer is not what was requested."""


class TooMuchError(FetchError):
    """The answer would be larger than the server or we allow."""


class LateError(FetchError):
    """The answer did not come in time."""


PIECE_BYTES: Final = 64 * BYTES_PER_KIB
"""Read at once."""
MOST_LOOKUPS: Final = 48
_PROXY_PORT: Final = 80

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class NameLookups:
    """Looks names up in threads of its own, so many at once: names that DNS does not answer for delay only each other.

    The threads of the event loop are few, and one lookup may take half a minute.
    """

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(MOST_LOOKUPS)

    async def find(self, host: str, port: int) -> list[str]:
        """The addresses of a name, best first. Raises OSError or UnicodeError where there are none."""
        await self._turns.acquire()
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def end(addresses: list[str], error: Exception | None) -> None:
            self._turns.release()
            if not found.done():  # nobody may wait for it any more
                found.set_exception(error) if error else found.set_result(addresses)

        def look_up() -> None:
            addresses: list[str] = []
            error: Exception | None = None
            try:
                entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                addresses = list(dict.fromkeys(str(entry[4][0]) for entry in entries))
            except (OSError, UnicodeError) as failure:
                error = failure
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(end, addresses, error)

        Thread(target=look_up, name="look up", daemon=True).start()
        return await found


@dataclass(frozen=True)
class HttpProxy:
    """A proxy, and the header that it asks for; empty where it asks for none."""

    host: str
    port: int
    authorization: str = ""


def find_proxy(url: SplitResult) -> HttpProxy | None:
    """The proxy that the environment names for an address: HTTPS_PROXY, NO_PROXY, …; none for this machine itself.

    Raises InputError where it is no address of a proxy.
    """
    proxies, host = getproxies(), url.hostname or ""
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or host == "localhost" or host.startswith("127.") or host == "::1" or proxy_bypass(host):
        return None
    try:
        proxy = urlsplit(address if "://" in address else f"http://{address}")
        if proxy.scheme == "http" and proxy.hostname:
            return HttpProxy(proxy.hostname, proxy.port or _PROXY_PORT, write_basic(proxy))
    except ValueError:
        pass
    raise InputError(f"the proxy that the environment names for {url.scheme} is none of http://HOST:PORT")


def write_basic(url: SplitResult) -> str:
    """The header for the name and password in an address; empty where there are none."""
    if not url.username and not url.password:
        return ""
    login = f"{unquote(url.username or '')}:{unquote(url.password or '')}"
    return f"Basic {b64encode(login.encode()).decode()}"


def write_address(host: str, port: int) -> str:
    """Host and port, as people write them.

    >>> write_address("::1", 9400), write_address("gpu7", 9400)
    ('[::1]:9400', 'gpu7:9400')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def connect(request: "HttpRequest", lookups: NameLookups) -> Connection:
    """A connection to a server; with TLS through a tunnel where there is a proxy, else to the proxy itself.

    Raises OSError, UnicodeError for what is no name, and FetchError where a proxy refuses or the address may not be reached.
    """
    host, port, tls, proxy = request.host, request.port, request.tls, request.proxy
    if proxy is None:
        return await _open(host, port, tls, lookups, request.reaches_local)
    if not request.reaches_local and _is_address(host):  # what a name is, the proxy finds out
        _check_distant(host, [host])
    connection = await _open(proxy.host, proxy.port, None, lookups)
    if tls is not None:
        try:
            await _enter_tunnel(connection, write_address(host, port), proxy)
            await connection[1].start_tls(tls, server_hostname=host)
        except BaseException:
            connection[1].transport.abort()
            raise
    return connection


async def _open(
    host: str, port: int, tls: ssl.SSLContext | None, lookups: NameLookups, reaches_local: bool = True
) -> Connection:
    addresses = [host] if _is_address(host) else await lookups.find(host, port)
    if not reaches_local:
        addresses = _check_distant(host, addresses)
    for number, address in enumerate(addresses, 1):
        try:
            return await asyncio.open_connection(
                address, port, ssl=tls, server_hostname=host if tls else None, limit=PIECE_BYTES
            )
        except ssl.SSLError:
            raise
        except OSError:
            if number == len(addresses):
                raise
    raise OSError(f"{host} has no address")


METADATA: Final = ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16")
"""Where clouds tell an instance its secrets, beside the link-local address that most of them use."""


def is_local(address: str) -> bool:
    """Whether an address is of this machine or of its link, or nobody's: loopback, link-local, multicast, unspecified, metadata.

    >>> is_local("169.254.169.254"), is_local("::ffff:127.0.0.1"), is_local("10.0.0.7")
    (True, True, False)
    """
    found = ip_address(address)
    if isinstance(found, IPv6Address):
        found = found.ipv4_mapped or found.sixtofour or (found.teredo or (None, None))[1] or _read_nat64(found) or found
    return (
        found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified or str(found) in METADATA
        or (isinstance(found, IPv4Address) and found in _THIS_NETWORK)
    )  # fmt: skip


_THIS_NETWORK: Final = IPv4Network("0.0.0.0/8")
_NAT64: Final = IPv6Network("64:ff9b::/96")


def _read_nat64(address: IPv6Address) -> IPv4Address | None:
    return IPv4Address(int(address) & (2**32 - 1)) if address in _NAT64 else None


def _check_distant(host: str, addresses: Sequence[str]) -> list[str]:
    """The addresses that are not local, which alone are connected to. Raises FetchError where none is left."""
    distant = [address for address in addresses if not is_local(address)]
    if addresses and not distant:
        what = host if host == addresses[0] else f"{host} is {addresses[0]}, which"
        raise FetchError(f"{what} lies on this machine or its link; set allow_local = true if it may be reached")
    return distant


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):
            socket.inet_pton(family, host)
            return True
    return False


async def _enter_tunnel(connection: Connection, address: str, proxy: HttpProxy) -> None:
    reader, writer = connection
    lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
    lines += [f"Proxy-Authorization: {proxy.authorization}"] if proxy.authorization else []
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(None, 2)[1])
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError):
        raise FetchError("the proxy does not answer as one") from None
    if status != HTTPStatus.OK:
        raise FetchError(f"the proxy answered {status}")


LONG_BYTES: Final = 256 * BYTES_PER_KIB
"""An answer of more than this is received in turn. The page of 64 GPUs is some 150 KiB, packed 10."""
GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
"""The window size by which zlib knows gzip."""
_PAUSE_S: Final = 5 / MS_PER_S
"""After each piece of a long answer, for everybody else: servers that never end would take all there is."""
_UNPACKED_BYTES: Final = 512 * BYTES_PER_KIB
"""So much is unpacked between two pauses."""
_LONGEST_HEAD_BYTES: Final = 64 * BYTES_PER_KIB
_LONGEST_ERROR_BYTES: Final = 64 * BYTES_PER_KIB
_LONGEST_BLANK_BYTES: Final = 100


@dataclass(frozen=True)
class HttpRequest:
    """A request and its server: `path` begins with a slash, `tls` is None where the server has none.

    A request with `content` is a POST, another a GET. `reaches_local`: whether the server may be on this machine or its link; it
    is looked at after the name was looked up, and the address that was looked at is connected to.
    """

    host: str
    port: int
    path: str
    tls: ssl.SSLContext | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    proxy: HttpProxy | None = None
    reaches_local: bool = True

    @property
    def address(self) -> str:
        """Host and port, as people write them."""
        return write_address(self.host, self.port)

    def pack(self) -> bytes:
        """The bytes of it."""
        is_forwarded = self.proxy is not None and self.tls is None
        target = f"http://{self.address}{self.path}" if is_forwarded else self.path
        lines = [f"{'GET' if self.content is None else 'POST'} {target} HTTP/1.1", f"Host: {self.address}"]
        lines += ["Accept-Encoding: gzip", "User-Agent: loadfactor", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if is_forwarded and self.proxy and self.proxy.authorization:
            lines.append(f"Proxy-Authorization: {self.proxy.authorization}")
        if self.content is not None:
            lines.append(f"Content-Length: {len(self.content)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + (self.content or b"")


@dataclass(frozen=True)
class FetchBounds:
    """Bounds of an answer: so many bytes, in so many seconds in all, of which so many may pass without a byte.

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
        """The header Date: when it was by the server's own clock; empty where it has none."""
        return self.headers.get(b"date", b"").decode(errors="replace")


def read_token(file: Path | None, whose: str = "") -> dict[str, str]:
    """The header with the token in a file; read for each request, so that it may be renewed. Raises InputError."""
    if file is None:
        return {}
    try:
        return {"Authorization": f"Bearer {file.read_text().strip()}"}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the token{whose and f' of {whose}'} cannot be read: {error}") from error


async def fetch(request: HttpRequest, bounds: FetchBounds, pool: RequestPool) -> HttpAnswer:
    """The answer to a request, whatever its status. A long one is received in a turn of the pool.

    Raises FetchError, in a few words; TooMuchError and LateError where it passes the bounds.
    """
    deadline = _Deadline(bounds)
    try:
        async with deadline.timeout:
            return await _fetch(request, bounds, pool, deadline)
    except TimeoutError:
        raise LateError(f"no answer within {deadline.passed_s:g} s") from None
    except ssl.SSLError as error:
        raise FetchError(f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}") from error
    except OSError as error:  # also of names that are not found
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else say_why(error)
        raise FetchError(reason.lower()) from error
    except HttpParserError as error:
        raise FetchError("its answer is no HTTP") from error
    except UnicodeError as error:
        raise FetchError(f"{request.host} is no name of a host") from error


async def _fetch(request: HttpRequest, bounds: FetchBounds, pool: RequestPool, deadline: "_Deadline") -> HttpAnswer:
    at_s = time.time()
    reader, writer = await connect(request, pool.lookups)
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
                        await turn.enter_async_context(pool.long_turns)
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
        """Note that what follows is not the server's fault."""
        self.timeout.reschedule(self._end)

    @property
    def passed_s(self) -> float:
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
        begin = self.content[:_LONGEST_BLANK_BYTES].lstrip()
        is_good = self._status == HTTPStatus.OK and begin.startswith(self._bounds.begins)
        return not is_good and len(self.content) > _LONGEST_ERROR_BYTES

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._has_head = True
        self._encoding = self._headers.get(b"content-encoding", b"identity").strip().lower()

    def on_body(self, body: bytes) -> None:
        self._received += body

    def on_message_complete(self) -> None:
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
            encoding = self._encoding.decode(errors="replace")
            raise FetchError(f"its answer is packed with {encoding}, which it was not asked for")
        return HttpAnswer(self._status, self._headers, bytes(self.content), is_gzip, at_s, time.time())
