"""Access to the server: tokens, trusted proxies, and the names under which a server of this machine alone may be called."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final, Literal

from loadfactor.base.errors import InputError
from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_KIB, BYTES_PER_MIB, S_PER_HOUR, S_PER_MIN
from loadfactor.sources.prometheus.remote_write import WriteLimits
from loadfactor.store.tokens import PREFIX, SECRET, TokenFile


@dataclass(frozen=True)
class Bounds:
    """The bounds of a server; what passes one of them is refused with a status that says so."""

    write_bytes: int = WriteLimits.packed_bytes  # of a remote_write request as it comes, compressed
    upload_bytes: int = BYTES_PER_GIB  # of a file that is imported
    unpacked_bytes: int = 8 * BYTES_PER_GIB  # of the same, decompressed
    url_bytes: int = 8 * BYTES_PER_KIB
    header_bytes: int = 32 * BYTES_PER_KIB
    headers: int = 100
    head_s: float = 10  # from the first byte of a request, or from the connection, to the end of its headers
    connections: int = 1_024  # at once; a third of the open files that this machine allows, where that is less
    waiting_of_peer: int = 256  # connections of one address, but a trusted proxy, on which no request is served
    pipelined: int = 32  # requests that wait on one connection for the answer to another
    unread_s: float = 60  # in which the client of an answer reads a part of it
    write_s: float = S_PER_MIN  # to send a remote_write request
    upload_s: float = S_PER_HOUR  # to send a file
    slowest_bytes_per_s: int = 16 * BYTES_PER_KIB  # that a body may come at, after the first `write_s`
    bodies: int = 256  # on their way at once: half of the requests that may be, so that readers have the other
    bodies_of_token: int = 64  # of these, of one token, or of one client where none is needed
    held_bytes: int = 128 * BYTES_PER_MIB  # of bodies on their way, in memory
    held_bytes_of_token: int = 64 * BYTES_PER_MIB
    files: int = 8  # on their way or being imported, on the disk
    files_of_token: int = 4
    dimensions: int = 4  # of one split
    metrics: int = 100  # of one question
    groups: int = 2_000_000  # of one answer, as far as devices and time say
    rows: int = 100_000  # of one list of jobs or devices
    questions: int = 4  # worked on at once
    waiting_questions: int = 16  # that wait for their turn
    long_questions: int = 1  # diagnoses and savings, worked on at once, beside the questions
    waiting_long_questions: int = 2
    long_question_s: float = 5 * S_PER_MIN  # of work, looked at between jobs and between levers
    diagnosed_jobs: int = 100  # of one question
    in_flight: int = 512  # requests at once
    requests_per_s: float = 500  # of one client, in the long run
    burst: int = 2_000  # of one client at once
    clients: int = 10_000  # whose rates are remembered
    retry_after_s: int = 2


def write_line(**facts: Any) -> None:
    """Write one line, with the time first."""
    line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **facts}
    sys.stderr.write(hide_secrets(json.dumps(line, ensure_ascii=True, default=str)) + "\n")


def hide_secrets(text: str) -> str:
    """The text without tokens.

    >>> hide_secrets("no metric called 'lf_AbcdefghijklmnopqrstuvwxyZ0123456789-_xyz'")
    "no metric called 'lf_…'"
    """
    return SECRET.sub(f"{PREFIX}…", text)


Need = Literal["nothing", "any", "read", "fleet", "write"]
"""The need of an endpoint. `any`: some token; `read`: one that reads, if only a team; `fleet`: one that reads everything."""

GRANTS: Final[dict[str, tuple[Need, ...]]] = {
    "open": ("nothing", "any", "read", "fleet", "write"),
    "read": ("nothing", "any", "read", "fleet"),
    "read-team": ("nothing", "any", "read"),
    "write": ("nothing", "any", "write"),
}
BEARER: Final = "bearer "


class RefusedError(Exception):
    """A request that is not admitted, with the status that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Access:
    """The access of a request. `team`: rows of this one alone; `token` is its id, empty where none was needed."""

    right: str
    team: str | None = None
    token: str = ""

    def grants(self, need: Need) -> bool:
        """True where it is enough for an endpoint."""
        return need in GRANTS[self.right]


@dataclass(frozen=True)
class Caller:
    """The headers of a request that say who asks, and whom."""

    peer: str
    host: str
    method: str = "GET"
    origin: str | None = None
    authorization: str | None = None
    forwarded_for: str | None = None


