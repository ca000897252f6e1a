"""Alerts begin, fire and end when they should, whichever way the data came and however often the judge was stopped."""

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.insight.alerts.small_fleet import (
    MINUTE,
    START,
    Level,
    list_times,
    make_books,
    make_samples,
    make_tables,
    minutes,
)
from tests.ledger.fleets import Row, Tables, add, batches
from tests.long import rest_long

import loadfactor.insight.alerts.judge as judge_module
from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Transition
from loadfactor.insight.alerts.judge import Judge, replay
from loadfactor.insight.alerts.rule import Rule, Threshold
from loadfactor.insight.alerts.rules import RULES
from loadfactor.insight.alerts.rules.jobs import JOBS, UTILIZATION
from loadfactor.insight.alerts.rules.money import MONEY
from loadfactor.insight.alerts.rules.queue import QUEUE
from loadfactor.insight.alerts.rules.telemetry import TELEMETRY
from loadfactor.metrics.query.calendar import instant

FLEET = Rule(
    "fleet", Threshold("utilization", "below", 0.5, 0.55, 600.0), (), 1800.0, "warning", "I/O", "It is low.", "Why?", "There."
)  # fmt: skip


def low_between(first: int, after: int) -> Level:
    return lambda minute: 0.3 if first <= minute < after else 0.8


@pytest.mark.long
def test_low_utilization_fires_once_and_ends(tmp_path: Path) -> None:
    """At 30 % from minute 180 to 420, ten minutes are under 50 % on average from the seventh on, and at 55 % again after five."""
    books = make_books(tmp_path, make_tables(low_between(180, 420)))
    (alert,) = replay(books, [FLEET])
    # (10 − n) × 0.8 + n × 0.3 < 5 from n = 7 on: the step that begins at minute 186; it holds 30 minutes at minute 216
    assert list_times([alert]) == [("fleet", 186, 216, 425)]
    assert alert.state == "resolved"
    assert alert.value == pytest.approx(0.3)
    assert alert.evidence[0] == "utilization 30 % over the last 10 min, below 50 %"


@pytest.mark.long
def test_what_works_unheld_counts_as_in_readings_however_often_rules_are_judged(tmp_path: Path) -> None:
    """Minute by minute the fleet's value is what `show utilization` says, with a GPU that nobody holds, samples of 5 min."""
    tables = make_tables(lambda _minute: 0.8, hours=2)
    held, free = tables["samples"][0]["device_id"], tables["samples"][1]["device_id"]
    long = [
        {**row, "from_utc": row["to_utc"] - 5 * MINUTE}
        for row in tables["samples"]
        if row["to_utc"] % (5 * MINUTE) == 0
    ]
    tables["samples"] = [{**row, "sm_active_share": 0.1} if row["device_id"] == held else row for row in long]
    tables["allocations"] = [row for row in tables["allocations"] if row["device_id"] != free]
    books = make_books(tmp_path, tables)
    judge, until = Judge([FLEET], START + 90 * MINUTE), START + 105 * MINUTE
    with books.watch() as watched:
        for at in range(START + 91 * MINUTE, until + 1, MINUTE):
            judge.step(watched, at)
    window = (instant(at) for at in (until - 10 * MINUTE, until))
    assert judge.verdicts["fleet"].value == pytest.approx([0.45])
    assert books.show("utilization", (), *window)[0].value == pytest.approx(0.45)


@pytest.mark.long
def test_a_gap_is_not_low_utilization(tmp_path: Path) -> None:
    """Four hours without a sample are no alert of utilization."""
    level = lambda minute: None if 180 <= minute < 420 else 0.8  # noqa: E731
    assert replay(make_books(tmp_path, make_tables(level)), UTILIZATION) == []


@pytest.mark.long
def test_a_firing_alert_ends_when_nothing_is_known_any_longer(tmp_path: Path) -> None:
    """Low, then silent: an hour after the window holds too little, nobody knows whether it is low still."""
    level = lambda minute: 0.3 if minute < 120 else None  # noqa: E731
    (alert,) = replay(make_books(tmp_path, make_tables(level)), [FLEET])
    assert alert.ended_because == "nothing is known of it any longer"
    assert 120 + 60 <= (minutes(alert.end_ms) or 0) <= 120 + 70


