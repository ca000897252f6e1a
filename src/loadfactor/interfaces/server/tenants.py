"""A server of many tenants: each has its books, tokens, configuration and limits under /t/NAME/, and nothing of the others.

Who has no token of a tenant cannot tell whether there is one of that name. What goes wrong with the books of one, a damaged or a
full disk, is answered there alone, and tried again.
"""

import asyncio
import os
import re
import signal
import socket
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final, TypeVar

import uvicorn
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from loadfactor.base.defects import DEFECTS
from loadfactor.base.errors import InputError, LoadfactorError, StoreError, say_why
from loadfactor.books.books import Books
from loadfactor.collect.live import ReceiverCounts
from loadfactor.interfaces.gauges.exposition import MetricFamily, write_exposition
from loadfactor.interfaces.notices import write_notice
from loadfactor.interfaces.reach import RefusedError
from loadfactor.interfaces.server.app import NEEDS_OF_TENANT, make_app, refuse_failed, refuse_http
from loadfactor.interfaces.server.door import DOOR_NEEDS, add_door
from loadfactor.interfaces.server.gate import Gate, answer_html
from loadfactor.interfaces.server.guard import NOTHING_HERE, Bounds, Guard, Need, is_loopback
from loadfactor.interfaces.server.log import write_line
from loadfactor.interfaces.server.quota import Quota
from loadfactor.interfaces.server.reload import Reload, check_certificate
from loadfactor.interfaces.server.run import (
    AtRest,
    LiveBooks,
    Loop,
    bind,
    bound,
    make_server,
    name_address,
    open_live,
    prepare,
    read_address,
)
from loadfactor.interfaces.server.scrape import MEDIA_TYPE, count_limits, measure_process
from loadfactor.interfaces.server.sessions import ProxyUsers
from loadfactor.interfaces.web.frame import render
from loadfactor.settings.config import Settings, SettingsFile, chosen, of_tenant, settings
from loadfactor.settings.tenants import TENANT_NAME, TenantSettings
from loadfactor.store.live_copy import LOG_SUFFIX
from loadfactor.store.live_copy import NAME as LIVE
from loadfactor.store.store import Store, find_place
from loadfactor.store.tokens import TokenFile

FoundT = TypeVar("FoundT")
TENANTS: Final = "/api/v1/tenants"
ROOT_NEEDS: Final[dict[tuple[str, str], Need]] = {
    ("GET", "/"): "fleet",
    ("GET", "/health"): "nothing",
    ("GET", "/metrics"): "fleet",
    ("GET", TENANTS): "fleet",
    **DOOR_NEEDS,
}
ADDRESS: Final = re.compile(rb"/t/(" + TENANT_NAME.encode() + rb")(?:/.*)?", re.DOTALL)
AGAIN_S: Final = 30.0
"""After so long books that could not be opened, or given up, are tried again."""
SIZE_EVERY_S: Final = 10.0
THREADS_OF_TENANT, OTHER_THREADS = 16, 32
"""So many may wait for disks and buckets: those of one that does not answer take none from the others."""
OPENING: Final = "these books are being opened; ask again in a few seconds"


@dataclass(frozen=True)
class TenantState:
    """How a tenant does. `error`: why it is not served; None where it is."""

    name: str
    address: str
    status: str
    error: str | None
    store_bytes: int
    rows_received: int
    series: int


