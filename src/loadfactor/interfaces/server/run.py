"""The process of `up` and `serve`: opens the store and the port, runs until a signal, and leaves everything kept."""

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import traceback
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
import uvloop
from starlette.types import ASGIApp

from loadfactor.base.errors import InputError, LoadfactorError, StoreError, is_disk_fault, say_why
from loadfactor.base.health import HealthReason
from loadfactor.base.paths import read_path
from loadfactor.books.books import Books
from loadfactor.collect.live import LiveService, ReceiverCounts, WriteAnswer
from loadfactor.interfaces.notices import write_notice
from loadfactor.interfaces.server.alert_service import AlertService
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.clock_service import ClockService
from loadfactor.interfaces.server.connections import Connection, Waiting
from loadfactor.interfaces.server.digest_service import DigestService
from loadfactor.interfaces.server.guard import AT_REST, Bounds, Guard, check_binding, read_users
from loadfactor.interfaces.server.log import write_line
from loadfactor.interfaces.server.reload import Reload
from loadfactor.interfaces.server.retention_service import RetentionService
from loadfactor.interfaces.server.unopened import SwitchedApp, UnopenedReceiver, find_scratch_folder
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.settings.config import Settings, list_own_files
from loadfactor.settings.server import BackupSettings
from loadfactor.store.live import LiveLog
from loadfactor.store.scheduled_backups import back_up_when_due
from loadfactor.store.tokens import TokenFile

BACKLOG = 1024
LOOK_EVERY_S = 1.0
LEAST_FILES = 96
"""Open files of a process; with fewer, questions fail beside the connections that wait."""
LAST_CALLS = 20
"""Of an error, in the log."""
LONGEST_REQUEST_S = 10
"""So long requests that are under way may take after a signal."""


def serve(folder: Path, listen: str, settings: Settings) -> None:
    """Collect and serve until SIGTERM or SIGINT. Raises InputError or StoreError where it cannot begin, or gave up."""
    host, port = read_address(listen)
    find_scratch_folder()
    try:
        opened = open_live(folder, settings)  # first: a second server hears of the first
    except StoreError as error:
        if not is_disk_fault(error):
            raise
        serve_unopened(folder, host, port, settings, str(error))
        return
    store = opened.books.store
    with contextlib.ExitStack() as open_now:
        open_now.callback(opened.live.close)
        guard, warning = _make_guard(store.folder, host, settings)
        listening = open_now.enter_context(bind(host, port))
        prepare()
        address = name_address(host, listening, settings)
        kept = LiveBooks(opened, guard, settings, address)
        server = make_server(kept.gate, guard, settings)
        check_access = partial(_make_guard, opened.books.store.folder, host)
        reload = Reload(opened.books.store.folder, settings, kept, check_access, partial(_take_access, guard))
        _greet(address, opened.books.store.name, settings)
        if warning:
            write_notice(warning)
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(_run(server, kept, listening, reload))


def serve_unopened(folder: Path, host: str, port: int, settings: Settings, why: str) -> None:
    """Serve books that cannot be written now, and collect once they can, until SIGTERM or SIGINT. Raises as `serve`."""
    books = Books(folder, settings.idle_below)
    store_folder = books.store.folder
    guard, warning = _make_guard(store_folder, host, settings)
    with bind(host, port) as listening:
        prepare()
        address = name_address(host, listening, settings)
        receiver = UnopenedReceiver(guard, why)
        app = SwitchedApp(make_app(books, receiver, guard))
        server = make_server(app, guard, settings)

        async def keep_current() -> str:
            """Collect once the books can be written, until they could not be for too long; why."""
            opened = await receiver.open(partial(open_live, folder, settings))
            try:
                kept = LiveBooks(opened, guard, settings, address)
            except BaseException:
                opened.live.close()
                raise
            check_access = partial(_make_guard, store_folder, host)
            reload = Reload(store_folder, settings, kept, check_access, partial(_take_access, guard))
            reload.watch(server.config.ssl)
            app.app = kept.gate
            try:
                async with kept.running():
                    return await kept.wait_until_given_up()
            finally:
                kept.gate.close()

        _greet(address, books.store.name, settings)
        write_notice(f"{why}; questions are answered, and collecting begins when it can be written")
        if warning:
            write_notice(warning)
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(_run_beside(server, listening, keep_current()))


