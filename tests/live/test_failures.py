"""`loadfactor up` on a full disk, on damage, and beside other writers: it says so, recovers, and loses nothing it acknowledged."""

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.live.scrapes import Fleet
from tests.live.test_kills import NO_CONTENT, check_books
from tests.live.up_process import UpProcess, free_port
from tests.small_disk import mounted_disk

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.collect.collector import LiveCollector
from loadfactor.store.live import LiveLog

BEGAN_MS = int(time.time() * 1000) // MS_PER_HOUR * MS_PER_HOUR - 2 * MS_PER_HOUR
CLI = [
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'loadfactor'; from loadfactor.interfaces.cli import main; main()",
]


def run(*words: str) -> tuple[int, str]:
    """A command of ours: its exit code, and what it said on stderr."""
    done = subprocess.run([*CLI, *words], capture_output=True, text=True, timeout=120, check=False)
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
        answer = httpx.post(f"{up.url}/api/v1/write", content=bodies[refused], timeout=20)
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
