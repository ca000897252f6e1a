"""Are the alerts of random fleets the same judged in one go, minute by minute, after restarts, and when data comes late?"""

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.insight.alerts.small_fleet import MINUTE, START, make_books
from tests.ledger.fleets import Row, Tables, add, batches

from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Transition
from loadfactor.insight.alerts.judge import Judge
from loadfactor.insight.alerts.rules import RULES
from loadfactor.insight.alerts.rules.jobs import JOBS
from loadfactor.insight.alerts.rules.money import MONEY
from loadfactor.insight.alerts.rules.queue import QUEUE
from loadfactor.insight.alerts.rules.telemetry import TELEMETRY

MINUTES = 300
OWN = (*JOBS, *TELEMETRY, *QUEUE, *MONEY)
SECOND = 1000


class AnyFleet:
    """Two nodes of three GPUs with jobs one after the other, some idle for long, gaps, waits, an outage and prices."""

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.end = START + MINUTES * MINUTE
        self.devices = [f"n{n}g{g}" for n in range(2) for g in range(3)]
        self.samples = [row for device in self.devices for row in self._sample(device)]
        self.tables: Tables = {
            "devices": [
                {
                    "device_id": d,
                    "node": d[:2],
                    "pool": "p",
                    "accelerator": "a10",
                    "from_utc": START,
                    "to_utc": self.end,
                    "known_from": "list",
                }
                for d in self.devices
            ],
            "allocations": self._hold(),
            "queue_events": self._wait(),
            "prices": [
                {
                    "pool": "p",
                    "basis": "list",
                    "price_per_gpu_hour": 1.0,
                    "to_utc": START + rnd.randrange(MINUTES) * MINUTE,
                }
            ],
        }

    def at(self) -> int:
        """An instant, on a full minute or not."""
        return START + self.rnd.randrange(MINUTES) * MINUTE + self.rnd.choice((0, 0, 20 * SECOND))

    def _sample(self, device: str) -> list[Row]:
        """Samples each minute, with gaps, in stretches of work, of rest and of silence."""
        rows, minute, phase = [], 0, self.rnd.choice((0, 0, 30 * SECOND))
        while minute < MINUTES - 1:
            level, length = self.rnd.choice((0.9, 0.9, 0.0, 0.0, 0.04, None)), self.rnd.choice((1, 5, 30, 70, 120))
            for at in range(minute, min(minute + length, MINUTES - 1)):
                begin = START + at * MINUTE + phase
                if level is not None and self.rnd.random() < 0.97:
                    rows.append(
                        {
                            "device_id": device,
                            "source": "s",
                            "from_utc": begin,
                            "to_utc": begin + MINUTE,
                            "sm_active_share": level,
                        }
                    )
            minute += length
        return rows

    def _hold(self) -> list[Row]:
        """Jobs of some GPUs of a node, one after the other; some come back after a pause."""
        rows: list[Row] = []
        for node in ("n0", "n1"):
            at, number = START + self.rnd.choice((0, 10)) * MINUTE, 0
            while at < self.end:
                job = f"{node}-{self.rnd.choice((number, 0))}"
                to = at + self.rnd.choice((20, 90, 200)) * MINUTE + self.rnd.choice((0, 20 * SECOND))
                purpose = self.rnd.choice((None, "training", "notebook"))
                for gpu in range(self.rnd.choice((1, 2, 3))):
                    own = {"job_id": job, "device_id": f"{node}g{gpu}", "user": "u", "team": "t", "purpose": purpose}
                    rows.append({**own, "from_utc": at, "to_utc": min(to, self.end)})
                at, number = to + self.rnd.choice((0, 1, 15)) * MINUTE, number + 1
        return rows

    def _wait(self) -> list[Row]:
        rows: list[Row] = []
        for number in range(8):
            first = self.at()
            own = {"job_id": f"w{number}", "gpus": self.rnd.choice((1, 3, 6)), "pool": "p"}
            rows.append(
                {
                    **own,
                    "event": "submitted",
                    "at_utc": first,
                    "reason": self.rnd.choice((None, "Resources", "Dependency")),
                }
            )
            rows.append(
                {
                    **own,
                    "event": "eligible",
                    "at_utc": first + 7 * MINUTE,
                    "reason": self.rnd.choice(("Priority", "JobHeldUser")),
                }
            )
            if self.rnd.random() < 0.7:
                rows.append(
                    {
                        **own,
                        "event": self.rnd.choice(("started", "cancelled")),
                        "at_utc": first + self.rnd.choice((9, 60)) * MINUTE,
                    }
                )
        return rows


def judge_in_portions(books: Books, rnd: random.Random, portions: tuple[int, ...]) -> list[tuple[str, int]]:
    """Transitions of a judge that is stopped again and again."""
    judge, found, at = Judge(OWN, START), list[Transition](), 0
    while at < MINUTES:
        at = min(MINUTES, at + rnd.choice(portions))
        with books.watch() as watched:
            found += judge.step(watched, START + at * MINUTE)
        if rnd.random() < 0.5:
            judge = Judge.load(OWN, json.loads(json.dumps(judge.dump())))
    return [(told.key, told.at_ms) for told in found]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_one_go_portions_and_restarts_tell_the_same(seed: int) -> None:
    """In portions of an hour or of some minutes, stopped in between or not."""
    rnd = random.Random(seed)
    fleet = AnyFleet(rnd)
    with TemporaryDirectory() as folder:
        books = make_books(Path(folder), fleet.tables | {"samples": fleet.samples})
        with books.watch() as watched:
            whole = [(told.key, told.at_ms) for told in Judge(OWN, START).step(watched, fleet.end)]
        assert judge_in_portions(books, rnd, (7, 45, 61)) == whole


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_late_data_leaves_the_same_alerts_as_data_in_time(seed: int) -> None:
    """Samples of an hour of some GPUs come when two more hours were judged: what fires then is what would have fired."""
    rnd = random.Random(seed)
    fleet = AnyFleet(rnd)
    first = START + rnd.randrange(30, 200) * MINUTE
    late_of = rnd.sample(fleet.devices, 3)
    late = [r for r in fleet.samples if r["device_id"] in late_of and first <= r["from_utc"] < first + 60 * MINUTE]
    in_time = [row for row in fleet.samples if row not in late]
    with TemporaryDirectory() as folder:
        books = make_books(Path(folder), fleet.tables | {"samples": in_time})
        judge, until = Judge(OWN, START), min(first + 180 * MINUTE, fleet.end)
        with books.watch() as watched:
            judge.step(watched, until)
        add(books, batches({"samples": late}), "late", Path(folder))
        with books.watch() as watched:
            judge.step(watched, until, first)
            right = Judge(OWN, START)
            right.step(watched, until)
    firing = [{alert.group for alert in of.alive if alert.state == "firing"} for of in (judge, right)]
    assert firing[0] == firing[1]


def test_every_rule_of_these_files_is_judged() -> None:
    """The rules that are tested here are those that are shipped."""
    assert {rule.name for rule in OWN} <= {rule.name for rule in RULES}
