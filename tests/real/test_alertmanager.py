"""A real Alertmanager ends with the alerts that fire here, through kills of ours, its own restart, and a silence."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from tests.insight.alerts.delivery.teller import START_MS, list_told
from tests.real.components import make_alertmanager
from tests.waiting import LONGEST_S, wait_until

from loadfactor.base.clock import now_ms
from loadfactor.insight.alerts.delivery.board import read_board
from loadfactor.insight.alerts.delivery.outbox import add_silence
from loadfactor.insight.alerts.delivery.silence import Silence

ROOT = Path(__file__).resolve().parents[2]
STEPS = 40


def read_alertmanager(url: str) -> set[tuple[str, str, str]]:
    """Rule, job and team of the alerts that an Alertmanager says are active."""
    found: list[dict[str, Any]] = httpx.get(f"{url}/api/v2/alerts", params={"active": "true"}, timeout=LONGEST_S).json()
    labels = [one["labels"] for one in found if one["status"]["state"] == "active"]
    return {(one["alertname"], one["job"], one["team"]) for one in labels}


def read_ours(folder: Path) -> set[tuple[str, str, str]]:
    """The same of the alerts that fire here and are not silenced."""
    board = read_board(folder, now_ms(), ("firing",))
    told = [one.alert for one in board.alerts if one.silence is None]
    return {(alert.rule, alert.by["job"], alert.holder["team"]) for alert in told}


def test_alertmanager_ends_as_we_do(tmp_path: Path) -> None:
    """Killed six times, and the Alertmanager away in between, both say that the same fires; what a silence hid is not there."""
    folder, config = tmp_path / "books", tmp_path / "loadfactor.toml"
    folder.mkdir()
    hidden = Silence("s1", "", {"job": "job-3"}, START_MS, now_ms() + 3_600_000, "known", "ann")
    add_silence(folder, hidden)
    with make_alertmanager(tmp_path / "alertmanager") as alertmanager:
        config.write_text(f'[[alerts.receiver]]\nkind = "alertmanager"\nurl = "{alertmanager.url}"\nresend = "1s"\n')
        command = [sys.executable, "-m", "tests.insight.alerts.delivery.teller", str(folder), str(config), str(STEPS)]
        for round_ in range(6):
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
                time.sleep(1.2 + 0.3 * round_)
                if round_ == 2:
                    alertmanager.kill()
                process.kill()
            if round_ == 3:
                alertmanager.start()
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
            ours = read_ours(folder)  # all was told
            wait_until(
                lambda: read_alertmanager(alertmanager.url) == ours, lambda: (read_alertmanager(alertmanager.url), ours)
            )
            process.kill()
    _, alive = list_told(STEPS - 1)
    assert ours == {(t.alert.rule, t.alert.by["job"], "red") for t in alive if t.alert.by["job"] != "job-3"}
    assert ours