async def _run_beside(server: uvicorn.Server, listening: socket.socket, work: Coroutine[Any, Any, str]) -> None:
    """Serve until a signal, or until `work` ends. Raises StoreError with what it ended with, or what it raised."""
    server.config.load()
    waits = "the configuration is read again when the books can be written"
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: write_line(level="warning", event=waits))
    working = asyncio.create_task(work)
    working.add_done_callback(lambda _: setattr(server, "should_exit", True))
    await server.serve(sockets=[listening])  # until a signal
    if not working.done():
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        return
    raise StoreError(working.result())


def serve_at_rest(folder: Path, listen: str, settings: Settings) -> None:
    """Serve books as they are until SIGTERM or SIGINT: nothing is collected, and nothing can be written.

    Raises InputError or StoreError where it cannot begin.
    """
    host, port = read_address(listen)
    books = Books.open(folder, idle_below=settings.idle_below)
    guard, warning = _make_guard(books.store.folder, host, settings, is_read_only=True)
    with bind(host, port) as listening:
        prepare()
        server = make_server(make_app(books, AtRest(), guard, is_live=False), guard, settings)
        address = name_address(host, listening, settings)
        write_notice(f"the books in {books.store.name} are at {address}/; Ctrl-C ends it")
        if warning:
            write_notice(warning)
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(server.serve(sockets=[listening]))


class OpenBooks(NamedTuple):
    """Books, and the log of what they receive."""

    books: Books
    live: LiveLog


def open_live(folder: Path, settings: Settings) -> OpenBooks:
    """Books that receive. Raises InputError or StoreError where they cannot, as where another server keeps them."""
    books = Books(folder, settings.idle_below)
    store = books.store
    try:
        store.place.claim_live()
    except OSError as error:
        raise StoreError(f"{store.folder} cannot be written ({say_why(error)})") from error
    return OpenBooks(books, LiveLog.open(store.folder, after=store.manifest.live_through, entry=store.entry))


