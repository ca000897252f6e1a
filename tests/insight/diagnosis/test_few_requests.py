"""Replicas that wait for requests: hours worked out by hand, and what is not taken for them."""

from collections.abc import Sequence

import numpy as np
import pytest

from loadfactor.base.units import S_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.insight.diagnosis.diagnose import diagnose_job
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob, read_job
from loadfactor.insight.diagnosis.finding import CauseFinding

HOURS = 24


def make_replica(
    activity: Sequence[float],
    step_s: int = S_PER_HOUR,
    purpose: str = "serving",
    answered: Sequence[float] | None = None,
) -> DiagnosedJob:
    """A replica on one GPU with this activity by hour; without any it is idle, else underused by what is missing."""
    by_step = np.repeat(np.array([activity], dtype=np.float64), S_PER_HOUR // step_s, axis=1)
    held = np.full(by_step.shape, float(step_s))
    idle = np.where(by_step == 0, held, 0.0)
    under = np.where(by_step > 0, held * (1 - by_step), 0.0)
    told = None if answered is None else np.repeat(np.array(answered, dtype=np.float64), S_PER_HOUR // step_s)
    return DiagnosedJob(
        "chat", purpose, ("gpu0",), ("n",), 0, step_s, held, idle, under, np.zeros_like(held), {}, {}, {}, (), 0, (), None, None,
        told,
    )  # fmt: skip


def find(facts: DiagnosedJob) -> CauseFinding | None:
    """What is said of few requests."""
    return next((each for each in diagnose_job(facts).findings if each.cause == "few_requests"), None)


@pytest.mark.parametrize("step_s", [60, S_PER_HOUR])
def test_hours_below_the_busiest_are_at_stake(step_s: int) -> None:
    """Half a day at 0.5 and half a day without a request: twelve hours could be given back, four fifths of them surely."""
    found = find(make_replica([0.5] * 12 + [0.0] * 12, step_s))
    assert found is not None
    assert found.gpu_hours.high == pytest.approx(12)
    assert found.gpu_hours.low == pytest.approx(0.8 * 12)
    assert found.class_ == "scheduling"
    assert "25 % active on average, 50 % in its busiest hours; nothing ran in 50 % of the time" in found.evidence


def test_hours_with_some_requests_count_in_part() -> None:
    """Twelve hours at a fifth of the busiest ones could be borne by a fifth of the replicas."""
    found = find(make_replica([0.5] * 12 + [0.1] * 12))
    assert found is not None
    assert found.gpu_hours.high == pytest.approx(12 * 0.8)
    assert found.gpu_hours.low == 0


def test_what_is_not_few_requests() -> None:
    """An even load, a training job that rests, an activity that does not follow its answers, and too short a time."""
    day = [0.5] * 12 + [0.0] * 12
    assert find(make_replica([0.3] * HOURS)) is None
    assert find(make_replica(day, purpose="training")) is None
    assert find(make_replica(day, answered=[1.0] * 12 + [50.0] * 12)) is None
    assert find(make_replica([0.5, 0.0, 0.0])) is None


def test_known_answers_make_it_surer() -> None:
    """Where activity rises and falls with what was answered, that is evidence."""
    day = [0.5] * 12 + [0.0] * 12
    told, untold = find(make_replica(day, answered=[900.0] * 12 + [0.0] * 12)), find(make_replica(day))
    assert told is not None
    assert untold is not None
    assert told.sureness == "high"
    assert untold.sureness == "medium"


def test_replicas_of_the_simulated_fleet_wait_for_requests(simulated_books: Books) -> None:
    """Its serving jobs follow a daily wave: that is said of each of them, and never with more than it lost."""
    with simulated_books.watch() as watched:
        jobs = {row["job_id"] for row in watched.list_rows("allocations", "purpose IN ('serving', 'inference')")}
        read = [read_job(watched, job) for job in sorted(jobs)[:3]]
    assert read
    for facts in read:
        found = find(facts)
        assert found is not None
        assert 0 < found.gpu_hours.high <= facts.lost_s.sum() / S_PER_HOUR
