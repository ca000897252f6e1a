"""The process of `up` and `serve`: opens the store and the port, runs until a signal, and leaves everything kept."""

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from loadfactor.base.errors import InputError, StoreError, say_why
from loadfactor.books.books import Books
from loadfactor.collect.live import LiveService, ReceiverCounts, WriteAnswer
from loadfactor.interfaces.server.alert_service import AlertService
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.connections import Connection, Waiting
from loadfactor.interfaces.server.digest_service import DigestService
from loadfactor.interfaces.server.gate import Gate
from loadfactor.interfaces.server.guard import AT_REST, Bounds, Guard, check_binding, read_users
from loadfactor.interfaces.server.log import write_line
from loadfactor.interfaces.server.pair import Following, Leading
from loadfactor.interfaces.server.reload import Reload
from loadfactor.settings.config import Settings
from loadfactor.store.live import LiveLog
from loadfactor.store.tokens import TokenFile

BACKLOG = 1024
LOOK_EVERY_S = 1.0
LEAST_FILES = 96
"""Open files of a process; with fewer, questions fail beside the connections that wait."""
LONGEST_REQUEST_S = 10
"""So long requests that are under way may take after a signal."""


def serve(folder: Path, listen: str, settings: Settings) -> None:
    """Collect and serve until SIGTERM or SIGINT. Raises InputError or StoreError where it cannot begin, or gave up."""
    host, port = read_address(listen)
    books = Books(folder, settings.idle_below)
    guard, warning = _make_guard(books.store.folder, host, settings)
    with contextlib.ExitStack() as opened:
        store = books.store
        store.place.claim_live()
        live = LiveLog.open(
            store.folder, after=store.manifest.live_through, entry=store.entry
        )  # first: a second server hears of the first
        opened.callback(live.close)
        listening = opened.enter_context(bind(host, port))
        _prepare()
        merge = partial(_bring_over, books) if settings.pair.peer else None
        service = LiveService(books.store.folder, books.flush, live, settings, write_line, merge)
        address = _name_address(host, listening, settings)
        leading = Leading(not settings.pair.peer)
        alerts = AlertService(books, settings, address, service.note_clock, leading=leading)
        digests = DigestService(books, settings, address, leading)
        live.heard = alerts.arrivals.hear
        app = make_app(
            books, service, guard, alerts=alerts, digests=digests, leading=leading if settings.pair.peer else None
        )
        server = _make_server(app, guard, settings)
        check_access = partial(_make_guard, store.folder, host)
        reload = Reload(store.folder, settings, service, alerts, digests, guard, check_access)
        _greet(address, store.name, settings)
        if warning:
            print(f"loadfactor: {warning}", file=sys.stderr, flush=True)
        following = Following(settings.pair, books.store.folder, leading) if settings.pair.peer else None
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(_run(server, service, alerts, digests, following, listening, reload))


def serve_at_rest(folder: Path, listen: str, settings: Settings) -> None:
    """Serve books as they are until SIGTERM or SIGINT: nothing is collected, and nothing can be written.

    Raises InputError or StoreError where it cannot begin.
    """
    host, port = read_address(listen)
    books = Books.open(folder, idle_below=settings.idle_below)
    guard, warning = _make_guard(books.store.folder, host, settings, is_read_only=True)
    with bind(host, port) as listening:
        _prepare()
        server = _make_server(make_app(books, AtRest(), guard, is_live=False), guard, settings)
        address = _name_address(host, listening, settings)
        print(
            f"loadfactor: the books in {books.store.name} are at {address}/; Ctrl-C ends it",
            file=sys.stderr,
            flush=True,
        )
        if warning:
            print(f"loadfactor: {warning}", file=sys.stderr, flush=True)
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(server.serve(sockets=[listening]))


def _bring_over(books: Books, folder: Path, since_ms: int) -> int:
    """Add what the copy of another store got since an instant; when it got the last."""
    other = Books(folder)
    newest_ms = max((record.at_ms or 0 for record in other.imports), default=0)
    books.merge(other, since_ms)
    return newest_ms


class AtRest:
    """A receiver of books at rest: it takes nothing. The guard refuses what would write before it is asked."""

    async def write(self, body: bytes, origin: str) -> WriteAnswer:  # noqa: ARG002 (the protocol)
        """Raises InputError."""
        raise InputError(AT_REST)

    async def keep_progress(self, records: Sequence[dict[str, Any]]) -> None:  # noqa: ARG002 (the protocol)
        """Raises InputError."""
        raise InputError(AT_REST)

    def health(self) -> dict[str, Any]:
        """Well, without sources."""
        return {"status": "ok", "sources": [], "lag_s": 0.0}

    def counts(self) -> ReceiverCounts:
        """None of anything."""
        return ReceiverCounts(0, 0, {}, errors={})


