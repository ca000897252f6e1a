"""Alerts of jobs that hold GPUs and do not use them, and of queues beside free GPUs. Each scene is a node or pool of its own."""

import pytest
from tests.insight.alerts.small_fleet import (
    HOUR,
    MINUTE,
    START,
    Level,
    judge_together,
    list_times,
    make_books,
    make_samples,
    make_tables,
    minutes,
)
from tests.ledger.fleets import Row, Tables

from loadfactor.base.units import MS_PER_DAY
from loadfactor.books.books import Books
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.judge import Judge
from loadfactor.insight.alerts.rules.jobs import JOBS
from loadfactor.insight.alerts.rules.queue import QUEUE

NOTEBOOKS = ("notebook", "JupyterServer", "interactive")


def sample_apart(levels: dict[str, Level]) -> Tables:
    """GPUs with a level each; one without a level has no samples."""
    tables = make_tables(lambda _: None, gpus=max(int(gpu[1:]) for gpu in levels) + 1)
    tables["samples"] = [row for gpu, level in levels.items() for row in make_samples(level, range(600), [gpu])]
    return tables


def requeue() -> Tables:
    """The job j works for 100 minutes, holds nothing for ten, and is back with nothing to do."""
    tables = make_tables(lambda m: 0.8 if m < 100 else 0.0)
    for row in list(tables["allocations"]):
        tables["allocations"].append({**row, "attempt": 1, "from_utc": START + 110 * MINUTE})
        row["to_utc"] = START + 100 * MINUTE
    return tables


def pause_for_a_moment() -> Tables:
    """One GPU shows one busy minute at 150: less than two GPU-minutes are no work."""
    tables = make_tables(lambda m: 0.8 if m < 60 else 0.0)
    next(r for r in tables["samples"] if r["device_id"] == "g0" and r["from_utc"] == START + 150 * MINUTE)[
        "sm_active_share"
    ] = 0.5
    return tables


def hold_by_number() -> Tables:
    """Only the number of GPUs of a node is known."""
    tables = make_tables(lambda _: 0.9)
    tables["allocations"] = [{"job_id": "j", "node": "n0", "gpus": 2, "from_utc": START, "to_utc": START + 10 * HOUR}]
    return tables


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Alert]]:
    """The alerts of each scene."""
    visit: Level = lambda m: 0.0 if 30 <= m < 80 or m >= 200 else 0.6  # noqa: E731
    scenes = {
        "never": make_tables(lambda _: 0.0),
        "late": make_tables(lambda m: 0.8 if 100 <= m < 200 else 0.01),
        "pauses": make_tables(lambda m: 0.0 if m < 29 or 60 <= m < 89 else 0.7),
        "pause": make_tables(lambda m: 0.0 if 60 <= m < 90 else 0.7),
        "moment": pause_for_a_moment(),
        **{purpose: make_tables(visit, purpose=purpose) for purpose in NOTEBOOKS},
        "unused": sample_apart(
            dict.fromkeys(("g0", "g2"), lambda m: 0.9 if m >= 10 else 0.0) | dict.fromkeys(("g1", "g3"), lambda _: 0.0)
        ),
        "later": sample_apart({"g0": lambda _: 0.9, "g1": lambda m: 0.9 if m >= 25 else 0.0}),
        "silent": make_tables(lambda _: None),
        "half silent": sample_apart({"g0": lambda _: 0.9, "g1": lambda _: 0.9, "g3": lambda _: None}),
        "by number": hold_by_number(),
        "requeued": requeue(),
    }
    return judge_together(tmp_path_factory.mktemp("jobs"), scenes, JOBS)


def test_a_job_that_never_works_is_idle_from_its_start(fired: dict[str, list[Alert]]) -> None:
    """Zeros for ten hours: it fires half an hour after the start, and is still on when the books end."""
    assert list_times(fired["never"]) == [("job_idle_from_start", 0, 30, None)]


