"""A pair of servers: what each gives the other, and which of the two leads, so that nobody hears of an alert or a digest twice.

Both receive and keep everything. One judges alerts and sends; the other copies its outbox, and goes on from there when the first
one does not answer any more. After both were apart, the one that led for longer goes on.
"""

import asyncio
import json
import os
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Final

from fastapi import FastAPI
from fastapi import Path as InPath
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from loadfactor.base.clock import now_ms
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.collect.peer import STORE_FILES, PeerServer
from loadfactor.collect.polling import PolledSource
from loadfactor.insight.alerts.delivery import outbox as kept
from loadfactor.insight.alerts.delivery.board import read_board
from loadfactor.insight.alerts.delivery.outbox import adopt_silences
from loadfactor.insight.alerts.delivery.silence import Silence
from loadfactor.interfaces.server.log import write_line
from loadfactor.interfaces.server.models import describe_shape
from loadfactor.interfaces.server.replies import Served, describe_errors
from loadfactor.settings.server import PairSettings
from loadfactor.store import disk
from loadfactor.store.live_copy import open_copy
from loadfactor.store.manifest import NAME, write_down

PAIR: Final = "/api/v1/pair"
OUTBOX: Final = "/api/v1/pair/outbox"
LOOK_EVERY_S: Final = 2.0
PIECE_BYTES: Final = BYTES_PER_MIB
BINARY: Final = "application/octet-stream"
FILE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "the file", "content": {BINARY: {}}},
    304: {"description": "unchanged since the answer of this ETag"},
    **describe_errors(404),
}


@dataclass(frozen=True)
class Standing:
    """Where a server of a pair stands: whether it leads, and since when; the silences it knows of."""

    name: str
    leads: bool
    since_ms: int
    silences: tuple[Mapping[str, Any], ...] = ()


def decide(own: Standing, other: Standing | None, silent_s: float, take_over_after_s: float) -> bool:
    """Whether this server leads now. `other`: what the other one answers, None where it does not; `silent_s`: for how long.

    >>> one, two = Standing("a", True, 5), Standing("b", True, 7)
    >>> decide(one, two, 0, 30), decide(two, one, 0, 30), decide(Standing("b", False, 7), None, 31, 30)
    (True, False, True)
    """
    if other is None:
        return own.leads or silent_s >= take_over_after_s
    if own.leads != other.leads:
        return own.leads
    return (own.since_ms if own.leads else 0, own.name) < (other.since_ms if own.leads else 0, other.name)


class Leading:
    """Whether this server judges alerts and sends; one without a pair always does. Any thread may look."""

    def __init__(self, leads: bool = True) -> None:
        self.name, self.leads, self.since_ms = secrets.token_hex(8), leads, now_ms()
        self.is_in_use = False
        """Whether the outbox is open: it is let go of a moment after leading ends."""

    def set(self, leads: bool) -> None:
        """Lead from now on, or follow."""
        if leads != self.leads:
            self.leads, self.since_ms = leads, now_ms()
            write_line(
                level="warning", event="alerts and digests", what="sent by this server" if leads else "by the other"
            )

    def describe(self, folder: Path) -> Standing:
        """What the other server is answered."""
        silences = read_board(folder, now_ms(), ()).silences
        return Standing(self.name, self.leads, self.since_ms, tuple(asdict(silence) for silence in silences))


class Following(PolledSource):
    """Asks the other server where it stands, leads or follows by it, and keeps a copy of the outbox while it follows."""

    def __init__(self, pair: PairSettings, folder: Path, leading: Leading) -> None:
        super().__init__("pair", ("",), LOOK_EVERY_S, None)
        self._peer, self._folder, self._leading = PeerServer(pair), folder, leading
        self._take_over_after_s, self._heard_s, self._version = pair.take_over_after.s, monotonic(), ""

    def poll(self) -> None:
        other: list[Standing] = []
        self._attempt("", lambda: self._ask(other))
        if other:
            self._heard_s = monotonic()
        own = Standing(self._leading.name, self._leading.leads, self._leading.since_ms)
        self._leading.set(
            decide(own, other[0] if other else None, monotonic() - self._heard_s, self._take_over_after_s)
        )
        if other:
            self._attempt("", lambda: self._follow(other[0]))

    def _ask(self, answers: list[Standing]) -> str:
        found = self._peer.get(PAIR)
        assert found is not None
        answers.append(Standing(**json.loads(found[1])))
        return ""

    def _follow(self, other: Standing) -> str:
        if other.leads and not self._leading.leads and not self._leading.is_in_use:
            found = self._peer.get(OUTBOX, self._version)
            if found is not None:
                own = self._leading.describe(self._folder).silences
                self._version = found[0]
                _put(self._folder / kept.NAME, found[1])
                adopt_silences(self._folder, [Silence(**silence) for silence in own])
        adopt_silences(self._folder, [Silence(**silence) for silence in other.silences])
        return ""


