"""A running server takes a changed configuration at SIGHUP, says what waits for its next start, and nothing of a wrong one."""

import json
import signal
import time
from pathlib import Path
from typing import Any

from tests.commands import Run
from tests.live.fake_dcgm_exporter import FakeDcgmExporter, FleetTruth
from tests.live.up_process import UpProcess

WRONG = '[[alert]]\nname = "gpu_idle_longer"\nfor = "1h"\n'
RECEIVER = '[[alerts.receiver]]\nkind = "webhook"\nname = "here"\nurl = "http://127.0.0.1:9/"\n'


def reload(up: UpProcess) -> dict[str, Any]:
    """SIGHUP; the line that the server logs of it."""
    assert up.process
    before = len(up.log.read_text())
    up.process.send_signal(signal.SIGHUP)

    def read() -> list[dict[str, Any]]:
        lines = [line for line in up.log.read_text()[before:].splitlines(keepends=True) if line.endswith("\n")]
        return [json.loads(line) for line in lines if '"event": "the configuration' in line]

    up.wait_until(read)
    return read()[-1]


def group(name: str, exporter: FakeDcgmExporter) -> str:
    return f'[[dcgm]]\nname = "{name}"\ntargets = ["{exporter.address}"]\nevery = "1s"\n'


def test_a_signal_reloads_what_can_be(tmp_path: Path, run: Run) -> None:
    """Sources come, stay and go, receivers too; a currency waits for the next start, as `check` says; a mistake changes nothing."""
    config = tmp_path / "loadfactor.toml"
    truth = FleetTruth(gpus=2, began_s=time.time())
    with FakeDcgmExporter(truth) as stays, FakeDcgmExporter(truth) as comes:
        config.write_text(group("stays", stays))
        with UpProcess(tmp_path / "books", config=config) as up:
            names = lambda: {one["name"].removeprefix("dcgm ") for one in up.ask("/health")["sources"]}  # noqa: E731
            up.wait_until(lambda: "stays" in names() and stays.answers)
            check = ("check", "--config", config, "--store")
            assert "nothing differs" in " ".join(run(*check, up.store)[1].split())
            assert json.loads(run(*check, tmp_path / "none", "--json")[1])["reload"] is None
            config.write_text(f'currency = "EUR"\n{group("stays", stays)}{group("comes", comes)}{RECEIVER}')
            asked = json.loads(run(*check, up.store, "--json")[1])["reload"]
            assert (asked["taken"], asked["at_start"]) == (["alerts", "dcgm"], ["currency"])
            line = reload(up)
            assert (line["level"], line["taken"], line["at_next_start"]) == (
                "warning",
                ["alerts", "dcgm"],
                ["currency"],
            )
            up.wait_until(lambda: comes.answers and {"stays", "comes"} <= names())
            up.wait_until(lambda: [one["name"] for one in up.ask("/health")["alerts"]["receivers"]] == ["here"])
            config.write_text(WRONG)
            assert (line := reload(up))["level"] == "error"
            assert "gpu_idle_longer" in line["error"]
            assert {"stays", "comes"} <= names()
            config.write_text(group("comes", comes))
            assert reload(up)["taken"] == ["alerts", "dcgm"]
            up.wait_until(lambda: "stays" not in names())
            assert up.ask("/health")["alerts"]["error"] is None
            assert up.stop() == 0
