"""A running server whose clock is set with libfaketime: it judges by the new time at once, and books no minute twice."""

import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.up_process import UpProcess

from loadfactor.books.books import Books

GPUS = 4
LIBRARY = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
STEPS = {"three hours ahead": 10_800, "back": 0, "a day behind": -86_400, "a year ahead": 31_536_000, "back again": 0}
NEAR_S = 120
"""So near to its time alerts are judged."""
CONFIG = """
[server]
flush_every = "10s"

[alerts]
judge_after = "5s"

[[dcgm]]
name = "gpus"
every = "5s"
targets = ["{address}"]
"""


def set_clock(file: Path, ahead_s: int) -> None:
    """Set the clock of the processes that read this file."""
    new = file.with_suffix(".new")
    new.write_text(f"{ahead_s:+d}\n")
    new.rename(file)


def wait_for_judge(up: UpProcess, ahead_s: int, after: str = "") -> str:
    """Wait until alerts are judged up to now by that clock, and further than `after`; up to when they are."""

    def is_near(health: dict[str, Any]) -> bool:
        judged = health["alerts"]["judged"] or after
        return judged > after and 0 <= time.time() + ahead_s - datetime.fromisoformat(judged).timestamp() <= NEAR_S

    judged: str = up.wait_for_health(is_near)["alerts"]["judged"]
    return judged


def test_a_clock_that_is_set_while_the_server_runs(tmp_path: Path) -> None:
    """Three hours ahead, back, a day behind, a year ahead and back: judged in time at each, and each minute is booked once."""
    assert LIBRARY is not None
    clock, config, store = tmp_path / "clock", tmp_path / "loadfactor.toml", tmp_path / "books"
    set_clock(clock, 0)
    environment = os.environ | {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    took: dict[str, float] = {}
    with FakeDcgmExporter(FleetTruth(gpus=GPUS)) as exporter:
        config.write_text(CONFIG.format(address=exporter.address))
        with UpProcess(store, config=config, environment=environment) as up:
            wait_for_judge(up, 0)
            for name, ahead_s in STEPS.items():
                began_s = time.monotonic()
                set_clock(clock, ahead_s)
                judged = wait_for_judge(up, ahead_s)
                took[name] = time.monotonic() - began_s
                health = up.ask("/health")
                assert any(source["name"] == "clock" and source["error"] for source in health["sources"]), health
                wait_for_judge(up, ahead_s, judged)  # and goes on
                up.wait_for_health(
                    lambda said: any((s["name"], s["status"]) == ("dcgm gpus", "ok") for s in said["sources"])
                )
            firing = up.ask("/api/v1/alerts", state="firing")["alerts"]
            assert up.stop() == 0
    print({name: f"{seconds:.0f} s" for name, seconds in took.items()})
    assert not [alert for alert in firing if alert["rule"] == "telemetry_lost"], firing
    assert up.log.read_text().count("our clock was set") >= len(STEPS)
    command = [
        sys.executable,
        "-c",
        "from loadfactor.interfaces.cli import main; main()",
        "doctor",
        "--store",
        str(store),
    ]
    assert "clock is degraded since" in subprocess.run(command, check=False, capture_output=True, text=True).stdout
    books = Books(store)
    samples = books.table("samples").execute()
    assert not samples.duplicated(["device_id", "to_utc"]).any()
    hours = [reading.value for reading in books.show("paid_gpu_hours", by=["device", "hour"])]
    assert max(value for value in hours if isinstance(value, float)) <= 1 + 1e-9, hours
