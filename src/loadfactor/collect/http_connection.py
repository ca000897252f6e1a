"""Connections to HTTP servers: the addresses of a name, TLS, and the proxy that the environment names."""

import asyncio
import socket
import ssl
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from threading import Thread
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from loadfactor.base.errors import InputError
from loadfactor.base.units import BYTES_PER_KIB
from loadfactor.collect.fetch_errors import FetchError

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
    said = proxies.get(url.scheme) or proxies.get("all")
    if not said or host == "localhost" or host.startswith("127.") or host == "::1" or proxy_bypass(host):
        return None
    try:
        proxy = urlsplit(said if "://" in said else f"http://{said}")
        if proxy.scheme == "http" and proxy.hostname:
            return HttpProxy(proxy.hostname, proxy.port or _PROXY_PORT, write_basic(proxy))
    except ValueError:
        pass
    raise InputError(f"the proxy that the environment names for {url.scheme} is none of http://HOST:PORT")


def write_basic(url: SplitResult) -> str:
    """What a header says for the name and password in an address; empty where there are none."""
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


async def connect(
    host: str, port: int, tls: ssl.SSLContext | None, proxy: HttpProxy | None, lookups: NameLookups
) -> Connection:
    """A connection to a server; with TLS through a tunnel where there is a proxy, else to the proxy itself.

    Raises OSError, UnicodeError for what is no name, and FetchError where a proxy refuses.
    """
    if proxy is None:
        return await _open(host, port, tls, lookups)
    connection = await _open(proxy.host, proxy.port, None, lookups)
    if tls is not None:
        try:
            await _enter_tunnel(connection, write_address(host, port), proxy)
            await connection[1].start_tls(tls, server_hostname=host)
        except BaseException:
            connection[1].transport.abort()
            raise
    return connection


async def _open(host: str, port: int, tls: ssl.SSLContext | None, lookups: NameLookups) -> Connection:
    """A connection to the first of a host's addresses that takes one."""
    addresses = [host] if _is_address(host) else await lookups.find(host, port)
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
