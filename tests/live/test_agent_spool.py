"""A day without a server, on a disk that others fill, through two kills: what fitted arrives once the server is back."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.small_disk import mounted_disk
from tests.waiting import LONGEST_S

from loadfactor_agent.notices import Notices
from loadfactor_agent.sender import Sender
from loadfactor_agent.spool import Spool

MIB = 1024**2
EVERY_10_S = 8640
"""Bodies of a day, in each the samples of one look."""
SAMPLES = 5
CAP = 40 * MIB
"""More than the disk holds: the disk is what ends."""
DAY = """
import json, sys
from pathlib import Path
from loadfactor_agent.spool import Spool
folder, begin, end = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
spool = Spool(folder, int(sys.argv[4]))
for number in range(begin, end):
    kept = spool.add(str(number).encode().ljust(2000, b"."), 5)
    spool.sync()
    counts = spool.counts
    print(json.dumps([number, kept, counts.dropped_bodies, counts.dropped_samples]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """12 MiB, of which somebody else has two."""
    with mounted_disk(tmp_path / "disk", 12) as folder:
        (folder / "of-others").write_bytes(bytes(2 * MIB))
        yield folder


def live_until_killed(folder: Path, begin: int, end: int) -> list[tuple[int, bool, int, int]]:
    """An agent that keeps these bodies and is killed: what it said of each, and how much it had dropped by then."""
    process = subprocess.Popen(
        [sys.executable, "-c", DAY, str(folder), str(begin), str(end), str(CAP)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    said = [json.loads(process.stdout.readline()) for _ in range(begin, end)]
    process.kill()
    process.communicate()
    return said


class Server(ThreadingHTTPServer):
    """Takes what is sent, in order."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taker)
        self.taken: list[int] = []


class _Taker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        self.server.taken.append(int(self.rfile.read(int(self.headers["Content-Length"])).rstrip(b".")))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_a_day_away_on_a_full_disk_through_two_kills(small_disk: Path) -> None:
    """The newest that fits arrives without a hole, in order, each once; what did not fit is the oldest, counted body by body."""
    folder = small_disk / "spool"
    lives = [(0, EVERY_10_S // 3), (EVERY_10_S // 3, 2 * EVERY_10_S // 3), (2 * EVERY_10_S // 3, EVERY_10_S)]
    said = [live_until_killed(folder, *life) for life in lives]
    assert all(kept for life in said for _, kept, *_ in life)
    dropped = sum(life[-1][2] for life in said)
    assert sum(life[-1][3] for life in said) == SAMPLES * dropped
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    spool = Spool(folder, CAP)
    sender = Sender(f"http://127.0.0.1:{server.server_address[1]}", None, spool, Notices(lambda _: None))
    sender.start()
    sender.stop(LONGEST_S)  # sends what there is, then ends
    server.shutdown()
    assert server.taken == list(range(dropped, EVERY_10_S))
    assert spool.counts.dropped_bodies == spool.counts.damaged_segments == 0
    assert len(server.taken) * 2012 > 0.7 * 10 * MIB  # what was dropped was dropped for want of room


def test_room_that_comes_back_is_used(small_disk: Path) -> None:
    """A disk that others fill to the last byte: what is left is in order, what is lost is counted; with room again all is kept."""
    spool = Spool(small_disk / "spool", CAP)
    with (small_disk / "of-others").open("ab", buffering=0) as others:
        for number in range(200):
            assert spool.add(str(number).encode().ljust(2000, b"."), SAMPLES)
        with suppress(OSError):
            while others.write(bytes(4096)):
                pass
    for number in range(200, 400):
        spool.add(str(number).encode().ljust(2000, b"."), SAMPLES)
    lost = spool.counts.dropped_bodies
    assert spool.counts.dropped_samples == SAMPLES * lost
    (small_disk / "of-others").unlink()
    for number in range(400, 500):
        assert spool.add(str(number).encode().ljust(2000, b"."), SAMPLES)
    assert spool.counts.dropped_bodies == lost
    left = []
    while (waiting := spool.take(0)) is not None:
        left.append(int(waiting.body.rstrip(b".")))
        spool.confirm(waiting)
    assert len(left) == 500 - lost
    assert left == sorted(left)
    assert left[-100:] == list(range(400, 500))