def _make_guard(folder: Path, host: str, settings: Settings, is_read_only: bool = False) -> tuple[Guard, str | None]:
    """The guard of a server, and what to warn of."""
    tokens, given = TokenFile(folder), settings.server
    warning = check_binding(host, tokens, given.trusted_proxies, given.tls_cert is not None)
    return Guard(tokens, host, given.trusted_proxies, read_users(given), is_read_only=is_read_only), warning


def _name_address(host: str, listening: socket.socket, settings: Settings) -> str:
    scheme = "https" if settings.server.tls_cert else "http"
    return f"{scheme}://{host if ':' not in host else f'[{host}]'}:{listening.getsockname()[1]}"


def _prepare() -> None:
    """Allow connections, and have warnings of libraries be lines of the log."""
    _allow_connections()
    logging.basicConfig(handlers=[_LogLines()], force=True)


def _make_server(app: Gate, guard: Guard, settings: Settings) -> "_Server":
    return _Server(
        uvicorn.Config(
            app,
            http=partial(Connection, Waiting(Bounds(), guard.trusts)),  # type: ignore[arg-type]  # what makes one
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=LONGEST_REQUEST_S,
            ssl_certfile=settings.server.tls_cert,
            ssl_keyfile=settings.server.tls_key,
        )
    )


def read_address(listen: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or [::1]:PORT. Raises InputError where it is none."""
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InputError(f"{listen!r} is no address to listen on; write 127.0.0.1:9417")
    return host, int(port)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises InputError where there can be none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        raise InputError(f"cannot listen on {host}:{port} ({say_why(error)}); choose another with --listen") from error
    return listening


def _allow_connections() -> None:
    """As many open files as this machine allows: a thousand servers that never answer must leave some for senders.

    Raises InputError where these are too few.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= most < LEAST_FILES:
        raise InputError(
            f"at most {most} files may be open, and at least {LEAST_FILES} are needed; raise it: ulimit -Hn"
        )
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _LogLines(logging.Handler):
    """Has warnings of libraries be lines of the log as ours are."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        facts = {"error": f"{type(error).__name__}: {error}"} if error else {}
        write_line(level=record.levelname.lower(), by=record.name, message=record.getMessage(), **facts)


class _Loop(uvloop.Loop):
    """Has a handshake of TLS take no longer than the head of a request; uvicorn leaves it to the loop."""

    async def create_server(self, *args: Any, **options: Any) -> Any:
        """As uvloop's."""
        if options.get("ssl"):
            options["ssl_handshake_timeout"] = Bounds.head_s
        return await super().create_server(*args, **options)


class _Server(uvicorn.Server):
    """Leaves on a signal when what it began is done; uvicorn's own would raise the signal again before the log is closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end serving; a second one does not wait for requests under way."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.handle_exit, number, None)
        yield


async def _run(
    server: uvicorn.Server,
    service: LiveService,
    alerts: AlertService,
    digests: DigestService,
    following: Following | None,
    listening: socket.socket,
    reload: Reload,
) -> None:
    server.config.load()  # of a certificate, which the reload reads again
    reload.watch(server.config.ssl)
    collecting, judging = asyncio.create_task(service.run()), asyncio.create_task(alerts.run())
    posting = asyncio.create_task(digests.run())
    pairing = [asyncio.create_task(following.run())] if following else []
    given_up = asyncio.create_task(_wait_until_given_up(service, server))
    try:
        await server.serve(sockets=[listening])  # until a signal
    finally:
        for task in (given_up, *pairing, posting, judging, collecting):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await asyncio.to_thread(digests.stop)
        await asyncio.to_thread(alerts.stop)
        await service.stop()
    if why := given_up.result() if not given_up.cancelled() else "":
        raise StoreError(why)


async def _wait_until_given_up(service: LiveService, server: uvicorn.Server) -> str:
    """End serving when the books could not be written for too long; why."""
    while not (why := service.given_up):
        await asyncio.sleep(LOOK_EVERY_S)
    server.should_exit = True
    return why


def _greet(address: str, store: str, settings: Settings) -> None:
    pulled = ", ".join(
        [server.label for server in settings.prometheus]
        + [group.label for group in settings.exporters]
        + [f"cloudwatch {account.label}" for account in settings.cloudwatch]
        + [f"gcp-monitoring {project.label}" for project in settings.gcp_monitoring]
        + [f"slurm {cluster.name}".strip() for cluster in settings.slurm]
    )
    sources = f"asks {pulled}" if pulled else "no source is configured"
    if settings.kubernetes:
        watched = ", ".join(f"kubernetes {cluster.name}".strip() for cluster in settings.kubernetes)
        sources = f"asks {pulled}; watches {watched}" if pulled else f"watches {watched}"
    print(f"loadfactor: books in {store}, listening on {address}; {sources}; takes remote_write at {address}/api/v1/write",
          file=sys.stderr, flush=True)  # fmt: skip