def test_a_job_that_begins_late_was_idle_from_its_start_until_then(fired: dict[str, list[Alert]]) -> None:
    """Two GPUs work from minute 100: two GPU-minutes are made in one minute, and the alert ends; it is idle again from 200."""
    assert list_times(fired["late"]) == [("job_idle_from_start", 0, 30, 101), ("job_became_idle", 200, 230, None)]


def test_a_job_that_pauses_fires_nothing(fired: dict[str, list[Alert]]) -> None:
    """Work that stops for 29 minutes, or that begins after 29, is no alert; 30 are."""
    assert fired["pauses"] == []
    assert list_times(fired["pause"]) == [("job_became_idle", 60, 90, 91)]


def test_a_moment_of_activity_ends_no_alert(fired: dict[str, list[Alert]]) -> None:
    """A busy minute of one GPU at 150 is no work."""
    assert list_times(fired["moment"]) == [("job_became_idle", 60, 90, None)]


@pytest.mark.parametrize("purpose", NOTEBOOKS)
def test_a_notebook_is_left_for_an_hour_and_fires_once(fired: dict[str, list[Alert]], purpose: str) -> None:
    """Thinking for 50 minutes is its purpose; after an hour somebody forgot it."""
    assert list_times(fired[purpose]) == [("notebook_idle", 200, 260, None)]


def test_gpus_that_are_never_used_are_named(fired: dict[str, list[Alert]]) -> None:
    """Two of four GPUs never work: the alert begins when the others do."""
    (alert,) = fired["unused"]
    # two minutes of work are use: the second of them ends at minute 12
    assert (alert.rule, minutes(alert.start_ms), minutes(alert.fired_ms), alert.value) == ("gpus_never_used", 11, 41, 2)
    assert alert.evidence == ("2 of 4 GPUs never worked since the start of the job", "never used: g1 (n0), g3 (n0)")


def test_gpus_that_begin_later_are_used(fired: dict[str, list[Alert]]) -> None:
    """The second GPU works from minute 25 on: no alert."""
    assert fired["later"] == []


def test_without_samples_nothing_fires_for_jobs(fired: dict[str, list[Alert]]) -> None:
    """Unobserved is not idle; of a node of which only a number of GPUs is known, no GPU can be named."""
    assert fired["silent"] == []
    assert fired["half silent"] == []
    assert fired["by number"] == []


def test_a_job_that_starts_again_begins_anew(fired: dict[str, list[Alert]]) -> None:
    """What its first run did is not what its second one does: that one is idle from its start."""
    assert list_times(fired["requeued"]) == [("job_idle_from_start", 110, 140, None)]


@pytest.fixture(scope="module")
def requeued_books(tmp_path_factory: pytest.TempPathFactory) -> Books:
    """Books of the job that starts again alone."""
    return make_books(tmp_path_factory.mktemp("requeued"), requeue())


@pytest.mark.long
@pytest.mark.parametrize("at", [105, 111, 125])
def test_a_judge_that_begins_in_the_middle_knows_since_when_jobs_run(requeued_books: Books, at: int) -> None:
    """Dumped and loaded in the gap between two runs, in the first minute of the second one, or later."""
    judge, fired = Judge(JOBS, START), []
    with requeued_books.watch() as watched:
        fired += judge.step(watched, START + at * MINUTE)
        judge = Judge.load(JOBS, judge.dump())
        fired += judge.step(watched, START + 300 * MINUTE)
    assert [(t.alert.rule, minutes(t.alert.start_ms), minutes(t.at_ms)) for t in fired] == [
        ("job_idle_from_start", 110, 140)
    ]