def _put(path: Path, content: bytes) -> None:
    """Put a database in place of another, which nobody writes to."""
    arriving = path.with_name(f"{path.name}.tmp")
    disk.write_file(arriving, content)
    for log in ("-wal", "-shm"):
        path.with_name(path.name + log).unlink(missing_ok=True)
    disk.rename(arriving, path)


def add_pair(app: FastAPI, served: Served, leading: Leading) -> None:
    """Add what a server gives the other one of its pair, and whoever reads its store from afar."""
    store = served.books.store

    @app.get(
        PAIR,
        responses={200: {"model": describe_shape(Standing), "description": "where it stands"}, **describe_errors()},
    )
    async def pair() -> Response:
        """Whether this server judges alerts and sends digests, since when, and the silences it knows of."""
        return JSONResponse(asdict(await served.pool.ask(lambda: leading.describe(store.folder))))

    @app.get(OUTBOX, responses=FILE, response_class=Response)
    async def outbox(request: Request) -> Response:
        """The outbox of alerts and digests as it is now, a SQLite database."""
        return await served.pool.ask(lambda: _copy_outbox(store.folder, request.headers.get("if-none-match", "")))

    @app.get(STORE_FILES + "/{name}", responses=FILE, response_class=Response)
    async def store_file(request: Request, name: Annotated[str, InPath(max_length=200)]) -> Response:
        """The manifest of the store (manifest.json), or a file that it names."""

        def work() -> Response:
            generation = store.place.open_newest()
            if name == NAME:
                with closing(generation):
                    content = write_down(generation.manifest)
                return _answer(content, f'"{generation.manifest.generation}"', request.headers.get("if-none-match", ""))
            file = next((file for file in generation.manifest.files if file.name == name), None)
            if file is None:
                generation.close()
                return JSONResponse({"error": f"no file {name} in this store now; read {NAME} again"}, 404)
            (path,) = store.place.locate([file])

            def read() -> Iterator[bytes]:
                with closing(generation), path.open("rb") as content:  # it stays while it is read
                    while piece := content.read(PIECE_BYTES):
                        yield piece

            return StreamingResponse(read(), 200, {"Content-Length": str(file.bytes)}, BINARY)

        return await served.pool.ask(work)


def _copy_outbox(folder: Path, seen: str) -> Response:
    path = folder / kept.NAME
    if not path.exists():
        return JSONResponse({"error": "no alerts were judged yet"}, 404)
    marks = [os.stat(of) for of in (path, path.with_name(f"{kept.NAME}-wal")) if of.exists()]
    version = '"' + "-".join(f"{mark.st_mtime_ns}-{mark.st_size}" for mark in marks) + '"'
    if version == seen:
        return Response(status_code=304)
    with open_copy(folder, kept.NAME) as found, closing(sqlite3.connect(":memory:")) as copy:
        found.backup(copy)
        return _answer(copy.serialize(), version, "")


def _answer(content: bytes, version: str, seen: str) -> Response:
    if version == seen:
        return Response(status_code=304)
    return Response(content, 200, {"ETag": version}, BINARY)


async def run_while_leading(
    leading: Leading, work: Callable[[], Coroutine[Any, Any, None]], leave: Callable[[], Awaitable[None]]
) -> None:
    """Run `work` while this server leads, again whenever it does; `leave` ends what it has open."""
    while True:
        while not leading.leads:
            await asyncio.sleep(LOOK_EVERY_S / 4)
        leading.is_in_use = True
        task = asyncio.create_task(work())
        try:
            while leading.leads and not task.done():
                await asyncio.wait([task], timeout=LOOK_EVERY_S / 4)
        finally:
            task.cancel()
            await asyncio.wait([task])
            await leave()
            leading.is_in_use = False
        if not task.cancelled():
            task.result()
