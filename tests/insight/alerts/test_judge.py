"""Do alerts begin, fire and end when they should, whichever way the data came and however often the judge was stopped?"""

import json
import random
from pathlib import Path

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

from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Transition
from loadfactor.insight.alerts.judge import Judge, replay
from loadfactor.insight.alerts.rule import Rule, Threshold
from loadfactor.insight.alerts.rules.jobs import UTILIZATION

FLEET = Rule(
    "fleet", Threshold("utilization", "below", 0.5, 0.55, 600.0), (), 1800.0, "warning", "I/O", "It is low.", "Why?", "There."
)  # fmt: skip


def low_between(first: int, after: int) -> Level:
    return lambda minute: 0.3 if first <= minute < after else 0.8


def test_low_utilization_fires_once_and_ends(tmp_path: Path) -> None:
    """At 30 % from minute 180 to 420, ten minutes are under 50 % on average from the seventh on, and at 55 % again after five."""
    books = make_books(tmp_path, make_tables(low_between(180, 420)))
    (alert,) = replay(books, [FLEET])
    # (10 − n) × 0.8 + n × 0.3 < 5 from n = 7 on: the step that begins at minute 186; it holds 30 minutes at minute 216
    assert list_times([alert]) == [("fleet", 186, 216, 425)]
    assert alert.state == "resolved"
    assert alert.value == pytest.approx(0.3)
    assert alert.evidence[0] == "utilization 30 % over the last 10 min, below 50 %"


def test_a_gap_is_not_low_utilization(tmp_path: Path) -> None:
    """Four hours without a sample are no alert of utilization."""
    level = lambda minute: None if 180 <= minute < 420 else 0.8  # noqa: E731
    assert replay(make_books(tmp_path, make_tables(level)), UTILIZATION) == []


def test_a_firing_alert_ends_when_nothing_is_known_any_longer(tmp_path: Path) -> None:
    """Low, then silent: an hour after the window holds too little, nobody knows whether it is low still."""
    level = lambda minute: 0.3 if minute < 120 else None  # noqa: E731
    (alert,) = replay(make_books(tmp_path, make_tables(level)), [FLEET])
    assert alert.ended_because == "nothing is known of it any longer"
    assert 120 + 60 <= (minutes(alert.end_ms) or 0) <= 120 + 70


def test_a_value_that_swings_around_the_limit_fires_once(tmp_path: Path) -> None:
    """Between the threshold and where it clears, an alert that fires goes on."""
    level = lambda minute: 0.8 if minute < 60 else 0.3 if minute < 120 else 0.45 + 0.08 * (minute // 20 % 2)  # noqa: E731
    (alert,) = replay(make_books(tmp_path, make_tables(level)), [FLEET])
    assert alert.state == "firing"


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


def late_books(folder: Path, level: Level, late: range) -> tuple[Books, list[Row]]:
    """Books that lack the samples of some minutes, and these."""
    tables = make_tables(level)
    ids = [row["device_id"] for row in tables["devices"]]
    later = list(make_samples(level, late, ids))
    tables["samples"] = [row for row in tables["samples"] if row not in later]
    return make_books(folder, tables), later


def test_late_data_that_shows_low_utilization_fires_then(tmp_path: Path) -> None:
    """What nobody knew at minute 300 fires when the samples of two hours come in late."""
    books, later = late_books(tmp_path, low_between(180, 420), range(170, 290))
    judge = Judge([FLEET], START)
    with books.watch() as watched:
        assert judge.step(watched, START + 290 * MINUTE) == []
    add(books, batches({"samples": later}), "late", tmp_path)
    with books.watch() as watched:
        (fired,) = judge.step(watched, START + 290 * MINUTE, START + 170 * MINUTE)
    assert list_times([fired.alert]) == [("fleet", 186, 216, None)]


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


@pytest.mark.parametrize("seed", rest_long(range(2)))
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
