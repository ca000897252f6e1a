"""`loadfactor up` over kills, full disks, damage and other writers: what it acknowledged is in the books, once."""

import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from packages.track.tests.loops import run_loop
from tests.live.scrapes import Fleet
from tests.live.up_process import UpProcess, free_port
from tests.small_disk import mounted_disk
from tests.sources.prometheus.sender import SentSeries, pack_request
from tests.waiting import LONGEST_S

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.collect.collector import LiveCollector
from loadfactor.store.live import LiveLog

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
                queues.submit(senders.send, [mix_odd(fleet, k, queue) for k in scrapes])
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


def mix_odd(fleet: Fleet, k: int, queue: int) -> bytes:
    """One queue's part of a scrape, with series between that cannot be kept, or that nobody reads."""
    gpu, at_ms = fleet.series(k)[0].pairs, fleet.at_ms(k)
    odd = [
        SentSeries([("job", "x")], [(at_ms, 1.0)]),
        SentSeries([*gpu, ("gpu", "7")], [(at_ms, 1.0)]),
        SentSeries({"__name__": "kube_node_labels", **{f"label_{i}": "v" for i in range(300)}}, [(at_ms, 1.0)]),
        SentSeries(gpu, [(0, 1.0), (2**62, 1.0)]),
        SentSeries(
            {"__name__": "kube_pod_annotations", "annotation": "y" * 3000}, [(at_ms, float("nan"))], histograms=1
        ),
    ]
    series = [*fleet.series(k)[queue::QUEUES], odd[k % len(odd)]]
    random.Random(k).shuffle(series)
    return pack_request(series)


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


LOOP = """
with loadfactor.track(experiment="e", job="j") as run:
    for step in range({}):
        if step == {}:
            wait_until(lambda: count_written() == 40 and run._recorder._sender._sent == run._recorder._file.size)
            os.kill(os.getpid(), 9)
        run.step(step=step, samples=32, tokens=100 + step)
"""


def read_totals(books: Books) -> dict[tuple[str, bool], float]:
    """Progress in the books by unit, and whether it was kept."""
    rows = books.table("progress").to_pyarrow().to_pylist()
    keys = {(row["unit"], row["kept"]) for row in rows}
    return {k: n for k in keys if (n := sum(row["amount"] for row in rows if (row["unit"], row["kept"]) == k))}


@pytest.mark.long
def test_a_run_that_sends_is_in_the_books_once(tmp_path: Path) -> None:
    """A killed run, a killed server and a run that goes on make each step once, and what was done again is lost."""
    store, folder = tmp_path / "books", tmp_path / "progress"
    server = UpProcess(store).start()
    assert run_loop(LOOP.format("0, 60", 40), folder, LOADFACTOR_URL=server.url).returncode == -9
    server.kill()
    server.start()
    assert run_loop(LOOP.format("30, 60", -1), folder, LOADFACTOR_URL=server.url).stderr == ""
    refused = httpx.post(f"{server.url}/api/v1/progress", content=b'{"kind":"work"}', timeout=LONGEST_S)
    assert (refused.status_code, "line 1 comes before" in refused.text) == (400, True)
    server.stop()
    assert read_totals(Books.open(store)) == {
        ("step", True): 60,
        ("step", False): 10,
        ("train_sample", True): 60 * 32,
        ("train_sample", False): 10 * 32,
        ("train_token", True): sum(100 + step for step in range(60)),
        ("train_token", False): sum(100 + step for step in range(30, 40)),
    }


BEGAN_MS = int(time.time() * 1000) // MS_PER_HOUR * MS_PER_HOUR - 2 * MS_PER_HOUR
CLI = [
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'loadfactor'; from loadfactor.interfaces.cli import main; main()",
]


def run(*words: str) -> tuple[int, str]:
    """A command of ours: its exit code, and what it said on stderr."""
    done = subprocess.run([*CLI, *words], capture_output=True, text=True, timeout=LONGEST_S, check=False)
    return done.returncode, done.stderr


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 48 MiB in memory; skipped where none may be mounted."""
    with mounted_disk(tmp_path / "disk", 48) as folder:
        yield folder


def fill(disk: Path) -> Path:
    """Take all room of a disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler


