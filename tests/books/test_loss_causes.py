"""Why work was lost, and what jobs did instead of advancing, as parts of the waterfall."""

from pathlib import Path

import pytest
from tests.books.test_waterfall import END, HOURS, START, Row, configured, made, make_books, tokens_at
from tests.ledger.fleets import HOUR, MINUTE, add, batch

from loadfactor.books.books import Books
from loadfactor.books.waterfall import WaterfallGroup

__all__ = ["configured"]


def lost(share: float, cause: str | None, number: int) -> Row:
    """Tokens of the job that trains, lost, in a stretch of its own."""
    row = made("train", tokens_at(share), kept=False)
    return row | {"cause": cause, "from_utc": START + number * MINUTE}


def section(kind: str, first: int, last: int, job: str = "train", attempt: int = 0) -> Row:
    """From and to this minute of the books."""
    spans = {"from_utc": START + first * MINUTE, "to_utc": START + last * MINUTE}
    return {"job_id": job, "attempt": attempt, "kind": kind, **spans}


def by_cause(group: WaterfallGroup, of: str) -> dict[str | None, float]:
    return {part.cause: part.gpu_hours for part in group.causes if part.of == of}


def test_lost_work_by_cause(tmp_path: Path) -> None:
    """Of one GPU-hour lost, 0.6 to restarts, 0.1 to preemption, 0.1 to what has another name; of 0.2 nobody knows why."""
    parts = ((0.06, "restart"), (0.01, "preemption"), (0.01, "cosmic rays"), (0.02, None))
    progress = [lost(share, cause, number) for number, (share, cause) in enumerate(parts)]
    found = make_books(tmp_path, [made("train", tokens_at(0.4)), *progress]).waterfall("team")
    team = next(group for group in found.rows if group.by["team"] == "a")
    for group in (found.all, team):
        assert by_cause(group, "lost_work") == pytest.approx(
            {"restart": 0.6, "preemption": 0.1, "other": 0.1, None: 0.2}, rel=1e-9
        )
        assert [part.cost for part in group.causes] == pytest.approx([1.2, 0.2, 0.2, 0.4], rel=1e-9)
    assert team.causes[0].share_of_paid == pytest.approx(0.06, rel=1e-9)
    assert not next(group for group in found.rows if group.by["team"] == "b").causes


def test_lost_work_of_which_nobody_says_why_has_no_causes(tmp_path: Path) -> None:
    """It is a step of the waterfall, as before, and nothing is said of its parts."""
    found = make_books(tmp_path, [made("train", tokens_at(0.4)), lost(0.1, None, 0)]).waterfall()
    assert found.all.gpu_hours.lost_work == pytest.approx(1, rel=1e-9)
    assert found.all.causes == ()


def test_sections_are_parts_of_held_time_that_was_not_math(tmp_path: Path) -> None:
    """An instant counts once, for the first kind of several, and only while GPUs are held."""
    sections = [
        section("start_up", 0, 60),
        section("checkpoint", 120, 150),
        section("checkpoint", 120, 140, attempt=1),
        section("data_wait", 140, 170),
        section("evaluation", 60 * HOURS - 10, 60 * HOURS + 30),
        section("compile", 0, 60, job="of another fleet"),
    ]
    books = make_books(tmp_path, [made("train", tokens_at(0.5))], sections)
    found = books.waterfall()
    hours = found.all.gpu_hours
    assert hours.idle + hours.underused + hours.uncounted + hours.not_math == pytest.approx(3 + 5.4 + 14.4 + 2.2)
    known = {"checkpoint": 0.5, "evaluation": 1 / 6, "data_wait": 1 / 3, "start_up": 1.0}
    assert by_cause(found.all, "without_math") == pytest.approx({**known, None: 23.0}, rel=1e-9)
    rows = books.waterfall("hour").rows
    first, third = rows[0], rows[2]
    assert by_cause(first, "without_math") == pytest.approx({"start_up": 1.0, None: 2.0}, rel=1e-9)
    half_an_hour_without_math = {"checkpoint": 0.5 * 3 / 5, "data_wait": 0.5 * 2 / 5}
    assert by_cause(third, "without_math") == pytest.approx({**half_an_hour_without_math, None: 2.0}, rel=1e-9)
    costs = {part.cause: part.cost for part in found.all.causes}
    assert costs == pytest.approx({cause: 2 * spent for cause, spent in {**known, None: 23.0}.items()}, rel=1e-9)


def test_sections_take_no_more_than_there_is(tmp_path: Path) -> None:
    """A job that says it evaluated for ten hours, of which 7.2 were its network's FLOPs, evaluated in the other 2.8."""
    books = make_books(tmp_path, [made("train", tokens_at(0.72))], [section("evaluation", 0, 600)])
    (group,) = (group for group in books.waterfall("job").rows if group.by["job"] == "train")
    parts = by_cause(group, "without_math")
    assert parts["evaluation"] == pytest.approx(2.8, rel=1e-9)
    assert parts[None] == pytest.approx(0, abs=1e-9)


def test_a_section_holds_all_gpus_of_its_job_as_far_as_they_were_observed(tmp_path: Path) -> None:
    """Two GPUs wait for data for an hour, and one of them is measured: one GPU-hour observed, of a job without known FLOPs."""
    devices = [{"device_id": f"g{k}", "accelerator": "H100", "from_utc": START, "to_utc": END} for k in range(2)]
    held = [{"job_id": "two", "device_id": f"g{k}", "from_utc": START, "to_utc": START + 4 * HOUR} for k in range(2)]
    samples = [
        {"device_id": "g0", "from_utc": START + k * HOUR, "to_utc": START + (k + 1) * HOUR, "sm_active_share": 0.5}
        for k in range(4)
    ]
    rows = (("devices", devices), ("allocations", held), ("samples", samples))
    books = Books(tmp_path / "store")
    items = [*(batch(name, of) for name, of in rows), batch("job_sections", [section("data_wait", 60, 120, "two")])]
    add(books, items, "two", tmp_path)
    found = books.waterfall("job")
    (group,) = (group for group in found.rows if group.by["job"] == "two")
    assert group.gpu_hours.uncounted == pytest.approx(2)
    assert by_cause(group, "without_math") == pytest.approx({"data_wait": 1.0, None: 3.0}, rel=1e-9)
