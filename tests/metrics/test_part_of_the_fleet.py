"""What do the books say of a part of the fleet? What a split says of it, and nothing that cannot be told apart."""

from pathlib import Path

import pytest
from tests.ledger.fleets import MINUTE, Row, add, batch

from loadfactor.books.books import Books

START = 1_767_225_600_000
HOUR = 60 * MINUTE


def books_of(folder: Path, allocations: list[Row], **tables: list[Row]) -> Books:
    """Two nodes in pools of their own, a GPU each, for four hours at $1."""
    places = (("g0", "n0", "a"), ("g1", "n1", "b"))
    time = {"from_utc": START, "to_utc": START + 4 * HOUR}
    devices = [{"device_id": d, "node": n, "pool": p, **time} for d, n, p in places]
    books = Books(folder / "store")
    tables = {"devices": devices, "allocations": [time | a for a in allocations], **tables}
    tables["prices"] = [{"basis": "contracted", "price_per_gpu_hour": 1.0}]
    add(books, [batch(name, rows) for name, rows in tables.items()], "all", folder)
    return books


def steps(job: str, amount: float) -> Row:
    return {"job_id": job, "unit": "step", "amount": amount, "from_utc": START, "to_utc": START + 4 * HOUR}


@pytest.mark.parametrize("where", [{"pool": "a"}, {"node": "n0"}, {"device": "g0"}])
def test_a_job_half_inside_a_part_does_not_make_its_work_half_as_dear(where: dict[str, str], tmp_path: Path) -> None:
    """Of jobs that also held GPUs elsewhere nobody knows what was made where: their dollars and steps are left out."""
    half = {"share": 0.5}
    held = [{"job_id": "wide", "device_id": d, **half} for d in ("g0", "g1")]
    books = books_of(
        tmp_path,
        [*held, {"job_id": "narrow", "device_id": "g0", **half}],
        progress=[steps("wide", 1000.0), steps("narrow", 10.0)],
    )
    (whole,) = books.show(["cost_per_step"])
    (part,) = books.show(["cost_per_step"], where=where)
    assert whole.value == pytest.approx(6 / 1010)
    assert part.value == pytest.approx(2 / 10)


def test_waits_that_cannot_be_told_apart_are_unknown_not_none(tmp_path: Path) -> None:
    """Who waits waits for no particular node, so nobody can say that none waits for it."""
    asked = {"job_id": "patient", "at_utc": START, "event": "submitted", "pool": "a"}
    books = books_of(tmp_path, [{"job_id": "j", "device_id": "g0"}], queue_events=[asked])
    assert [books.show(["queue_waiting"], where=w)[0].value for w in ({}, {"pool": "a"}, {"node": "n0"})] == [
        1,
        1,
        None,
    ]


def test_who_holds_gpus_waits_no_longer(tmp_path: Path) -> None:
    """A queue that only recorded submissions, and allocations that only say when they began: together they are waits."""
    asked = [{"job_id": j, "at_utc": START - HOUR, "event": "submitted"} for j in ("j", "patient")]
    books = books_of(tmp_path, [{"job_id": "j", "device_id": "g0"}], queue_events=asked)
    waiting, wait_s = books.show(["queue_waiting", "queue_wait_s_mean"])
    assert (waiting.value, wait_s.value, wait_s.coverage) == (1, 3600.0, 0.5)


def test_without_any_queue_on_record_nobody_knows_who_waits(tmp_path: Path) -> None:
    """Books without submissions do not claim that nobody waits."""
    books = books_of(tmp_path, [{"job_id": "j", "device_id": "g0"}])
    assert books.show(["queue_waiting"])[0].value is None


def test_dollars_of_what_nobody_observed_are_unknown_not_zero(tmp_path: Path) -> None:
    """Nobody knows how much of an unobserved hour was idle, in dollars no more than in hours."""
    seen = {"device_id": "g0", "from_utc": START, "to_utc": START + HOUR, "busy_share": 0.0}
    books = books_of(tmp_path, [{"job_id": "j", "device_id": "g0"}, {"job_id": "k", "device_id": "g1"}], samples=[seen])
    asked = ("idle_cost", "busy_cost", "underused_cost", "effective_cost")
    said = {(r.by["job"], r.metric): (r.value, r.coverage) for r in books.show(asked, ["job"])}
    assert said["j", "idle_cost"] == (1.0, 0.25)
    assert [said["k", metric] for metric in asked] == [(None, 0.0)] * 4
