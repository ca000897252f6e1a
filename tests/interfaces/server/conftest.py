"""A server over the books of a small fleet with two teams, and a receiver that only remembers."""

import csv
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from loadfactor.base.errors import BusyError, InputError
from loadfactor.base.health import HealthReason
from loadfactor.books.books import Books
from loadfactor.collect.live import ReceiverCounts, WriteAnswer
from loadfactor.interfaces.server.app import make_app
from loadfactor.interfaces.server.guard import Bounds, Guard
from loadfactor.interfaces.server.scrape import GaugeWindow
from loadfactor.store.tokens import TokenFile

HOUR = 3_600_000
START = 1_790_000_000_000 // HOUR * HOUR
HOURS = 4
LOCAL = "http://127.0.0.1"
MINE, THEIRS = "minerals", "hushhush"


@dataclass
class Remembering:
    """A receiver that keeps bodies in memory."""

    bodies: list[bytes] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)

    async def write(self, body: bytes, origin: str) -> WriteAnswer:
        """Refuse what begins with bad or busy."""
        assert origin == "remote_write"
        if body.startswith(b"bad"):
            self.refused["malformed"] += 1
            raise InputError("this is no remote_write request")
        if body.startswith(b"busy"):
            raise BusyError("the queue is full", 7)
        if body.startswith(b"bug"):
            raise ZeroDivisionError("lf_ThisMustNotBeSaidToAnybodyAtAll0123456789")
        self.bodies.append(body)
        return WriteAnswer(1)

    async def keep_progress(self, records: Sequence[dict[str, Any]]) -> None:
        """Keep them as bodies."""
        self.bodies += [json.dumps(record).encode() for record in records]

    def health(self) -> dict[str, Any]:
        """As the contract says."""
        source = {"name": "dcgm:a", "status": "ok", "last_sample": "2026-10-01T00:00:00Z", "error": None}
        return {"status": "ok", "sources": [source], "lag_s": 0.0}

    def reasons(self) -> list[HealthReason]:
        """None."""
        return []

    def counts(self) -> ReceiverCounts:
        """What there was."""
        return ReceiverCounts(len(self.bodies), len(self.bodies), dict(self.refused), errors={"prom:a": 2})


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Rows as a file of one table."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_fleet(folder: Path) -> Path:
    """Tables of two nodes of two GPUs: MINE holds those of one node, THEIRS those of the other."""
    folder.mkdir()
    gpus = {(team, n): f"GPU-{team}-{n}" for team in (MINE, THEIRS) for n in range(2)}
    write_csv(
        folder / "devices.csv",
        [
            {"device_id": d, "node": f"node-{t}", "accelerator": f"H100-{t}", "pool": f"pool-{t}", "from_utc": START}
            for (t, _), d in gpus.items()
        ],
    )
    of_holder = [
        (t, f"job-{t}", f"user-{t}", f"project-{t}", f"experiment-{t}", f"purpose-{t}") for t in (MINE, THEIRS)
    ]
    names = ("team", "job_id", "user", "project", "experiment_id", "purpose")
    end = START + HOURS * HOUR
    write_csv(
        folder / "allocations.csv",
        [
            dict(zip(names, holder, strict=True)) | {"device_id": d, "from_utc": START, "to_utc": end}
            for holder in of_holder
            for (team, _), d in gpus.items()
            if team == holder[0]
        ],
    )
    write_csv(
        folder / "queue_events.csv",
        [
            dict(zip(names, (t, f"waiting-{t}", *rest), strict=True))
            | {"at_utc": START + HOUR, "event": "submitted", "pool": f"pool-{t}", "gpus": 3, "reason": f"reason-{t}"}
            for t, _, *rest in of_holder
        ],
    )
    write_csv(
        folder / "samples.csv",
        [
            {"device_id": d, "to_utc": at, "sm_active_share": 0.5 if t == MINE else 0.7654321}
            for (t, _), d in gpus.items()
            for at in range(START + HOUR // 60, end + 1, HOUR // 60)
        ],
    )
    write_csv(
        folder / "prices.csv",
        [
            {"pool": f"pool-{t}", "basis": "contracted", "price_per_gpu_hour": p, "currency": "USD"}
            for t, p in ((MINE, 2.0), (THEIRS, 7919.0))
        ],
    )
    return folder


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the two teams."""
    return write_fleet(tmp_path_factory.mktemp("fleet") / f"tables-of-{THEIRS}")


@pytest.fixture(scope="session")
def team_books(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> Books:
    """Their books. Tests may create tokens in them, and import nothing."""
    books = Books(tmp_path_factory.mktemp("served") / "books")
    books.add("tables", [fleet])
    return books


def serve(books: Books, bounds: Bounds | None = None, window: GaugeWindow | None = None) -> TestClient:
    """A client of a server over these books, in the moment at which they end."""
    guard = Guard(TokenFile(books.store.folder))
    app = make_app(
        books, Remembering(), guard, bounds, window or GaugeWindow(wait_s=3600), lambda: (START + HOURS * HOUR) / 1000
    )
    return TestClient(app, LOCAL, raise_server_exceptions=False, client=("127.0.0.1", 5000))


@pytest.fixture
def client(team_books: Books) -> Iterator[TestClient]:
    """A client on this machine, of a server without tokens."""
    with serve(team_books) as client:
        yield client


@pytest.fixture
def empty(tmp_path: Path) -> Books:
    """Books of which nothing is known yet."""
    return Books(tmp_path / "empty")