class Guard:
    """The door of a server that listens on `host`. `trusted_proxies` are addresses or networks of proxies that check who asks."""

    def __init__(self, tokens: TokenFile, host: str = "127.0.0.1", trusted_proxies: Sequence[str] = ()) -> None:
        """Raises InputError for a proxy that is no address."""
        self._tokens = tokens
        self._is_local = is_loopback(host)
        self._proxies = [_read_network(proxy) for proxy in trusted_proxies]

    def admit(self, caller: Caller, need: Need) -> Access:
        """The access of a request. Raises RefusedError where it is not enough, StoreError where tokens cannot be read."""
        if need == "nothing":
            return Access("open")
        by_proxy = self.trusts(caller.peer)
        if self._is_local and not by_proxy and not is_loopback(_name_of(caller.host)):
            raise RefusedError(421, "this server answers to localhost and 127.0.0.1 alone; ask it by that name")
        if caller.origin is not None and caller.method != "GET" and caller.origin.partition("://")[2] != caller.host:
            raise RefusedError(403, "a page of another site may not write here; send the request without a browser")
        if not self._tokens.list():
            if by_proxy or is_loopback(caller.peer):
                return Access("open")
            raise RefusedError(
                403, "only the trusted proxies may ask here; create a token with `loadfactor token create`"
            )
        return self._check_token(caller.authorization, need)

    def _check_token(self, authorization: str | None, need: Need) -> Access:
        if authorization is None:
            raise RefusedError(401, "a token is needed; send it as Authorization: Bearer lf_…")
        given = authorization[len(BEARER) :].strip() if authorization.lower().startswith(BEARER) else ""
        record = self._tokens.find(given)
        if record is None:
            raise RefusedError(401, "this token is not known or was revoked; `loadfactor token create` makes another")
        access = Access(record.right, record.team, record.id)
        if not access.grants(need):
            needed = {
                "fleet": "a token that reads everything",
                "read": "a token that reads",
                "write": "a token that writes",
            }
            raise RefusedError(403, f"this needs {needed[need]}; `loadfactor token create --help` shows the kinds")
        return access

    def trusts(self, peer: str) -> bool:
        """True where the request comes from a trusted proxy."""
        address = _read_address(peer) if self._proxies else None
        return address is not None and any(_widen(address) in network for network in self._proxies)

    def client_of(self, caller: Caller) -> str:
        """The client whose rate counts: the one a trusted proxy names, else who connected."""
        if caller.forwarded_for and self.trusts(caller.peer):
            return caller.forwarded_for.rpartition(",")[2].strip()
        return caller.peer


def check_binding(host: str, tokens: TokenFile, trusted_proxies: Sequence[str], tls: bool) -> str | None:
    """Whether a server may listen on an address; what to warn of, None where nothing is.

    Raises InputError where others could ask without anybody checking who they are.
    """
    if is_loopback(host):
        return None
    valid = [record for record in tokens.list() if record.revoked_ms is None]
    if not valid and not trusted_proxies:
        raise InputError(
            f"{host} can be reached from other machines and nothing checks who asks; make a token first with "
            "`loadfactor token create --write`, name trusted_proxies in [server] of the configuration, or listen on 127.0.0.1"
        )
    if not tls and not trusted_proxies:
        return "tokens travel unencrypted; give tls_cert and tls_key in [server] of the configuration"
    return None


def is_loopback(host: str) -> bool:
    """True for the names and addresses of this machine that no other machine reaches.

    >>> [is_loopback(h) for h in ("localhost", "127.0.0.1", "[::1]", "::ffff:127.0.0.1", "0.0.0.0", "", "10.0.0.1", "evil.example")]
    [True, True, True, True, False, False, False, False]
    """
    if host.lower().rstrip(".") == "localhost":
        return True
    address = _read_address(host)
    return address is not None and address.is_loopback


def _name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]


@lru_cache(maxsize=1_000)
def _read_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _widen(address: IPv4Address | IPv6Address) -> IPv6Address:
    """Every address as one of IPv6, so that they compare."""
    return address if isinstance(address, IPv6Address) else IPv6Address(f"::ffff:{address}")


def _read_network(text: str) -> IPv6Network:
    try:
        network = ip_network(text, strict=False)
    except ValueError as error:
        raise InputError(f"trusted proxy {text!r} is no address; write 10.0.0.7 or 10.0.0.0/8") from error
    if isinstance(network, IPv6Network):
        return network
    return IPv6Network(f"::ffff:{network.network_address}/{96 + network.prefixlen}")