@pytest.mark.long
def test_a_full_disk_refuses_until_there_is_room(disk: Path) -> None:
    """Writes get 503 with Retry-After and /health says why; with room again the same requests are taken, and counted once."""
    fleet = Fleet(BEGAN_MS, gpus=8)
    bodies = [body for k in range(240) for body in fleet.bodies(k)]
    with UpProcess(disk / "books") as up:
        assert {up.write(body) for body in bodies[:40]} == {NO_CONTENT}
        filler = fill(disk)
        refused = 40
        while (status := up.write(bodies[refused])) == NO_CONTENT:  # the log may have had some room left
            refused += 1
        assert status == httpx.codes.SERVICE_UNAVAILABLE
        answer = httpx.post(f"{up.url}/api/v1/write", content=bodies[refused], timeout=LONGEST_S)
        assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert int(answer.headers["Retry-After"]) > 0
        health = up.ask("/health")
        assert health["status"] == "failing"
        assert health["error"]
        filler.unlink()
        assert {up.write(body) for body in bodies[refused:]} == {NO_CONTENT}
        up.wait_until_booked()
        assert up.ask("/health")["status"] == "ok"
        assert up.stop() == 0
        check_books(up.store, fleet, 240)


@pytest.mark.long
@pytest.mark.parametrize("name", ["live.sqlite", "live.sqlite-wal"])
def test_damage_of_the_log_is_said_at_the_start(tmp_path: Path, name: str) -> None:
    """`up` ends with 1 and one line that names the next step; after it the server starts."""
    log, store = LiveLog.open(tmp_path / "first"), tmp_path / "books"
    for round_ in range(2 if name == "live.sqlite" else 1):
        collector = LiveCollector(log)
        for k in range(60):
            for body in Fleet(BEGAN_MS).bodies(60 * round_ + k):
                collector.stream("remote_write").receive(_received(body), time.monotonic()).number.result()
        collector.close()
        if name == "live.sqlite":
            log.close()  # what is in the log is in the database
            log = LiveLog.open(tmp_path / "first")
    shutil.copytree(tmp_path / "first", store)  # as a killed process leaves it
    log.close()
    content = bytearray((store / name).read_bytes())
    middle = len(content) // 2
    content[middle : middle + 512] = bytes(b ^ 0xA5 for b in content[middle : middle + 512])
    (store / name).write_bytes(content)
    code, said = run("up", "--store", str(store), "--listen", f"127.0.0.1:{free_port()}")
    assert code == 1
    assert len(said.strip().splitlines()) == 1, said
    assert "damaged" in said
    assert "loadfactor repair" in said
    code, said = run("repair", "--store", str(store))
    assert (store / "quarantine" / "live.sqlite").exists(), (code, said)
    with UpProcess(store) as up:
        assert up.write(next(Fleet(BEGAN_MS).bodies(200))) == NO_CONTENT
        assert up.stop() == 0


def _received(body: bytes):  # type: ignore[no-untyped-def]
    from loadfactor.store.live import ReceivedBody

    return ReceivedBody("remote_write", "remote_write", BEGAN_MS + 2 * MS_PER_HOUR, body)


@pytest.mark.long
def test_other_writers_beside_the_server(tmp_path: Path) -> None:
    """A second server is refused with the pid of the first; imports, merges and forgets wait for a flush, and a flush for them."""
    settings = tmp_path / "loadfactor.toml"
    settings.write_text('[server]\nflush_every = "1s"\n')
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "samples.csv").write_text("device_id,to_utc,source,busy_share\nelsewhere,2026-01-01T00:01:00Z,s,0.5\n")
    fleet = Fleet(BEGAN_MS, gpus=4)
    statuses: set[int] = set()
    with UpProcess(tmp_path / "books", config=settings) as up:
        code, said = run("up", "--store", str(up.store), "--listen", f"127.0.0.1:{up.port}")
        assert code == 1
        assert up.process
        assert f"(process {up.process.pid})" in said

        def send() -> None:
            for k in range(60):
                statuses.update(up.write(body) for body in fleet.bodies(k))
                time.sleep(0.05)

        sender = threading.Thread(target=send)
        sender.start()
        books = Books.open(up.store, create=True)
        while sender.is_alive():
            number = books.add("tables", [rows]).number
            books.compact()
            assert number is not None
            books.forget(number)
        sender.join()
        assert statuses == {NO_CONTENT}
        up.wait_until_booked()
        assert up.ask("/health")["error"] is None
        assert up.stop() == 0
    check_books(up.store, fleet, 60)
