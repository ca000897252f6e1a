"""Hundreds of configured servers that are unreachable, slow or send garbage beside three good ones."""

import os
import time
from pathlib import Path

import pytest
from tests.live.server_farm import STEP_S, ServerFarm, answer_range
from tests.live.test_kills import ROUNDS
from tests.live.up_process import UpProcess, free_port

from loadfactor.books.books import Books

SERVERS = 1_000 if ROUNDS >= 200 else 200
BAD = ("never", "drip", "html", "wrong", "endless", "turns")
GOOD = 3
BACKFILL_S = 120
ASKED = 10
"""So often each good one is asked before the books are looked at."""
LONGEST_S = 240.0
MOST_RSS = 2 << 30


@pytest.mark.long
def test_bad_servers_disturb_no_good_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The good ones are asked as often as configured and their samples booked once; /health answers; the healed come back."""
    with ServerFarm(answer_range) as fake:
        lines = []
        closed = free_port()
        for number in range(SERVERS):
            kind = "good" if number < GOOD else [*BAD, "unreachable"][number % (len(BAD) + 1)]
            port = closed if kind == "unreachable" else fake.port
            every = "1s" if kind in ("good", "turns") else "5s"
            lines.append(
                f'[[prometheus]]\nname = "s{number}"\nurl = "http://127.0.0.1:{port}/{kind}/{number}"\nevery = "{every}"\n'
                f'backfill = "{BACKFILL_S}s"\n'
            )
        settings = tmp_path / "loadfactor.toml"
        settings.write_text("\n".join(lines))
        with UpProcess(tmp_path / "books", config=settings) as up:
            assert up.process
            took, most_rss, start = [], 0, time.monotonic()
            asked, health = [0], {}
            while min(asked) < ASKED:
                assert time.monotonic() < start + LONGEST_S, (asked, fake.kinds)
                began = time.monotonic()
                health = up.ask("/health")
                took.append(time.monotonic() - began)
                pages = int(Path(f"/proc/{up.process.pid}/statm").read_text().split()[1])
                most_rss = max(most_rss, pages * os.sysconf("SC_PAGE_SIZE"))
                time.sleep(0.25)
                asked = [len(fake.asked[f"good/{number}"]) for number in range(GOOD)]
            watched_s = time.monotonic() - start
            states = {s["name"].removeprefix("prometheus "): s["status"] for s in health["sources"]}
            assert {states[f"s{number}"] for number in range(GOOD)} == {"ok"}
            assert states[f"s{BAD.index('html') + len(BAD) + 1}"] == "failing"
            fake.healed.add("turns")
            turned = [f"s{n}" for n in range(GOOD, SERVERS) if n % (len(BAD) + 1) == BAD.index("turns")]
            end = time.monotonic() + LONGEST_S
            while not all(states.get(name) == "ok" for name in turned):
                assert time.monotonic() < end, [name for name in turned if states.get(name) != "ok"]
                time.sleep(1)
                states = {s["name"].removeprefix("prometheus "): s["status"] for s in up.ask("/health")["sources"]}
            assert up.stop() == 0
        rows = Books(tmp_path / "books").table("samples").execute()
        for number in range(GOOD):
            times = sorted(rows[rows["device_id"] == f"GPU-{number}"]["to_utc"])
            assert len(times) >= BACKFILL_S / STEP_S - 1
            assert times == list(range(times[0], times[-1] + 1, STEP_S * 1000))
        with capsys.disabled():
            print(
                f"\nmany servers: {SERVERS} configured, {GOOD} good, asked {asked} times in {watched_s:.0f} s; /health took at "
                f"most {max(took):.2f} s; {most_rss / 2**20:,.0f} MiB; {len(turned)} healed ones came back; "
                f"asked {dict(fake.kinds)}"
            )
        assert most_rss < MOST_RSS