class Tenant:
    """One tenant while it is configured: its books are opened, kept current and served."""

    def __init__(self, given: TenantSettings, server: Settings, host: str, address: str, is_live: bool) -> None:
        """`server`: the settings of the server, whose proxies are trusted; `address`: its own."""
        self.given, self._is_live = given, is_live
        self.base = f"/t/{given.name}"
        self._address = address + self.base
        self.file = SettingsFile(given.config or Path(os.devnull), given.name, given.store)
        local = None
        with suppress(LoadfactorError):  # opening its books reports it
            local = self.file.read().local_folder
        self.folder = find_place(given.store, local).folder
        self.guard = Guard(TokenFile(self.folder), host, is_read_only=not is_live, is_closed=True)
        self.quota, self.error = Quota(given), OPENING
        self._closed = Gate(self._say_why, self.guard, bound(given), NEEDS_OF_TENANT)
        self.gate = self._closed
        self._kept: LiveBooks | None = None
        self._reload: Reload | None = None
        self.take(given, server)

    def take(self, given: TenantSettings, server: Settings) -> None:
        """Take limits and groups as they are now."""
        self.given = self.quota.settings = given
        self.guard.take(server.server.trusted_proxies, read_roles(server, given.groups), server.server.allowed_hosts)
        if self._kept:
            self._kept.service.collector.sent.most_series = given.series

    def reload(self) -> None:
        """Take its own configuration as it is now."""
        if self._reload:
            with of_tenant(self.file):
                self._reload.take()

    @property
    def counts(self) -> ReceiverCounts:
        """What it received so far."""
        return self._kept.service.counts() if self._kept else ReceiverCounts()

    def describe(self) -> TenantState:
        """How it does; looks at neither disk nor books."""
        health = self._kept.service.health()["status"] if self._kept and not self.error else "ok"
        counts = self.counts
        return TenantState(
            self.given.name,
            f"{self.base}/",
            "failing" if self.error else health,
            self.error or None,
            self.quota.store_bytes,
            counts.received,
            counts.series,
        )

    async def run(self) -> None:
        """Serve until cancelled; where that fails, again after a while."""
        with of_tenant(self.file):
            while True:
                try:
                    self.error = await (self._serve_live() if self._is_live else self._serve_at_rest())
                except Exception as error:  # whatever it is, the others go on
                    self.error = DEFECTS.explain(f"tenant {self.given.name}", error)
                write_line(level="error", event="a tenant is not served", error=self.error)
                await asyncio.sleep(AGAIN_S)

    def _read(self) -> Settings:
        found = self.file.look()
        if found.tenant:
            raise InputError(f"{self.file.path} has tables [[tenant]]; a tenant has none of its own")
        return found

    async def _serve_live(self) -> str:
        """Serve until the books could not be written for too long; why."""
        found = self._read()
        context = copy_context()
        with ThreadPoolExecutor(1, "open books") as thread:
            opening = asyncio.get_running_loop().run_in_executor(thread, context.run, open_live, found.store, found)
            try:
                opened = await asyncio.shield(opening)
            except asyncio.CancelledError:
                with suppress(LoadfactorError, OSError):
                    (await opening).live.close()
                raise
        try:
            self._kept = kept = LiveBooks(opened, self.guard, found, self._address, self.quota)
        except BaseException:
            opened.live.close()
            raise
        kept.service.collector.sent.most_series = self.given.series
        self._reload = Reload(self.folder, found, kept)
        async with kept.running():
            try:
                return await self._show(kept.gate, opened.books.store, kept.wait_until_given_up())
            finally:
                self._reload = None

    async def _serve_at_rest(self) -> str:
        found = self._read()
        books = await asyncio.to_thread(Books.open, found.store, idle_below=found.idle_below)
        gate = make_app(books, AtRest(), self.guard, bound(self.given), is_live=False, quota=self.quota)
        await self._show(gate, books.store, asyncio.Event().wait())
        return ""

    async def _show(self, gate: Gate, store: Store, until: Awaitable[FoundT]) -> FoundT:
        """Answer from these books until something is there."""
        sizing = asyncio.create_task(self._look_at_size(store))
        gate.answered, gate.limited = self._closed.answered, self._closed.limited  # one count, whatever answers
        self.gate, self.error = gate, ""
        try:
            return await until
        finally:
            self.gate, self.error = self._closed, "these books are closed; ask again a little later"
            sizing.cancel()
            gate.close()

    async def _look_at_size(self, store: Store) -> None:
        while True:
            with suppress(LoadfactorError, OSError):
                self.quota.store_bytes = await asyncio.to_thread(measure_bytes, store)
            await asyncio.sleep(SIZE_EVERY_S)

    async def _say_why(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        raise StoreError(self.error)


def read_roles(server: Settings, groups: dict[str, str]) -> ProxyUsers | None:
    """How the trusted proxies of a server name who asks, with the roles of these groups."""
    given = server.server
    return ProxyUsers(given.user_header, given.groups_header, groups) if given.user_header else None


def measure_bytes(store: Store) -> int:
    """Bytes that books take: their files, and what lies live beside them."""
    live = [store.folder / name for name in (LIVE, LIVE + LOG_SUFFIX)]
    return sum(file.bytes for file in store.manifest.files) + sum(path.stat().st_size for path in live if path.exists())


class TenantServer:
    """The ASGI app of all: the tenants under their addresses, and at the root what administrators see."""

    def __init__(self, server: Settings, host: str, address: str, is_live: bool) -> None:
        """Administrators have tokens beside the store of the server's own settings."""
        self._host, self._address, self._is_live = host, address, is_live
        folder = find_place(server.store, server.local_folder).folder
        self.guard = Guard(TokenFile(folder), host, is_closed=True)
        self._nobody_guard = Guard(TokenFile(folder / "no tenant"), host, is_closed=True)
        self._nobody = Gate(_find_nothing, self._nobody_guard, Bounds(), NEEDS_OF_TENANT)
        self._root = Gate(self._make_root(folder), self.guard, Bounds(), ROOT_NEEDS)
        self._tenants: dict[str, Tenant] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[Path, asyncio.Task[None]] = {}
        """By the store that each still has open."""
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or scope.get("path", "").encode()
        found = ADDRESS.fullmatch(raw)
        if scope["type"] != "http" or found is None:
            await self._root(scope, receive, send)
            return
        name = found[1].decode()
        base = f"/t/{name}"
        path = scope["path"][len(base) :]
        if not path:
            await Response(None, 303, {"Location": f"{base}/"})(scope, receive, send)
            return
        inner = {
            **scope,
            "path": path,
            "raw_path": raw[len(base) :],
            "state": {**scope.get("state", {}), "base": base},
        }
        tenant = self._tenants.get(name)
        if tenant is None:
            await self._nobody(inner, receive, send)
            return
        with of_tenant(tenant.file):
            await tenant.gate(inner, receive, send)

    async def run(self, server: uvicorn.Server, listening: socket.socket) -> None:
        """Serve all until a signal, and leave everything kept."""
        server.config.load()  # of a certificate, which the reload reads again
        loop = asyncio.get_running_loop()
        most = OTHER_THREADS + THREADS_OF_TENANT * len(self._server.tenant)
        loop.set_default_executor(ThreadPoolExecutor(most, "tenants"))
        loop.add_signal_handler(signal.SIGHUP, partial(self._read_again, server.config.ssl))
        self.take(self._server)
        try:
            await server.serve(sockets=[listening])
        finally:
            ending = [*self._tasks.values(), *self._leaving.values()]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    def take(self, server: Settings) -> dict[str, Any]:
        """Serve the tenants of these settings; which came, left, and begin anew. Raises InputError, and nothing has changed."""
        given = {tenant.name: tenant for tenant in server.tenant}
        before = {name: tenant.given for name, tenant in self._tenants.items()}
        left = [name for name in before if name not in given]
        anew = [name for name, of in given.items() if name in before and _needs_start(before[name], of)]
        came = [name for name in given if name not in before]
        made = [Tenant(given[name], server, self._host, self._address, self._is_live) for name in (*anew, *came)]
        allowed_hosts = server.server.allowed_hosts
        self.guard.take(server.server.trusted_proxies, read_roles(server, server.server.groups), allowed_hosts)
        self._nobody_guard.take(server.server.trusted_proxies, read_roles(server, {}), allowed_hosts)
        self._server = server
        for name in (*left, *anew):
            del self._tenants[name]
            leaving = self._tasks.pop(name)
            leaving.cancel()
            self._leaving[before[name].store] = leaving
        for tenant in self._tenants.values():
            tenant.take(given[tenant.given.name], server)
            tenant.reload()
        for tenant in made:
            name = tenant.given.name
            self._tenants[name] = tenant
            self._tasks[name] = asyncio.create_task(self._begin(tenant, self._leaving.pop(tenant.given.store, None)))
        return {"came": came, "left": left, "anew": anew}

    @staticmethod
    async def _begin(tenant: Tenant, leaving: "asyncio.Task[None] | None") -> None:
        """Run a tenant once the one has left whose store is its own now; one that cannot leave hinders no other."""
        if leaving is not None:
            await asyncio.wait([leaving])
        await tenant.run()

    def _read_again(self, tls: SSLContext | None) -> None:
        """Take the configuration as it is in its file now, or, where something of it is wrong, nothing of it."""
        try:
            found = chosen().read()
            if not found.tenant:
                raise InputError("it has no [[tenant]] any more; that waits for the next start")
            certificate, key = self._server.server.tls_cert, self._server.server.tls_key
            check_certificate(certificate, key)
            if tls is not None and certificate is not None:
                tls.load_cert_chain(certificate, key)  # new connections have it
            changes = self.take(found)
        except (LoadfactorError, OSError) as error:
            why = say_why(error) if isinstance(error, OSError) else str(error)
            write_line(level="error", event="the configuration is not taken", error=why)
            return
        settings.cache_clear()
        write_line(event="the configuration was read again", **changes)

    def _list_doors(self) -> Iterator[tuple[str, Guard, Path]]:
        yield "", self.guard, self._root_folder
        for tenant in self._tenants.values():
            yield tenant.base, tenant.guard, tenant.folder

    def _make_root(self, folder: Path) -> FastAPI:
        self._root_folder = folder
        app = FastAPI(title="loadfactor", docs_url=None, redoc_url=None, openapi_url=None)
        add_door(app, Bounds(), self.guard, self._list_doors)

        @app.get("/health")
        async def health() -> Response:
            """Whether all tenants are served; names none."""
            failing = sum(bool(tenant.error) for tenant in self._tenants.values())
            status = "ok" if not failing else "degraded" if failing < len(self._tenants) else "failing"
            return JSONResponse({"status": status, "tenants": len(self._tenants), "failing": failing})

        @app.get(TENANTS)
        async def tenants() -> Response:
            """The tenants, and how each does."""
            return JSONResponse({"tenants": [asdict(state) for state in self._list_states()]})

        @app.get("/")
        async def page(request: Request) -> Response:
            """The same for a browser."""
            key = request.state.access.form_key
            return answer_html(render("tenants.html", title="Tenants", tenants=self._list_states(), form_key=key))

        @app.get("/metrics")
        async def metrics() -> Response:
            """What all tenants received and were refused, for Prometheus to scrape; the fleet of each is on its own page."""
            return Response(write_exposition(self._count()), media_type=MEDIA_TYPE)

        app.add_exception_handler(HTTPException, refuse_http)
        for kind in (LoadfactorError, RefusedError, Exception):
            app.add_exception_handler(kind, refuse_failed)
        return app

    def _list_states(self) -> list[TenantState]:
        return [tenant.describe() for _, tenant in sorted(self._tenants.items())]

    def _count(self) -> list[MetricFamily]:
        by_name = dict(sorted(self._tenants.items()))
        up = [({"tenant": name}, float(not tenant.error)) for name, tenant in by_name.items()]
        received = [({"tenant": name}, float(tenant.counts.received)) for name, tenant in by_name.items()]
        requests = [
            ({"tenant": name, "path": path, "status": str(status)}, float(count))
            for name, tenant in by_name.items()
            for (path, status), count in sorted(tenant.gate.answered.items())
        ]
        return [
            MetricFamily("loadfactor_server_tenant_up", "1 where the tenant is served.", "gauge", up),
            MetricFamily("loadfactor_server_rows_received_total", "Samples received.", "counter", received),
            MetricFamily(
                "loadfactor_server_requests_total", "Requests answered, by path and status.", "counter", requests
            ),
            *measure_process(),
            *count_limits({name: (t.quota, t.counts, t.gate.limited) for name, t in by_name.items()}),
        ]


async def _find_nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise RefusedError(404, NOTHING_HERE)


def _needs_start(before: TenantSettings, now: TenantSettings) -> bool:
    return (before.store, before.config, before.questions) != (now.store, now.config, now.questions)


def serve_tenants(listen: str, server: Settings, is_live: bool) -> None:
    """Serve the books of all tenants until SIGTERM or SIGINT; collect for them where `is_live`.

    Raises InputError where it cannot begin.
    """
    host, port = read_address(listen)
    with bind(host, port) as listening:
        prepare()
        address = name_address(host, listening, server)
        app = TenantServer(server, host, address, is_live)
        process = make_server(app, app.guard, server)
        names = ", ".join(f"{address}/t/{tenant.name}/" for tenant in server.tenant)
        write_notice(f"books of {len(server.tenant)} tenants at {names}")
        if not (is_loopback(host) or server.server.tls_cert or server.server.trusted_proxies):
            warning = "tokens travel unencrypted; give tls_cert and tls_key in [server] of the configuration"
            write_notice(warning)
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(app.run(process, listening))
