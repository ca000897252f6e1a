"""A process that judges and tells is killed again and again: no transition is lost, none is repeated, receivers end alike."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from threading import Lock

import pytest
from tests.insight.alerts.delivery.teller import list_keys
from tests.live.local_server import LocalServer

from loadfactor.insight.alerts.delivery.outbox import read_outbox

ROOT = Path(__file__).resolve().parents[4]
STEPS = 60
KILLS = 12
LONGEST_S = 240.0


class Hook(LocalServer):
    """A webhook that keeps the states it was told; of requests it fails some, half of these after it took them."""

    def __init__(self, failing: float = 0.0, delay_s: float = 0.0) -> None:
        self.failing, self.delay_s = failing, delay_s
        self.states: dict[str, str] = {}
        self.keys: Counter[str] = Counter()
        self._chance, self._lock = random.Random(1), Lock()

    def respond(self, _path: str, body: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        told = json.loads(body)
        assert headers["idempotency-key"] == told["key"]
        with self._lock:
            fails, takes = self._chance.random() < self.failing, self._chance.random() < 0.5
            if not fails or takes:
                self.keys[told["key"]] += 1
                self.states[told["alert"]["id"]] = told["state"]
        return (500 if fails else 204), {}, b""


@pytest.mark.long
def test_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """After a dozen kills the outbox has each transition once, and each of three webhooks heard all: one that answers at once,
    one that fails half of the time, one that is late."""
    folder, config = tmp_path / "books", tmp_path / "loadfactor.toml"
    folder.mkdir()
    chance = random.Random(7)
    with Hook() as good, Hook(failing=0.5) as bad, Hook(delay_s=0.05) as late:
        hooks = {"good": good, "bad": bad, "late": late}
        tables = [f'[[alerts.receiver]]\nkind = "webhook"\nname = "{n}"\nurl = "{h.url}/x"\n' for n, h in hooks.items()]
        config.write_text("".join(tables))
        command = [sys.executable, "-m", "tests.insight.alerts.delivery.teller", str(folder), str(config), str(STEPS)]
        for _ in range(KILLS):
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
                time.sleep(chance.uniform(0.6, 1.6))
                process.kill()
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
            process.kill()
    keys = list_keys(STEPS)
    with read_outbox(folder) as connection:
        assert connection is not None
        with closing(connection.execute("SELECT key FROM transitions ORDER BY number")) as rows:
            assert sorted(key for (key,) in rows) == sorted(keys)
    for name, hook in hooks.items():
        assert set(hook.keys) == set(keys), name
        assert hook.states == good.states, name
    assert set(good.states.values()) == {"firing", "resolved"}
    assert sum(good.keys.values()) <= len(keys) + KILLS  # at most what was under way at a kill came twice