class LiveBooks:
    """Books that are kept current: what collects, judges alerts and sends digests, and the app over all of it."""

    def __init__(self, opened: OpenBooks, guard: Guard, settings: Settings, address: str) -> None:
        """Raises InputError if the settings are wrong."""
        books, live = opened
        back_up = partial(_back_up, books, list_own_files())

        def read_witnessed_ms() -> int:
            return self.service.witnessed_ms

        self.service = LiveService(
            books.store.folder, lambda: books.flush(read_witnessed_ms()), live, settings, write_line, back_up
        )
        self._clock = ClockService(books.store.place, read_witnessed_ms)
        self.alerts = AlertService(
            books,
            settings,
            address,
            self.service.note_clock,
            find_expiry_ms=self._clock.find_expiry_ms,
        )
        self.digests = DigestService(books, settings, address)
        live.heard = self.alerts.arrivals.hear
        self._retention = RetentionService(books, write_line, read_witnessed_ms)
        self.gate = make_app(
            books,
            self.service,
            guard,
            alerts=self.alerts,
            digests=self.digests,
            retention=self._retention,
            clock=self._clock,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Inside, everything runs; at the end it leaves everything kept."""
        works = [self.service.run(), self._clock.run(), self.alerts.run(), self.digests.run(), self._retention.run()]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            yield
        finally:
            for task in reversed(tasks):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await asyncio.to_thread(self.digests.stop)
            await asyncio.to_thread(self.alerts.stop)
            await self.service.stop()

    async def wait_until_given_up(self) -> str:
        """Returns when the books could not be written for too long; why."""
        while not (why := self.service.given_up):
            await asyncio.sleep(LOOK_EVERY_S)
        return why


def _back_up(books: Books, also: Sequence[Path], backup: BackupSettings) -> int:
    """Back up where it is due; when the newest backup was begun, in ms."""
    try:
        to, now = read_path(backup.to), datetime.now(UTC)
        found = back_up_when_due(books.store.place, to, backup.schedule, backup.keep, now, also)
    except LoadfactorError as error:
        write_line(level="error", event="there is no backup", to=backup.to, error=str(error))
        raise
    if found.made:
        facts = {"files": found.files, "new_files": found.new_files, "kept": found.kept}
        write_line(level="info", event="a backup was made", of=found.newest, **facts)
    return milliseconds(found.newest_at)


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

    def reasons(self) -> list[HealthReason]:
        """None of anything."""
        return []

    def counts(self) -> ReceiverCounts:
        """None of anything."""
        return ReceiverCounts(0, 0, {}, errors={})


def _make_guard(folder: Path, host: str, settings: Settings, is_read_only: bool = False) -> tuple[Guard, str | None]:
    """The guard of a server, and what to warn of."""
    tokens, given = TokenFile(folder), settings.server
    warning = check_binding(host, tokens, given.trusted_proxies, given.tls_cert is not None)
    users, allowed = read_users(given), given.allowed_hosts
    guard = Guard(tokens, host, given.trusted_proxies, users, is_read_only=is_read_only, allowed_hosts=allowed)
    return guard, warning


def _take_access(guard: Guard, settings: Settings) -> None:
    guard.take(settings.server.trusted_proxies, read_users(settings.server), settings.server.allowed_hosts)


def name_address(host: str, listening: socket.socket, settings: Settings) -> str:
    scheme = "https" if settings.server.tls_cert else "http"
    return f"{scheme}://{host if ':' not in host else f'[{host}]'}:{listening.getsockname()[1]}"


def prepare() -> None:
    """Allow connections, and have warnings of libraries be lines of the log."""
    _allow_connections()
    logging.basicConfig(handlers=[_LogLines()], force=True)


def make_server(app: ASGIApp, guard: Guard, settings: Settings) -> "Server":
    return Server(
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
        facts |= getattr(record, "facts", {})
        if error is not None:
            facts["traceback"] = "".join(traceback.format_exception(error, limit=-LAST_CALLS))
        write_line(level=record.levelname.lower(), by=record.name, message=record.getMessage(), **facts)


class Loop(uvloop.Loop):
    """Has a handshake of TLS take no longer than the head of a request; uvicorn leaves it to the loop."""

    async def create_server(self, *args: Any, **options: Any) -> Any:
        """As uvloop's."""
        if options.get("ssl"):
            options["ssl_handshake_timeout"] = Bounds.head_s
        return await super().create_server(*args, **options)


class Server(uvicorn.Server):
    """Leaves on a signal when what it began is done; uvicorn's own would raise the signal again before the log is closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end serving; a second one does not wait for requests under way."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.handle_exit, number, None)
        yield


async def _run(server: uvicorn.Server, kept: LiveBooks, listening: socket.socket, reload: Reload) -> None:
    server.config.load()  # of a certificate, which the reload reads again
    reload.watch(server.config.ssl)
    async with kept.running():
        given_up = asyncio.create_task(_end_when_given_up(server, kept))
        await server.serve(sockets=[listening])  # until a signal
        given_up.cancel()
    if why := given_up.result() if given_up.done() and not given_up.cancelled() else "":
        raise StoreError(why)


async def _end_when_given_up(server: uvicorn.Server, kept: LiveBooks) -> str:
    why = await kept.wait_until_given_up()
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
    write_notice(f"books in {store}, listening on {address}; {sources}; takes remote_write at {address}/api/v1/write")
