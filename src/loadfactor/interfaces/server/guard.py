"""Access to the server: tokens, trusted proxies, and the names under which a server of this machine alone may be called."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hmac import compare_digest
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from time import time
from typing import Final, Literal

from loadfactor.base.errors import InputError, StoreError
from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_KIB, BYTES_PER_MIB, S_PER_HOUR, S_PER_MIN
from loadfactor.interfaces.reach import RefusedError
from loadfactor.interfaces.server.sessions import ProxyUsers, Sessions
from loadfactor.settings.server import ServerSettings
from loadfactor.sources.prometheus.remote_write import WriteLimits
from loadfactor.store.tokens import PREFIX, TokenFile, TokenRecord


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
    plans: int = 1  # made at once, in a process beside
    waiting_plans: int = 6
    plan_s: float = S_PER_MIN  # of processor time
    insight_fresh_s: float = 10 * S_PER_MIN  # so long a diagnosis or savings of a page stand although the books went on
    diagnosed_jobs: int = 100  # of one question
    in_flight: int = 512  # requests at once
    requests_per_s: float = 500  # of one client, in the long run
    burst: int = 2_000  # of one client at once
    sign_ins_per_s: float = 0.2  # of one client, in the long run
    sign_in_burst: int = 10  # of one client at once
    clients: int = 10_000  # whose rates are remembered
    retry_after_s: int = 2


Need = Literal["nothing", "any", "read", "save", "fleet", "write"]
"""The need of an endpoint. `any`: some token; `read`: one that reads, if only a team; `save`: the same, of books that go on;
`fleet`: one that reads everything."""

GRANTS: Final[dict[str, tuple[Need, ...]]] = {
    "open": ("nothing", "any", "read", "save", "fleet", "write"),
    "everything": ("nothing", "any", "read", "save", "fleet", "write"),
    "read": ("nothing", "any", "read", "save", "fleet"),
    "read-team": ("nothing", "any", "read", "save"),
    "write": ("nothing", "any", "write"),
}
WRITING: Final = ("save", "write")
BEARER: Final = "bearer "
SECURE_COOKIE: Final = "__Host-loadfactor"
LOOPBACK_COOKIE: Final = "loadfactor"
AT_REST: Final = (
    "these books are at rest, and only read here; `loadfactor up` takes samples, and keeps silences and views"
)

LONGEST_NAME: Final = 100
"""Characters that are repeated of a name that is not ours."""


@dataclass(frozen=True)
class Access:
    """The access of a request. `team`: rows of this one alone; `token` is its id, empty where none was needed.

    `user` is whom a trusted proxy names. `form_key` is what a form of a page sends back: nobody else knows it.
    """

    right: str
    team: str | None = None
    token: str = ""
    user: str = ""
    form_key: str = ""
    is_at_rest: bool = False

    @property
    def owner(self) -> str:
        """Whose request it is, of those that are told apart."""
        return self.user or self.token

    def grants(self, need: Need) -> bool:
        """True where it is enough for an endpoint."""
        return need in GRANTS[self.right] and not (self.is_at_rest and need in WRITING)


@dataclass(frozen=True)
class Caller:
    """The headers of a request that say who asks, and whom. `users` and `groups` are the headers that the configuration names."""

    peer: str
    host: str
    method: str = "GET"
    origin: str | None = None
    authorization: str | None = None
    forwarded_for: str | None = None
    forwarded_proto: str | None = None
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    forwarded_host: str | None = None
    own_address: str = ""  # of this machine, that the connection is to
    cookie: str | None = None
    form_key: str | None = None  # of a request that is no form
    is_tls: bool = False
    is_page: bool = False  # what a browser opens, rather than an endpoint for programs


class Guard:
    """The door of a server that listens on `host`. `trusted_proxies` are addresses or networks of proxies that check who asks.

    `users` says how they name who asks; without it they are believed that somebody may, for programs, and open no page.
    A request that proves nothing (no token, no session) must call the server by a name of its own: a page of another site can have
    its name lead here (DNS rebinding), and the browser then takes this server for that site. `allowed_hosts` are further names.
    """

    def __init__(
        self,
        tokens: TokenFile,
        host: str = "127.0.0.1",
        trusted_proxies: Sequence[str] = (),
        users: ProxyUsers | None = None,
        clock_s: Callable[[], float] = time,
        is_read_only: bool = False,
        allowed_hosts: Sequence[str] = (),
    ) -> None:
        """Raises InputError for a proxy that is no address."""
        self._is_read_only = is_read_only
        self._tokens = tokens
        self._host, self._is_local = host, is_loopback(host)
        self.unwritable = ""
        """Why nothing can be written now; empty if it can."""
        self.take(trusted_proxies, users, allowed_hosts)
        self.sessions = Sessions(tokens, clock_s)

    def take(self, trusted_proxies: Sequence[str], users: ProxyUsers | None, allowed_hosts: Sequence[str]) -> None:
        """Trust these proxies and answer to these names from now on. Raises InputError for a proxy that is no address."""
        self._proxies = [_read_network(proxy) for proxy in trusted_proxies]
        self.users = users
        self._own_names = {_fold(name) for name in (self._host, *allowed_hosts)}

    def find(self, token: str) -> TokenRecord | None:
        """The record of a token that is valid now. Raises StoreError where tokens cannot be read."""
        return self._tokens.find(token)

    def admit(self, caller: Caller, need: Need) -> Access:
        """The access of a request.

        Raises RefusedError if it is not enough, StoreError if tokens cannot be read, or what it writes cannot be written now.
        """
        by_proxy = self.trusts(caller.peer)
        self.check_host(caller)
        self._check_origin(caller, by_proxy)
        if need == "nothing":
            return Access("open")
        access = replace(self._identify(caller, by_proxy), is_at_rest=self._is_read_only or bool(self.unwritable))
        if self._is_read_only and need in WRITING:
            raise RefusedError(403, AT_REST)
        if self.unwritable and need in WRITING:
            raise StoreError(self.unwritable)
        if not access.grants(need):
            needed = {
                "fleet": "a token that reads everything",
                "read": "a token that reads",
                "save": "a token that reads",
                "write": "a token that writes",
            }
            raise RefusedError(403, f"this needs {needed[need]}; `loadfactor token create --help` shows the kinds")
        return access

    def check_host(self, caller: Caller, takes_addresses: bool = False) -> None:
        """Raise RefusedError for a request that calls the server by a name of another site.

        `takes_addresses`: any IP address will do, as no name leads to it. Raises StoreError if tokens cannot be read.
        """
        by_proxy = self.trusts(caller.peer)
        names = [_name_of(caller.host)]
        if by_proxy and caller.forwarded_host is not None:
            names += [_name_of(part.strip()) for part in caller.forwarded_host.split(",")]
        foreign = [
            name
            for name in names
            if not self._is_own_name(name, caller) and not (takes_addresses and _read_address(name) is not None)
        ]
        if not foreign:
            return
        # A page of another site has neither a token nor the cookie of a session. Headers that name a user it can set.
        is_named = by_proxy and bool(caller.users) and not _read_bearer(caller.authorization).startswith(PREFIX)
        if (by_proxy or not self._is_local) and not is_named and self._asks_for_tokens():
            return
        raise RefusedError(
            421,
            f"this server is not called {foreign[0][:LONGEST_NAME]!r}; ask it as localhost, or name that in allowed_hosts in "
            "[server] of the configuration",
        )

    def _is_own_name(self, name: str, caller: Caller) -> bool:
        return is_loopback(name) or _fold(name) in self._own_names or _is_same_address(name, caller.own_address)

    def _check_origin(self, caller: Caller, by_proxy: bool) -> None:
        """Raise RefusedError for what a page of another site sends, but for reading with a token: that it was given."""
        if caller.origin is None:
            return
        hosts = [caller.host]
        if by_proxy and caller.forwarded_host is not None:
            hosts.append(caller.forwarded_host.rpartition(",")[2].strip())
        if caller.origin.partition("://")[2] in hosts:
            return
        if caller.method not in ("GET", "HEAD"):
            raise RefusedError(403, "a page of another site may not write here; send the request without a browser")
        if not _read_bearer(caller.authorization):
            raise RefusedError(403, "a page of another site may not read here; send the request without a browser")

    def _asks_for_tokens(self) -> bool:
        return bool(self._tokens.list())

    def _identify(self, caller: Caller, by_proxy: bool) -> Access:
        """Whose request it is: of its token, of whom a trusted proxy names, of a session, or of this machine where no token is."""
        is_known = self._asks_for_tokens()
        if is_known and _read_bearer(caller.authorization).startswith(PREFIX):
            return self._check_token(caller.authorization)
        access = self._name_proxied(caller) if by_proxy else None
        access = access or self._find_session(caller)
        if access is not None:
            self._check_writing(caller, access)
            return access
        if is_known:
            return self._check_token(caller.authorization)
        if by_proxy and self.users is not None:
            raise RefusedError(401, f"the proxy names nobody in {self.users.user_header}; sign in there first")
        if by_proxy and caller.is_page:
            raise RefusedError(
                403,
                "the proxy does not say who asks; name its user_header in [server] of the configuration, or create a "
                "token with `loadfactor token create`",
            )
        if by_proxy or is_loopback(caller.peer):
            return Access("open", form_key=self.sessions.sign("open"))
        raise RefusedError(403, "only the trusted proxies may ask here; create a token with `loadfactor token create`")

    def _check_token(self, authorization: str | None) -> Access:
        if authorization is None:
            raise RefusedError(401, "a token is needed; send it as Authorization: Bearer lf_…")
        record = self.find(_read_bearer(authorization))
        if record is None:
            raise RefusedError(401, "this token is not known or was revoked; `loadfactor token create` makes another")
        return Access(record.right, record.team, record.id)

    def _name_proxied(self, caller: Caller) -> Access | None:
        """The access of whom a trusted proxy names, None where it names nobody. Raises RefusedError where no group is known."""
        if self.users is None or not caller.users:
            return None
        if len(caller.users) > 1:
            raise RefusedError(
                400, f"the request has {self.users.user_header} twice; the proxy must replace what it was sent"
            )
        (user,) = caller.users
        found = self.users.find_role(caller.groups)
        if found is None:
            raise RefusedError(
                403, f"no group of {user} is in [server.groups] of the configuration; ask who runs this server"
            )
        return Access(*found, user=user, form_key=self.sessions.sign(f"user {user}"))

    def _find_session(self, caller: Caller) -> Access | None:
        name = self.name_cookie(caller)
        secret = None if name is None else _read_cookie(caller.cookie, name)
        record = None if secret is None else self.sessions.find(secret)
        if record is None or secret is None:
            return None
        return Access(record.right, record.team, record.id, form_key=self.sessions.sign(secret))

    def end_session(self, caller: Caller) -> str | None:
        """End the session of a request; the name of its cookie, None where there is none."""
        name = self.name_cookie(caller)
        secret = None if name is None else _read_cookie(caller.cookie, name)
        if secret is None:
            return None
        self.sessions.end(secret)
        return name

    def _check_writing(self, caller: Caller, access: Access) -> None:
        """Raises RefusedError where a browser was made to write: what it sends by itself, as a cookie, is not enough.

        A form of a page carries its key in a field, which the page checks; other requests carry it in X-Form-Key.
        """
        if caller.method in ("GET", "HEAD"):
            return
        if caller.origin is None or not (caller.is_page or compare_digest(caller.form_key or "", access.form_key)):
            raise RefusedError(403, "a browser writes through the forms of the pages; a program sends a token")

    def name_cookie(self, caller: Caller) -> str | None:
        """The name of the cookie of a session on this connection; None where it could be read on its way."""
        is_proxied = self.trusts(caller.peer)
        if caller.is_tls or (is_proxied and (caller.forwarded_proto or "").rpartition(",")[2].strip() == "https"):
            return SECURE_COOKIE
        return LOOPBACK_COOKIE if is_loopback(caller.peer) and is_loopback(_name_of(caller.host)) else None

    def trusts(self, peer: str) -> bool:
        """True where the request comes from a trusted proxy."""
        address = _read_address(peer) if self._proxies else None
        return address is not None and any(_widen(address) in network for network in self._proxies)

    def client_of(self, caller: Caller) -> str:
        """The client whose rate counts: the one a trusted proxy names, else who connected."""
        if caller.forwarded_for and self.trusts(caller.peer):
            return caller.forwarded_for.rpartition(",")[2].strip()
        return caller.peer


def read_users(settings: ServerSettings) -> ProxyUsers | None:
    """How trusted proxies name who asks; None where they do not."""
    return ProxyUsers(settings.user_header, settings.groups_header, settings.groups) if settings.user_header else None


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


def _read_bearer(authorization: str | None) -> str:
    given = authorization or ""
    return given[len(BEARER) :].strip() if given.lower().startswith(BEARER) else ""


def _read_cookie(header: str | None, name: str) -> str | None:
    """The value of the one cookie of this name.

    >>> _read_cookie("theme=dark; loadfactor=abc", "loadfactor"), _read_cookie("loadfactor=a; loadfactor=b", "loadfactor")
    ('abc', None)
    """
    pairs = [part.strip().partition("=") for part in (header or "").split(";")]
    values = [value for key, _, value in pairs if key == name]
    return values[0] if len(values) == 1 else None


def is_loopback(host: str) -> bool:
    """True for the names and addresses of this machine that no other machine reaches.

    >>> [is_loopback(h) for h in ("localhost", "127.0.0.1", "[::1]", "::ffff:127.0.0.1", "0.0.0.0", "", "10.0.0.1", "evil.example")]
    [True, True, True, True, False, False, False, False]
    """
    if host.lower().rstrip(".") == "localhost":
        return True
    address = _read_address(host)
    return address is not None and address.is_loopback


def _fold(name: str) -> str:
    return name.lower().rstrip(".")


def _is_same_address(name: str, address: str) -> bool:
    own = _read_address(address)
    return own is not None and _read_address(name) == own


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
