"""Is it told that GPUs are free while jobs wait that would fit, and that waits are longer than usual, and only then?"""

from pathlib import Path

import pytest
from tests.insight.alerts.small_fleet import HOUR, MINUTE, START, make_books, minutes
from tests.ledger.fleets import Row, Tables

from loadfactor.base.units import MS_PER_DAY
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.replay import replay
from loadfactor.insight.alerts.rules.queue import QUEUE

END = START + 6 * HOUR
FREE, UNUSUAL = QUEUE


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
    """A job submitted at a minute, and what is said of it later."""
    own = {"job_id": job, "gpus": gpus, "pool": "a", **more}
    return [
        {**own, "event": event, "at_utc": START + at * MINUTE, "reason": reason}
        for event, at, reason in (("submitted", first, None), *events)
    ]


def judge(folder: Path, tables: Tables, rule: object = FREE) -> list[Alert]:
    return replay(make_books(folder, tables), [rule], (START, END))  # type: ignore[list-item]


def told(alerts: list[Alert]) -> list[tuple[float | None, float | None, float | None]]:
    return [(minutes(a.start_ms), minutes(a.fired_ms), minutes(a.end_ms)) for a in alerts]


def test_a_job_that_would_fit_and_waits_is_told(tmp_path: Path) -> None:
    """Two GPUs are free on n1; a job of two waits from minute 60 to 180: it counts after ten minutes, and fires after five more."""
    tables = fleet(("n0", 4), ("n1", 2))
    tables["queue_events"] = wait("w", 2, 60, ("started", 180, None))
    (alert,) = judge(tmp_path, tables)
    assert told([alert]) == [(69, 74, 180)]
    assert (dict(alert.by), alert.value) == ({"pool": "a"}, 1)
    assert alert.evidence == (
        "2 GPUs free on 1 nodes, as many as 2 on one",
        "1 jobs wait that would fit, the longest for 14 min: w (2 GPUs)",
    )


@pytest.mark.parametrize(
    ("gpus", "more"),
    [
        (3, {}),  # two are free on each node, and it needs three on one
        (8, {}),  # two whole nodes
        (None, {}),  # nobody knows how many it needs
        (1, {"pool": "b"}),  # where there are no such nodes
    ],
)
def test_a_job_that_would_not_fit_is_no_alert(tmp_path: Path, gpus: int | None, more: dict[str, object]) -> None:
    """Four GPUs are free, two on each node."""
    tables = fleet(("n0", 2), ("n1", 2))
    tables["queue_events"] = wait("w", gpus, 60, **more)
    assert judge(tmp_path, tables) == []


def test_a_job_larger_than_a_node_needs_whole_nodes(tmp_path: Path) -> None:
    """Six GPUs are two nodes: two of three are free."""
    tables = fleet(("n2", 1), nodes=3)
    tables["queue_events"] = wait("w", 6, 60)
    assert told(judge(tmp_path, tables)) == [(69, 74, None)]
    tables["queue_events"] = wait("w", 9, 60)
    assert judge(tmp_path / "larger", tables) == []


def test_what_is_held_back_does_not_wait(tmp_path: Path) -> None:
    """A job that depends on another one does not wait; from minute 200 on it does, for want of priority."""
    tables = fleet(("n0", 4))
    tables["queue_events"] = wait("w", 2, 60, ("eligible", 61, "Dependency"), ("submitted", 200, "Priority"))
    assert told(judge(tmp_path, tables)) == [(199, 204, None)]


def test_short_waits_one_after_the_other_are_no_alert(tmp_path: Path) -> None:
    """A job waits eight minutes, then the next one."""
    tables = fleet(("n0", 4))
    tables["queue_events"] = [r for n in range(20) for r in wait(f"w{n}", 1, 8 * n, ("started", 8 * n + 8, None))]
    assert judge(tmp_path, tables) == []


def test_gpus_that_are_down_or_unlisted_are_not_free(tmp_path: Path) -> None:
    """A node is down; and where nobody lists GPUs, nobody knows which ones are free."""
    tables = fleet(("n0", 4))
    tables["queue_events"] = wait("w", 2, 60)
    tables["outages"] = [{"node": "n1", "from_utc": START, "reason": "drained"}]
    assert judge(tmp_path / "a", tables) == []
    unlisted = fleet(("n0", 1))
    unlisted["devices"] = []
    unlisted["allocations"] = [{"job_id": "long", "node": "n0", "gpus": 4, "from_utc": START, "to_utc": END}]
    unlisted["queue_events"] = wait("w", 1, 60)
    assert judge(tmp_path / "b", unlisted) == []


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


def test_waits_above_the_usual_are_told(tmp_path: Path) -> None:
    """Usually 20 minutes: the third job, submitted at 62, has waited longer at 83; all start at 240, an hour later it is over."""
    (alert,) = judge(tmp_path, queue_tables(20, 3), UNUSUAL)
    assert told([alert]) == [(82, 87, 300)]
    assert (dict(alert.by), alert.value) == ({"queue": "q"}, 27 * 60)
    assert alert.evidence[0] == "3 of 3 jobs have waited longer than 20 min: w0, w1, w2"


@pytest.mark.parametrize(("usual_min", "waits", "history"), [(200, 3, 30), (20, 2, 30), (20, 3, 19)])
def test_usual_waits_few_of_them_or_without_history_are_no_alert(
    tmp_path: Path, usual_min: int, waits: int, history: int
) -> None:
    """Three hours are usual; two jobs are too few; 19 jobs say too little of what is usual."""
    assert judge(tmp_path, queue_tables(usual_min, waits, history), UNUSUAL) == []
