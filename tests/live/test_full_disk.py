"""`loadfactor up` on a disk that takes nothing when it starts: it answers, says why, and goes on by itself."""

import errno
import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.live.scrapes import Fleet
from tests.live.test_kills import BEGAN_MS, NO_CONTENT, check_books, fill
from tests.live.up_process import UpProcess
from tests.small_disk import mounted_disk
from tests.waiting import LONGEST_S, wait_until

from loadfactor.interfaces.server.unopened import MEMORY, find_scratch_folder

REFUSED = httpx.codes.SERVICE_UNAVAILABLE


def make_full(disk: Path) -> Callable[[], object]:
    """Leave no room on a disk; what frees it."""
    return fill(disk).unlink


def make_read_only(disk: Path) -> Callable[[], object]:
    """Have a disk be read-only; what ends it."""
    run = ["mount", "-o", "remount,ro", str(disk)]
    subprocess.run(run, check=True)
    return lambda: subprocess.run([*run[:2], "remount,rw", run[3]], check=True)


@pytest.mark.parametrize(
    ("make_ill", "is_new"),
    [
        (make_full, False),
        pytest.param(make_full, True, marks=pytest.mark.long),
        pytest.param(make_read_only, False, marks=pytest.mark.long),
        pytest.param(make_read_only, True, marks=pytest.mark.long),
    ],
)
def test_a_server_that_starts_on_an_ill_disk_answers_and_goes_on_by_itself(
    tmp_path: Path, make_ill: Callable[[Path], Callable[[], object]], is_new: bool
) -> None:
    """Full or read-only, with 8 acknowledged requests or without books: questions answer, writes get 503; then all is booked."""
    fleet = Fleet(BEGAN_MS, gpus=4)
    bodies = [body for k in range(40) for body in fleet.bodies(k)]
    with mounted_disk(tmp_path / "disk", 24) as disk:
        up = UpProcess(disk / "books")
        up.log = tmp_path / "log"
        taken = 0
        if not is_new:
            with up:
                wait_until(lambda: up.write(bodies[0]) == NO_CONTENT)  # a new machine compiles first
                taken = 8
                assert {up.write(body) for body in bodies[1:taken]} == {NO_CONTENT}
                assert up.stop() == 0  # a killed one would leave a log behind, which gives room when it is opened
        heal = make_ill(disk)
        with up:
            assert up.process
            pid = up.process.pid
            health = up.ask("/health")
            (reason,) = health["reasons"]
            assert (health["status"], reason["component"], reason["severity"]) == ("failing", "store", "failing")
            assert "cannot be written" in reason["cause"]
            assert reason["since_utc"]
            assert "without a restart" in reason["action"]
            assert "readings" in up.ask("/api/v1/readings", metric="paid_gpu_hours")
            for page in ("/", "/sources", "/metrics"):
                answer = httpx.get(f"{up.url}{page}", headers={"Accept": "text/html"}, timeout=LONGEST_S)
                assert answer.status_code == httpx.codes.OK, page
            for method, path in (
                ("POST", "/api/v1/write"),
                ("POST", "/api/v1/progress"),
                ("POST", "/api/v1/imports?source=tables&filename=devices.csv"),
                ("POST", "/api/v1/silences"),
                ("DELETE", "/api/v1/silences/a"),
            ):
                answer = httpx.request(method, f"{up.url}{path}", timeout=LONGEST_S)
                assert (path, answer.status_code) == (path, REFUSED)
                assert int(answer.headers["Retry-After"]) > 0
                assert "cannot be written" in json.loads(answer.text)["error"]
            heal()
            wait_until(lambda: up.write(bodies[taken]) == NO_CONTENT)
            assert {up.write(body) for body in bodies[taken + 1 :]} == {NO_CONTENT}
            up.wait_until_booked()
            assert up.process.pid == pid
            up.wait_for_health(lambda said: said["status"] == "ok")
            assert up.stop() == 0
        check_books(up.store, fleet, 40)


def test_temporary_files_lie_in_memory_if_no_disk_takes_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With every temporary folder full, live rows are read from a copy in memory; a folder that takes files stays."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    find_scratch_folder()
    assert tempfile.tempdir == str(tmp_path)

    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    find_scratch_folder()
    assert tempfile.tempdir == MEMORY


def test_a_signal_ends_a_server_that_waits_for_room(tmp_path: Path) -> None:
    """SIGTERM ends it with 0 and leaves the disk as it was."""
    with mounted_disk(tmp_path / "disk", 8) as disk:
        up = UpProcess(disk / "books")
        up.log = tmp_path / "log"
        make_full(disk)
        with up:
            assert up.ask("/health")["status"] == "failing"
            assert up.stop() == 0
        assert "Traceback" not in up.log.read_text()
