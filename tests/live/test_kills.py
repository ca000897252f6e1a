"""`loadfactor up` killed again and again, also in the middle of a request: what it acknowledged is in the books, once."""

import os
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from tests.live.scrapes import Fleet
from tests.live.up_process import UpProcess

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "3"))
SCRAPES_A_ROUND = 6
QUEUES = 3
NO_CONTENT = 204


@dataclass
class Report:
    """Events, for whoever reads the test's output."""

    kills: int = 0
    stops: int = 0
    torn_requests: int = 0
    sent: int = 0
    acknowledged: int = 0
    sent_again: int = 0
    said: dict[int, int] = field(default_factory=dict)

    def line(self, samples: int) -> str:
        """One line."""
        return (
            f"{self.kills} kills, {self.stops} SIGTERM, {self.torn_requests} requests torn; {self.sent} requests sent, "
            f"{self.acknowledged} acknowledged, {self.sent_again} sent again; {samples} samples in the books, each once; "
            f"other answers {self.said or 'none'}"
        )


class Senders:
    """Some queues that send bodies in their order, each again until it is acknowledged, as Prometheus does."""

    def __init__(self, up: UpProcess, report: Report) -> None:
        self._up, self._report = up, report
        self._lock = threading.Lock()
        self.may_send = threading.Event()

    def send(self, bodies: list[bytes]) -> None:
        """All of them."""
        for body in bodies:
            tries = 0
            while True:
                self.may_send.wait()
                tries += 1
                status = 0
                with suppress(httpx.HTTPError):
                    status = self._up.write(body, timeout_s=10)
                with self._lock:
                    self._report.sent += 1
                    self._report.sent_again += tries > 1
                    if status == NO_CONTENT:
                        self._report.acknowledged += 1
                    elif status:
                        self._report.said[status] = self._report.said.get(status, 0) + 1
                if status == NO_CONTENT:
                    break
                time.sleep(0.2)


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    """Flushes every second, so that kills meet them too."""
    path = tmp_path / "loadfactor.toml"
    path.write_text('[server]\nflush_every = "1s"\n')
    return path


@pytest.mark.long
def test_what_was_acknowledged_is_in_the_books_once(
    tmp_path: Path, settings_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After every kill the senders go on; in the end each sample is there once, with its values, and the books balance."""
    fleet = Fleet(
        int(time.time() * 1000) // 3_600_000 * 3_600_000 - (ROUNDS * SCRAPES_A_ROUND * 15 // 3600 + 2) * MS_PER_HOUR
    )
    up, report, chance = UpProcess(tmp_path / "books", config=settings_file), Report(), random.Random(1)
    senders = Senders(up, report)
    up.start()
    for round_ in range(ROUNDS):
        senders.may_send.set()
        scrapes = range(round_ * SCRAPES_A_ROUND, (round_ + 1) * SCRAPES_A_ROUND)
        with ThreadPoolExecutor(QUEUES) as queues:
            for queue in range(QUEUES):
                queues.submit(senders.send, [list(fleet.bodies(k, QUEUES))[queue] for k in scrapes])
            time.sleep(chance.choice((chance.uniform(0.0, 0.1), chance.uniform(0.1, 2.5))))
            if round_ % 2:
                report.torn_requests += tear_request(up, next(fleet.bodies(scrapes[-1])), chance)
            if round_ % 10 == 9:
                assert up.stop() == 0  # with requests under way, sometimes in the middle of a flush
                report.stops += 1
            else:
                up.kill()
                report.kills += 1
            up.start()  # the rest of this round is sent to it
    up.wait_until_booked()
    assert up.stop() == 0
    check_books(up.store, fleet, ROUNDS * SCRAPES_A_ROUND)
    with capsys.disabled():
        print(f"\nlive: {report.line(ROUNDS * SCRAPES_A_ROUND * fleet.gpus)}")


def tear_request(up: UpProcess, body: bytes, chance: random.Random) -> int:
    """Send a part of a request, and no more."""
    lines = ("POST /api/v1/write HTTP/1.1", f"Host: 127.0.0.1:{up.port}", "Content-Encoding: snappy")
    head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
    with suppress(OSError), socket.create_connection(("127.0.0.1", up.port), timeout=5) as s:
        s.sendall(head.encode() + body[: chance.randrange(len(body))])
        return 1
    return 0


def check_books(store: Path, fleet: Fleet, scrapes: int) -> None:
    """Every sample once, as it was sent."""
    books = Books(store)
    rows = books.table("samples").execute()
    rows = rows.sort_values(["device_id", "to_utc"]).reset_index(drop=True)
    expected = [
        (f"GPU-{gpu:08x}-0000-4000-8000-000000000000", fleet.at_ms(k), gpu, k)
        for gpu in range(fleet.gpus)
        for k in range(scrapes)
    ]
    assert list(zip(rows["device_id"], rows["to_utc"], strict=True)) == [(d, t) for d, t, _, _ in expected]
    for name, value in (
        ("sm_active_share", [fleet.sm_active(g, k) for _, _, g, k in expected]),
        ("mem_used_bytes", [fleet.memory_mib(g, k) * 2.0**20 for _, _, g, k in expected]),
    ):
        assert rows[name].to_numpy() == pytest.approx(value), name
    power = rows["power_w"].to_numpy()
    known = [i for i, (_, _, _, k) in enumerate(expected) if k and power[i] == power[i]]
    assert power[known] == pytest.approx([fleet.power_w(expected[i][2], expected[i][3]) for i in known])
    assert len(known) >= 0.9 * (len(expected) - fleet.gpus)
    total = {r.metric: r.value for r in books.show(["observed_gpu_hours", "allocated_gpu_hours", "utilization"])}
    hours = fleet.gpus * scrapes * 15 / 3600
    assert total["observed_gpu_hours"] == pytest.approx(hours)
    longest_first_step_h = fleet.gpus * 15 / 3600  # before a second scrape shows the step, it is the exporter's 30 s
    assert hours <= total["allocated_gpu_hours"] + 1e-9 <= hours + longest_first_step_h + 2e-9
    assert total["utilization"] == pytest.approx(sum(fleet.sm_active(g, k) for _, _, g, k in expected) / len(expected))
    assert books.check().balance.holds