@pytest.mark.long
def test_a_job_whose_gpus_change_goes_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A GPU is given back as another one is taken: it is one run, which worked."""
    tables = make_tables(lambda m: 0.8 if m < 100 else 0.0)
    first, second = tables["allocations"]
    first["to_utc"] = second["from_utc"] = START + 120 * MINUTE
    judge, fired = Judge(JOBS, START), []
    with make_books(tmp_path_factory.mktemp("changed"), tables).watch() as watched:
        for at in (121, 300):
            fired += judge.step(watched, START + at * MINUTE)
            judge = Judge.load(JOBS, judge.dump())
    assert [(t.alert.rule, minutes(t.alert.start_ms)) for t in fired] == [("job_became_idle", 100)]


END = START + 6 * HOUR
NO_FIT: dict[str, tuple[int | None, dict[str, object]]] = {
    "three on one": (3, {}),  # two are free on each node
    "two whole nodes": (8, {}),
    "unknown size": (None, {}),
    "another pool": (1, {"pool": "b"}),
}
"""GPUs of a job that would not fit where two are free on each of two nodes."""
USUAL = {"longer": (20, 3, 30), "usual": (200, 3, 30), "few": (20, 2, 30), "no history": (20, 3, 19)}
"""Minutes that jobs usually wait, how many wait for three hours, and how many started in the days before."""


def fleet(*held: tuple[str, int], nodes: int = 2, **more: object) -> Tables:
    """Nodes n0, n1 … of four GPUs in the pool a; of some so many GPUs are held by the job `long`."""
    devices: list[Row] = [
        {"device_id": f"n{n}g{g}", "node": f"n{n}", "pool": "a", "from_utc": START, "to_utc": END, "known_from": "list"}
        for n in range(nodes)
        for g in range(4)
    ]
    allocations: list[Row] = [
        {"job_id": "long", "device_id": f"{node}g{g}", "from_utc": START, "to_utc": END, **more}
        for node, count in held
        for g in range(count)
    ]
    before = {"from_utc": START - 2 * HOUR, "to_utc": START - HOUR}  # so that the scheduler speaks of every node
    allocations += [{"job_id": "before", "device_id": f"n{n}g0", **before} for n in range(nodes)]
    return {"devices": devices, "allocations": allocations, "queue_events": []}


def wait(job: str, gpus: int | None, first: int, *events: tuple[str, int, str | None], **more: object) -> list[Row]:
    """A job submitted at a minute, and what became of it later."""
    own = {"job_id": job, "gpus": gpus, "pool": "a", **more}
    return [
        {**own, "event": event, "at_utc": START + at * MINUTE, "reason": reason}
        for event, at, reason in (("submitted", first, None), *events)
    ]


def queue_tables(usual_min: int, waits: int, history: int = 30) -> Tables:
    """Jobs that waited so many minutes in the days before, and those that wait for three hours from minute 60 on."""
    tables = fleet(("n0", 4), ("n1", 4))
    tables["queue_events"] = [
        row
        for n in range(history)
        for row in wait(
            f"p{n}",
            1,
            -2 * MS_PER_DAY // MINUTE + 30 * n,
            ("started", -2 * MS_PER_DAY // MINUTE + 30 * n + usual_min, None),
            queue="q",
        )
    ]
    tables["queue_events"] += [
        r for n in range(waits) for r in wait(f"w{n}", 1, 60 + n, ("started", 240, None), queue="q")
    ]
    return tables


def add_waits(tables: Tables, *waits: list[Row], **more: list[Row]) -> Tables:
    """The same fleet with jobs that wait."""
    return {**tables, "queue_events": [row for rows in waits for row in rows], **more}


@pytest.fixture(scope="module")
def queue_fired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Alert]]:
    """The alerts of each scene."""
    down: Row = {"node": "n1", "from_utc": START, "reason": "drained"}
    held_back = wait("w", 2, 60, ("eligible", 61, "Dependency"), ("submitted", 200, "Priority"))
    short = [wait(f"w{n}", 1, 8 * n, ("started", 8 * n + 8, None)) for n in range(20)]
    # Nobody lists GPUs: one of four is held.
    held: Row = {"job_id": "long", "node": "n0", "gpus": 4, "from_utc": START, "to_utc": END}
    scenes = {
        "fits": add_waits(fleet(("n0", 4), ("n1", 2)), wait("w", 2, 60, ("started", 180, None))),
        **{
            name: add_waits(fleet(("n0", 2), ("n1", 2)), wait("w", gpus, 60, **more))
            for name, (gpus, more) in NO_FIT.items()
        },
        "two of three nodes": add_waits(fleet(("n2", 1), nodes=3), wait("w", 6, 60)),
        "three of three nodes": add_waits(fleet(("n2", 1), nodes=3), wait("w", 9, 60)),
        "held back": add_waits(fleet(("n0", 4)), held_back),
        "short": add_waits(fleet(("n0", 4)), *short),
        "down": add_waits(fleet(("n0", 4)), wait("w", 2, 60), outages=[down]),
        "unlisted": add_waits(fleet(("n0", 1)), wait("w", 1, 60), devices=[], allocations=[held]),
        **{name: queue_tables(*of) for name, of in USUAL.items()},
    }
    return judge_together(tmp_path_factory.mktemp("queue"), scenes, QUEUE, (START, END))


def list_all_times(alerts: list[Alert]) -> list[tuple[float | None, float | None, float | None]]:
    return [(minutes(a.start_ms), minutes(a.fired_ms), minutes(a.end_ms)) for a in alerts]


def test_a_job_that_would_fit_and_waits_fires(queue_fired: dict[str, list[Alert]]) -> None:
    """Two GPUs are free on n1; a job of two waits from minute 60 to 180: it counts after ten minutes, and fires after five more."""
    (alert,) = queue_fired["fits"]
    assert list_all_times([alert]) == [(69, 74, 180)]
    assert (alert.rule, dict(alert.by), alert.value) == ("gpus_free_while_jobs_wait", {"pool": "a"}, 1)
    assert alert.evidence == (
        "2 GPUs free on 1 nodes, as many as 2 on one",
        "1 jobs wait that would fit, the longest for 14 min: w (2 GPUs)",
    )


@pytest.mark.parametrize("scene", [*NO_FIT, "three of three nodes", "short", "down", "unlisted"])
def test_a_job_that_would_not_fit_or_hardly_waits_is_no_alert(queue_fired: dict[str, list[Alert]], scene: str) -> None:
    """Too few are free on a node, or too few nodes; a job waits eight minutes, then the next one.

    A node is down; and where nobody lists GPUs, nobody knows which ones are free.
    """
    assert queue_fired[scene] == []


def test_a_job_larger_than_a_node_needs_whole_nodes(queue_fired: dict[str, list[Alert]]) -> None:
    """Six GPUs are two nodes: two of three are free."""
    assert list_all_times(queue_fired["two of three nodes"]) == [(69, 74, None)]


def test_what_is_held_back_does_not_wait(queue_fired: dict[str, list[Alert]]) -> None:
    """A job that depends on another one does not wait; from minute 200 on it does, for want of priority."""
    assert list_all_times(queue_fired["held back"]) == [(199, 204, None)]


def test_waits_above_the_usual_fire(queue_fired: dict[str, list[Alert]]) -> None:
    """Usually 20 minutes: the third job, submitted at 62, has waited longer at 83; all start at 240, an hour later it is over."""
    (alert,) = queue_fired["longer"]
    assert list_all_times([alert]) == [(82, 87, 300)]
    assert (alert.rule, dict(alert.by), alert.value) == ("queue_wait_unusual", {"queue": "q"}, 27 * 60)
    assert alert.evidence[0] == "3 of 3 jobs have waited longer than 20 min: w0, w1, w2"


@pytest.mark.parametrize("scene", ["usual", "few", "no history"])
def test_usual_waits_few_of_them_or_without_history_are_no_alert(
    queue_fired: dict[str, list[Alert]], scene: str
) -> None:
    """Three hours are usual; two jobs are too few; 19 jobs say too little of what is usual."""
    assert queue_fired[scene] == []
