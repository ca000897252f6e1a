"""Do alerts fire for GPUs that are free while jobs wait that would fit, and for waits longer than usual? Each scene is a pool."""

import pytest
from tests.insight.alerts.small_fleet import HOUR, MINUTE, START, judge_together, minutes
from tests.ledger.fleets import Row, Tables

from loadfactor.base.units import MS_PER_DAY
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.rules.queue import QUEUE

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


def make_unlisted() -> Tables:
    """Nobody lists GPUs: one of four is held."""
    held: Row = {"job_id": "long", "node": "n0", "gpus": 4, "from_utc": START, "to_utc": END}
    return add_waits(fleet(("n0", 1)), wait("w", 1, 60), devices=[], allocations=[held])


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Alert]]:
    """The alerts of each scene."""
    down: Row = {"node": "n1", "from_utc": START, "reason": "drained"}
    held_back = wait("w", 2, 60, ("eligible", 61, "Dependency"), ("submitted", 200, "Priority"))
    short = [wait(f"w{n}", 1, 8 * n, ("started", 8 * n + 8, None)) for n in range(20)]
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
        "unlisted": make_unlisted(),
        **{name: queue_tables(*of) for name, of in USUAL.items()},
    }
    return judge_together(tmp_path_factory.mktemp("queue"), scenes, QUEUE, (START, END))


def list_times(alerts: list[Alert]) -> list[tuple[float | None, float | None, float | None]]:
    return [(minutes(a.start_ms), minutes(a.fired_ms), minutes(a.end_ms)) for a in alerts]


def test_a_job_that_would_fit_and_waits_fires(fired: dict[str, list[Alert]]) -> None:
    """Two GPUs are free on n1; a job of two waits from minute 60 to 180: it counts after ten minutes, and fires after five more."""
    (alert,) = fired["fits"]
    assert list_times([alert]) == [(69, 74, 180)]
    assert (alert.rule, dict(alert.by), alert.value) == ("gpus_free_while_jobs_wait", {"pool": "a"}, 1)
    assert alert.evidence == (
        "2 GPUs free on 1 nodes, as many as 2 on one",
        "1 jobs wait that would fit, the longest for 14 min: w (2 GPUs)",
    )


@pytest.mark.parametrize("scene", [*NO_FIT, "three of three nodes", "short", "down", "unlisted"])
def test_a_job_that_would_not_fit_or_hardly_waits_is_no_alert(fired: dict[str, list[Alert]], scene: str) -> None:
    """Too few are free on a node, or too few nodes; a job waits eight minutes, then the next one.

    A node is down; and where nobody lists GPUs, nobody knows which ones are free.
    """
    assert fired[scene] == []


def test_a_job_larger_than_a_node_needs_whole_nodes(fired: dict[str, list[Alert]]) -> None:
    """Six GPUs are two nodes: two of three are free."""
    assert list_times(fired["two of three nodes"]) == [(69, 74, None)]


def test_what_is_held_back_does_not_wait(fired: dict[str, list[Alert]]) -> None:
    """A job that depends on another one does not wait; from minute 200 on it does, for want of priority."""
    assert list_times(fired["held back"]) == [(199, 204, None)]


def test_waits_above_the_usual_fire(fired: dict[str, list[Alert]]) -> None:
    """Usually 20 minutes: the third job, submitted at 62, has waited longer at 83; all start at 240, an hour later it is over."""
    (alert,) = fired["longer"]
    assert list_times([alert]) == [(82, 87, 300)]
    assert (alert.rule, dict(alert.by), alert.value) == ("queue_wait_unusual", {"queue": "q"}, 27 * 60)
    assert alert.evidence[0] == "3 of 3 jobs have waited longer than 20 min: w0, w1, w2"


@pytest.mark.parametrize("scene", ["usual", "few", "no history"])
def test_usual_waits_few_of_them_or_without_history_are_no_alert(fired: dict[str, list[Alert]], scene: str) -> None:
    """Three hours are usual; two jobs are too few; 19 jobs say too little of what is usual."""
    assert fired[scene] == []