@pytest.mark.long
def test_a_judge_that_is_started_again_and_again_knows_since_when_nothing_is_known(tmp_path: Path) -> None:
    """An alert of which nothing is known any longer ends an hour later, however often the server is started meanwhile."""
    books = make_books(tmp_path, make_tables(lambda minute: 0.3 if minute < 180 else None))
    whole = replay(books, UTILIZATION)
    judge, found = Judge(UTILIZATION, START), list[Transition]()
    with books.watch() as watched:
        for minute in range(170, 420, 25):
            found += judge.step(watched, START + minute * MINUTE)
            judge = Judge.load(UTILIZATION, json.loads(json.dumps(judge.dump())))
    ended = [(t.alert.rule, t.at_ms) for t in found if t.alert.state == "resolved"]
    assert sorted(ended) == sorted((alert.rule, alert.end_ms) for alert in whole if alert.end_ms is not None)
    assert ended


@pytest.mark.long
def test_a_value_that_swings_around_the_limit_fires_once(tmp_path: Path) -> None:
    """Between the threshold and where it clears, an alert that fires goes on."""
    level = lambda minute: 0.8 if minute < 60 else 0.3 if minute < 120 else 0.45 + 0.08 * (minute // 20 % 2)  # noqa: E731
    (alert,) = replay(make_books(tmp_path, make_tables(level)), [FLEET])
    assert alert.state == "firing"


@pytest.mark.long
def test_the_groups_of_rules_have_their_holders(tmp_path: Path) -> None:
    """An alert of a job names its user and team."""
    books = make_books(tmp_path, make_tables(low_between(180, 420)))
    (alert,) = [a for a in replay(books, UTILIZATION) if a.rule == "job_utilization_low"]
    assert (dict(alert.by), dict(alert.holder)) == ({"job": "j"}, {"node": "n0", "user": "ann", "team": "red"})


TEAMS = 6


def make_teams(
    rnd: random.Random, levels: tuple[float, ...], minutes_each: int, gaps: float = 0.0
) -> tuple[Tables, list[list[Row]]]:
    """A team with a job on a GPU of its own for each of some random courses of levels, and by hour the samples of all.

    `gaps`: the share of minutes without a sample.
    """
    tables = make_tables(lambda _: None, gpus=TEAMS)
    for team, row in enumerate(tables["allocations"]):
        row.update(job_id=f"j{team}", team=f"team {team}")
    hours: list[list[Row]] = [[] for _ in range(10)]
    for team in range(TEAMS):
        choices = [rnd.choice(levels) for _ in range(600 // minutes_each)]
        course = [None if rnd.random() < gaps else level for level in choices for _ in range(minutes_each)]
        for hour, rows in enumerate(hours):
            rows += make_samples(course.__getitem__, range(hour * 60, hour * 60 + 60), [f"g{team}"])
    return tables, hours


@pytest.fixture(scope="module")
def random_books(tmp_path_factory: pytest.TempPathFactory) -> tuple[Books, list[tuple[str, int]]]:
    """Books of six teams, and the transitions of one go."""
    tables, hours = make_teams(random.Random(0), (0.2, 0.45, 0.52, 0.9), 40, 0.2)
    tables["samples"] = [row for rows in hours for row in rows]
    books = make_books(tmp_path_factory.mktemp("random"), tables)
    with books.watch() as watched:
        return books, [(t.key, t.at_ms) for t in Judge(UTILIZATION, START).step(watched, START + 600 * MINUTE)]


@pytest.mark.long
@pytest.mark.parametrize("seed", rest_long(range(3)))
def test_minute_by_minute_with_restarts_gives_what_a_replay_gives(
    random_books: tuple[Books, list[tuple[str, int]]], seed: int
) -> None:
    """Judged in random portions, dumped as JSON and loaded in between, the transitions are those of one go."""
    rnd = random.Random(seed)
    books, whole = random_books
    judge, found, at = Judge(UTILIZATION, START), list[Transition](), 0
    while at < 600:
        at = min(600, at + rnd.randint(1, 90))
        with books.watch() as watched:
            found += judge.step(watched, START + at * MINUTE)
        if rnd.random() < 0.5:
            judge = Judge.load(UTILIZATION, json.loads(json.dumps(judge.dump())))
    assert len(whole) > TEAMS
    assert sorted((t.key, t.at_ms) for t in found) == sorted(whole)


@pytest.mark.long
def test_late_data_that_shows_low_utilization_fires_then(tmp_path: Path) -> None:
    """What nobody knew at minute 300 fires when the samples of two hours come in late."""
    # Books that lack the samples of some minutes, and these.
    level = low_between(180, 420)
    late = range(170, 290)
    tables = make_tables(level)
    ids = [row["device_id"] for row in tables["devices"]]
    later = list(make_samples(level, late, ids))
    tables["samples"] = [row for row in tables["samples"] if row not in later]
    books = make_books(tmp_path, tables)
    judge = Judge([FLEET], START)
    with books.watch() as watched:
        assert judge.step(watched, START + 290 * MINUTE) == []
    add(books, batches({"samples": later}), "late", tmp_path)
    with books.watch() as watched:
        (fired,) = judge.step(watched, START + 290 * MINUTE, START + 170 * MINUTE)
    assert list_times([fired.alert]) == [("fleet", 186, 216, None)]


@pytest.mark.long
def test_late_data_that_shows_work_resolves(tmp_path: Path) -> None:
    """Half of the samples said low; with the other half it never was."""
    busy = lambda _minute: 0.9  # noqa: E731
    tables = make_tables(busy)
    tables["samples"] = list(make_samples(lambda _: 0.2, range(600), ["g0"]))
    books = make_books(tmp_path, tables)
    judge = Judge([FLEET], START)
    with books.watch() as watched:
        (fired,) = judge.step(watched, START + 120 * MINUTE)
    add(books, batches({"samples": list(make_samples(busy, range(600), ["g1"]))}), "late", tmp_path)
    with books.watch() as watched:
        (end,) = judge.step(watched, START + 120 * MINUTE, START)
    assert fired.alert.fingerprint == end.alert.fingerprint
    assert (end.alert.state, end.alert.ended_because[:4]) == ("resolved", "data")
    assert judge.alive == []


@pytest.mark.parametrize("seed", rest_long(range(2), 0))
def test_after_late_data_the_same_alerts_fire_as_if_it_had_been_in_time(tmp_path: Path, seed: int) -> None:
    """Samples of random hours come in later, in random order: in the end the alerts that fire are those of a replay."""
    rnd = random.Random(seed)
    tables, hours = make_teams(rnd, (0.2, 0.3, 0.6, 0.9), 60)
    books = make_books(tmp_path, tables)
    late: list[tuple[int, list[Row]]] = []
    judge = Judge(UTILIZATION, START)
    for hour, rows in enumerate(hours):
        changed = []
        late_of = [f"g{team}" for team in range(TEAMS) if rnd.random() < 0.4]
        late.append((hour, [row for row in rows if row["device_id"] in late_of]))
        in_time = [row for row in rows if row["device_id"] not in late_of]
        if in_time:
            add(books, batches({"samples": in_time}), f"hour {hour}", tmp_path)
        if rnd.random() < 0.5 or hour == 9:
            for at, of in late:
                if not of:
                    continue
                add(books, batches({"samples": of}), f"late {at} {hour}", tmp_path)
                changed.append(START + at * 60 * MINUTE)
            late = []
        with books.watch() as watched:
            judge.step(watched, START + (hour + 1) * 60 * MINUTE, min(changed, default=None))
    fires = {a.group for a in judge.alive if a.state == "firing"}
    assert fires == {a.group for a in replay(books, UTILIZATION) if a.state == "firing"}


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
def test_however_many_minutes_are_judged_at_once_the_alerts_are_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All at once, or some minutes at a time, read in other portions, while groups that are gone are forgotten every hour."""
    fleet = AnyFleet(random.Random(1))
    books = make_books(tmp_path, fleet.tables | {"samples": fleet.samples})
    whole = replay(books, OWN)
    for name, value in (("JUDGED_AT_ONCE", 7), ("ROWS_AT_ONCE", 300), ("FORGET_EVERY_MS", 60 * MINUTE)):
        monkeypatch.setattr(judge_module, name, value)
    assert replay(books, OWN) == whole
    assert whole


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
