"""Are jobs told that hold GPUs and do not use them, and only these?"""

from pathlib import Path

import pytest
from tests.insight.alerts.small_fleet import HOUR, MINUTE, START, make_books, make_samples, make_tables, minutes
from tests.ledger.fleets import Tables

from loadfactor.insight.alerts.judge import Judge
from loadfactor.insight.alerts.replay import replay
from loadfactor.insight.alerts.rules.jobs import JOBS

Told = list[tuple[str, float | None, float | None, float | None]]


def judge(folder: Path, tables: Tables) -> Told:
    """Rule, and minutes from which on, at which and until when, of every alert."""
    alerts = replay(make_books(folder, tables), JOBS)
    return [(a.rule, minutes(a.start_ms), minutes(a.fired_ms), minutes(a.end_ms)) for a in alerts]


def test_a_job_that_never_works_is_idle_from_its_start(tmp_path: Path) -> None:
    """Zeros for ten hours: it fires half an hour after the start, and is still on when the books end."""
    assert judge(tmp_path, make_tables(lambda _: 0.0)) == [("job_idle_from_start", 0, 30, None)]


def test_a_job_that_begins_late_was_idle_from_its_start_until_then(tmp_path: Path) -> None:
    """Two GPUs work from minute 100: two GPU-minutes are made in one minute, and the alert ends; it is idle again from 200."""
    level = lambda m: 0.8 if 100 <= m < 200 else 0.01  # noqa: E731
    assert judge(tmp_path, make_tables(level)) == [
        ("job_idle_from_start", 0, 30, 101),
        ("job_became_idle", 200, 230, None),
    ]


def test_a_job_that_pauses_is_told_nothing(tmp_path: Path) -> None:
    """Work that stops for 29 minutes, or that begins after 29, is no alert; 30 are."""
    assert judge(tmp_path / "a", make_tables(lambda m: 0.0 if m < 29 or 60 <= m < 89 else 0.7)) == []
    assert judge(tmp_path / "b", make_tables(lambda m: 0.0 if 60 <= m < 90 else 0.7)) == [
        ("job_became_idle", 60, 90, 91)
    ]


def test_a_moment_of_activity_ends_no_alert(tmp_path: Path) -> None:
    """One GPU shows one busy minute at 150: less than two GPU-minutes are no work."""
    tables = make_tables(lambda m: 0.8 if m < 60 else 0.0)
    next(r for r in tables["samples"] if r["device_id"] == "g0" and r["from_utc"] == START + 150 * MINUTE)[
        "sm_active_share"
    ] = 0.5
    assert judge(tmp_path, tables) == [("job_became_idle", 60, 90, None)]


@pytest.mark.parametrize("purpose", ["notebook", "JupyterServer", "interactive"])
def test_a_notebook_is_left_for_an_hour_and_told_once(tmp_path: Path, purpose: str) -> None:
    """Thinking for 50 minutes is its purpose; after an hour somebody forgot it."""
    level = lambda m: 0.0 if 30 <= m < 80 or m >= 200 else 0.6  # noqa: E731
    assert judge(tmp_path, make_tables(level, purpose=purpose)) == [("notebook_idle", 200, 260, None)]


def test_gpus_that_are_never_used_are_named(tmp_path: Path) -> None:
    """Two of four GPUs never work: the alert begins when the others do."""
    tables = make_tables(lambda _: None, gpus=4)
    tables["samples"] = [
        *make_samples(lambda m: 0.9 if m >= 10 else 0.0, range(600), ["g0", "g2"]),
        *make_samples(lambda _: 0.0, range(600), ["g1", "g3"]),
    ]
    (alert,) = replay(make_books(tmp_path, tables), JOBS)
    # two minutes of work are use: the second of them ends at minute 12
    assert (alert.rule, minutes(alert.start_ms), minutes(alert.fired_ms), alert.value) == ("gpus_never_used", 11, 41, 2)
    assert alert.evidence == ("2 of 4 GPUs never worked since the start of the job", "never used: g1 (n0), g3 (n0)")


def test_gpus_that_begin_later_are_used(tmp_path: Path) -> None:
    """The second GPU works from minute 25 on: no alert."""
    tables = make_tables(lambda _: None)
    tables["samples"] = [
        *make_samples(lambda _: 0.9, range(600), ["g0"]),
        *make_samples(lambda m: 0.9 if m >= 25 else 0.0, range(600), ["g1"]),
    ]
    assert judge(tmp_path, tables) == []


def test_without_samples_nothing_is_said_of_jobs(tmp_path: Path) -> None:
    """Unobserved is not idle; of a node of which only a number of GPUs is known, no GPU can be named."""
    assert judge(tmp_path / "a", make_tables(lambda _: None)) == []
    silent = make_tables(lambda _: 0.9, gpus=4)
    silent["samples"] = list(make_samples(lambda _: 0.9, range(600), ["g0", "g1"]))
    assert judge(tmp_path / "b", silent) == []
    coarse = make_tables(lambda _: 0.9)
    coarse["allocations"] = [{"job_id": "j", "node": "n0", "gpus": 2, "from_utc": START, "to_utc": START + 10 * HOUR}]
    assert judge(tmp_path / "c", coarse) == []


def requeued() -> Tables:
    """The job j works for 100 minutes, holds nothing for ten, and is back with nothing to do."""
    tables = make_tables(lambda m: 0.8 if m < 100 else 0.0)
    for row in list(tables["allocations"]):
        tables["allocations"].append({**row, "attempt": 1, "from_utc": START + 110 * MINUTE})
        row["to_utc"] = START + 100 * MINUTE
    return tables


def test_a_job_that_starts_again_begins_anew(tmp_path: Path) -> None:
    """What its first run did is not what its second one does: that one is idle from its start."""
    assert judge(tmp_path, requeued()) == [("job_idle_from_start", 110, 140, None)]


@pytest.mark.parametrize("at", [105, 111, 125])
def test_a_judge_that_begins_in_the_middle_knows_since_when_jobs_run(tmp_path: Path, at: int) -> None:
    """Dumped and loaded in the gap between two runs, in the first minute of the second one, or later."""
    judged, fired = Judge(JOBS, START), []
    with make_books(tmp_path, requeued()).watch() as watched:
        fired += judged.step(watched, START + at * MINUTE)
        judged = Judge.load(JOBS, judged.dump())
        fired += judged.step(watched, START + 300 * MINUTE)
    assert [(t.alert.rule, minutes(t.alert.start_ms), minutes(t.at_ms)) for t in fired] == [
        ("job_idle_from_start", 110, 140)
    ]


def test_a_job_whose_gpus_change_goes_on(tmp_path: Path) -> None:
    """A GPU is given back as another one is taken: it is one run, which worked."""
    tables = make_tables(lambda m: 0.8 if m < 100 else 0.0)
    first, second = tables["allocations"]
    first["to_utc"] = second["from_utc"] = START + 120 * MINUTE
    judged, fired = Judge(JOBS, START), []
    with make_books(tmp_path, tables).watch() as watched:
        for at in (121, 300):
            fired += judged.step(watched, START + at * MINUTE)
            judged = Judge.load(JOBS, judged.dump())
    assert [(t.alert.rule, minutes(t.alert.start_ms)) for t in fired] == [("job_became_idle", 100)]
