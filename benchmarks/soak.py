"""Does the live server grow? An hour of 64 GPUs in scrapes of 15 s, sent a hundred times as fast, to `loadfactor up` as a process.

`soak_rss_growth` is the resident memory of the server at the end over that after the first tenth. `soak_ack_growth` is the median
time to an acknowledgement in the last tenth over that in the second one, `soak_ack_p99_growth` the 99th percentile likewise.
`soak_files` is the number of files of the store at the end, `soak_file_growth` that over the number in the middle. Files are made
every five minutes of the time that is simulated. `python -m benchmarks.soak HOURS` takes longer.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.live.scrapes import STEP_MS, Fleet
from tests.live.up_process import UpProcess

from loadfactor.base.units import MS_PER_HOUR, MS_PER_S

NAME = "soak"
SPEED, GPUS, QUEUES = 100, 64, 4
FLUSH_S = 300 / SPEED
NO_CONTENT = 204


def run(quick: bool) -> dict[str, float]:
    """The ratios of an hour; of a quarter where it is quick."""
    return soak(0.25 if quick else 1.0)


def soak(hours: float) -> dict[str, float]:
    """Send so many hours, and measure."""
    scrapes = int(hours * MS_PER_HOUR / STEP_MS)
    fleet = Fleet(int(time.time() * MS_PER_S - hours * MS_PER_HOUR), gpus=GPUS)
    rss: list[int] = []
    files: list[int] = []
    took_s: list[list[float]] = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # where the books would lie: /tmp may be memory
        settings = Path(folder) / "loadfactor.toml"
        settings.write_text(f'[server]\nflush_every = "{FLUSH_S:g}s"\n')
        with UpProcess(Path(folder) / "books", config=settings) as up:
            assert up.process
            began = time.monotonic()
            for k in range(scrapes):
                bodies = list(fleet.bodies(k, QUEUES))
                time.sleep(max(0.0, began + k * STEP_MS / MS_PER_S / SPEED - time.monotonic()))
                took_s.append([_send(up, body) for body in bodies])
                rss.append(_read_rss(up.process.pid))
                files.append(sum(1 for _ in up.store.iterdir()))
            up.wait_until_booked()
            assert up.ask("/health")["error"] is None
            assert up.stop() == 0
    tenth = scrapes // 10
    early = sorted(s for one in took_s[tenth : 2 * tenth] for s in one)
    late = sorted(s for one in took_s[-tenth:] for s in one)
    return {
        "soak_rss_growth": median(rss[-tenth // 2 :]) / median(rss[tenth : tenth + tenth // 2 + 1]),
        "soak_ack_growth": median(late) / median(early),
        "soak_ack_p99_growth": late[len(late) * 99 // 100] / early[len(early) * 99 // 100],
        "soak_files": max(files[-tenth:]),
        "soak_file_growth": max(files[-tenth:]) / max(files[scrapes // 2 : scrapes // 2 + tenth]),
    }


def _send(up: UpProcess, body: bytes) -> float:
    """Seconds to the acknowledgement."""
    began = time.perf_counter()
    assert up.write(body) == NO_CONTENT
    return time.perf_counter() - began


def _read_rss(pid: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    for name, value in soak(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0).items():
        print(f"{name:24s} {value:,.4g}")
