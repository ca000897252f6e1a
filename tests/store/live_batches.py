"""Batches for tests of the live log, and a process that is killed while it acknowledges some."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from loadfactor.store.live import LiveBatch, LiveLog, read_live

START = 1_767_225_600_000  # 2026-01-01


def batch(rows: int = 20, first: int = 0) -> LiveBatch:
    """Samples of one GPU, a second apart."""
    times = [START + 1000 * (first + i) for i in range(rows)]
    data = {"device_id": ["g0"] * rows, "to_utc": times, "busy_share": [i / rows for i in range(rows)]}
    return LiveBatch("dcgm", "samples", pa.table(data), "node-7:9400")


def numbers(folder: Path, after: int = 0) -> list[int]:
    return [number for number, _ in read_live(folder, after)]


def on_disk(folder: Path) -> dict[str, tuple[int, int]]:
    return {p.name: (p.stat().st_size, p.stat().st_mtime_ns) for p in folder.iterdir()} | {
        ".": (0, folder.stat().st_mtime_ns)
    }


def in_child(work: Callable[[int], None]) -> tuple[int, list[str]]:
    """Do something in a forked process that prints into a pipe; its exit code and its lines."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        try:
            work(into)
            os._exit(0)
        except BaseException as error:
            os.write(into, f"{type(error).__name__} {error}\n".encode())
            os._exit(1)
    os.close(into)
    with os.fdopen(out) as lines:
        said = lines.read().splitlines()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def acknowledge_until_killed(folder: Path, into: int, most: int) -> None:
    """Several threads acknowledge batches and say each number that they were given; after `most` the process is killed."""
    log, given = LiveLog.open(folder), threading.Lock()
    said = 0

    def acknowledge() -> None:
        nonlocal said
        while True:
            number = log.acknowledge([batch(200)])
            os.write(into, f"{number}\n".encode())
            with given:
                said += 1
                if said >= most:
                    os.kill(os.getpid(), signal.SIGKILL)

    threads = [threading.Thread(target=acknowledge) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
