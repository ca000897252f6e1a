"""`loadfactor up` on a disk that fails for a time: nothing acknowledged is lost, and writing is taken up again, or it ends."""

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from tests.live.scrapes import Fleet
from tests.live.test_kills import BEGAN_MS, NO_CONTENT, check_books, fill
from tests.live.up_process import UpProcess
from tests.small_disk import mounted_disk
from tests.waiting import LONGEST_S, wait_until

FAILING_SYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>
static int ill(void) { return access(getenv("ILL_DISK"), F_OK) == 0; }
int fsync(int fd) { if (ill()) { errno = EIO; return -1; } return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
int fdatasync(int fd) { if (ill()) { errno = EIO; return -1; } return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
"""
"""A library that has every sync fail while a file is there."""


def send_until_ill(up: UpProcess, bodies: list[bytes], first: int) -> int:
    """Send until one is refused; how many were taken."""
    for number in range(first, len(bodies)):
        if (status := up.write(bodies[number])) != NO_CONTENT:
            assert status == httpx.codes.SERVICE_UNAVAILABLE
            return number
    raise AssertionError("every request was taken")


def send_again(up: UpProcess, body: bytes) -> None:
    wait_until(lambda: up.write(body) == NO_CONTENT)


@pytest.mark.long
@pytest.mark.parametrize("how", ["file size", "sync"])
def test_a_write_error_heals(tmp_path: Path, how: str) -> None:
    """While writing fails senders get 503 with Retry-After and /health says why; afterwards the same requests are taken, once."""
    settings = tmp_path / "loadfactor.toml"
    settings.write_text('[server]\nflush_every = "2s"\n')
    ill, environment = tmp_path / "ill", dict(os.environ)
    if how == "sync":
        if shutil.which("cc") is None:
            pytest.skip("no C compiler to make a failing disk with")
        source = tmp_path / "ill.c"
        source.write_text("#include <stdlib.h>\n" + FAILING_SYNC)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / "ill.so"), str(source), "-ldl"], check=True)
        environment |= {"LD_PRELOAD": str(tmp_path / "ill.so"), "ILL_DISK": str(ill)}
    fleet = Fleet(BEGAN_MS, gpus=8)
    bodies = [body for k in range(400) for body in fleet.bodies(k)]
    with UpProcess(tmp_path / "books", config=settings, environment=environment) as up:
        assert up.process
        send_again(up, bodies[0])  # a new machine compiles first
        assert {up.write(body) for body in bodies[1:8]} == {NO_CONTENT}
        if how == "sync":
            ill.touch()
        else:
            limit_files(up.process.pid, 10_000)
        refused = send_until_ill(up, bodies, 8)
        time.sleep(3)  # flushes and bookings fail as well
        answer = httpx.post(f"{up.url}/api/v1/write", content=bodies[refused], timeout=LONGEST_S)
        assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE
        assert int(answer.headers["Retry-After"]) > 0
        health = up.ask("/health")
        assert health["status"] == "failing"
        assert "cannot be written" in health["error"]
        if how == "sync":
            ill.unlink()
        else:
            limit_files(up.process.pid, None)
        send_again(up, bodies[refused])
        assert {up.write(body) for body in bodies[refused + 1 :]} == {NO_CONTENT}
        up.wait_until_booked()
        wait_until(lambda: up.ask("/health")["error"] is None)
        assert up.stop() == 0
    check_books(up.store, fleet, 400)


def limit_files(pid: int, size: int | None) -> None:
    """Have files of a process grow no larger."""
    soft = "unlimited" if size is None else str(size)
    subprocess.run(["prlimit", "--pid", str(pid), f"--fsize={soft}:unlimited"], check=True)


@pytest.mark.long
def test_a_disk_that_stays_ill_ends_the_process(tmp_path: Path) -> None:
    """After the time that is set it ends with 1 and one line; started again, what was acknowledged is in the books."""
    settings = tmp_path / "loadfactor.toml"
    settings.write_text('[server]\nexit_after = "3s"\n')
    fleet = Fleet(BEGAN_MS, gpus=8)
    bodies = [body for k in range(400) for body in fleet.bodies(k)]
    with mounted_disk(tmp_path / "disk", 24) as disk, UpProcess(disk / "books", config=settings) as up:
        send_again(up, bodies[0])
        assert {up.write(body) for body in bodies[1:8]} == {NO_CONTENT}
        filler = fill(disk)
        refused = send_until_ill(up, bodies, 8)
        assert up.process

        def is_over() -> bool:
            with suppress(httpx.HTTPError):
                up.write(bodies[refused])
            assert up.process
            return up.process.poll() is not None

        wait_until(is_over)
        assert up.process.returncode == 1
        filler.unlink()
        up.start()
        assert {up.write(body) for body in bodies[refused:]} == {NO_CONTENT}
        up.wait_until_booked()
        assert up.stop() == 0
        check_books(up.store, fleet, 400)
