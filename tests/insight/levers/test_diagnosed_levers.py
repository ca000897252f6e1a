"""Levers out of diagnoses: the cause that was put into a job pulls its lever, a healthy job none, and nothing is saved twice."""

from math import fsum
from pathlib import Path

import pytest
from tests.faults.job_scenarios import JobShape, make_rows, make_scenario

from loadfactor.books.books import Books
from loadfactor.insight.diagnosis.diagnose import diagnose_books
from loadfactor.insight.levers.diagnosed_levers import (
    FEED_GPUS,
    FUSE_KERNELS,
    LARGER_BATCH,
    OVERLAP_COMMUNICATION,
    REPLACE_SLOW_GPUS,
    SMALLER_GPU,
)
from loadfactor.insight.savings import FleetSavings, find_savings
from loadfactor.sources.base import Rows, Source

OF_DIAGNOSES = {"feed_gpus", "larger_batch", "mixed_precision", "fuse_kernels", "overlap_communication"} | {
    "replace_slow_gpus",
    "smaller_gpu",
}
SHAPE = JobShape("h100-sxm", 4, 240, 60)
PULLED = (
    ("input_pipeline", FEED_GPUS.name),
    ("host_copies", FEED_GPUS.name),
    ("small_batch", LARGER_BATCH.name),
    ("launch_bound", FUSE_KERNELS.name),
    ("communication", OVERLAP_COMMUNICATION.name),
    ("straggler", REPLACE_SLOW_GPUS.name),
    ("wrong_gpu", SMALLER_GPU.name),
)


def fill(folder: Path, *causes: tuple[str, ...]) -> Books:
    """Books of a job of some hours for each set of causes."""
    scenarios = [make_scenario(f"job-{n}", 40 + n, of, SHAPE) for n, of in enumerate(causes)]
    rows = [Rows(batch.table, batch.data, "simulated") for batch in make_rows(scenarios)]
    books = Books.open(folder, create=True)
    books.add_rows(Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows)), rows, "scenarios")
    return books


def pick(found: FleetSavings) -> dict[str, float]:
    """GPU-hours of the levers that come of diagnoses."""
    return {lever.lever: lever.gpu_hours for lever in found.levers if lever.lever in OF_DIAGNOSES}


@pytest.mark.parametrize(("cause", "lever"), PULLED)
def test_a_cause_pulls_its_lever(tmp_path: Path, cause: str, lever: str) -> None:
    """It saves the least of what the diagnosis has at stake, or what is left of it, and says which job, why and what to set."""
    books = fill(tmp_path / "books", (cause,))
    finding = next(f for f in diagnose_books(books).jobs[0].findings if f.cause == cause)
    found = find_savings(books)
    assert 0 < pick(found)[lever] <= finding.gpu_hours.low * (1 + 1e-9)
    told = next(each for each in found.levers if each.lever == lever)
    assert finding.action == told.action
    assert "job-0" in told.evidence[0]
    assert told.confidence_word == "medium"


def test_healthy_jobs_pull_none(tmp_path: Path) -> None:
    """What is healthy needs no change."""
    assert not pick(find_savings(fill(tmp_path / "books", (), (), ())))


def test_pairs_of_causes_are_not_saved_twice(tmp_path: Path) -> None:
    """Of jobs with two causes, levers together take no more than the union of what both have at stake at least."""
    books = fill(tmp_path / "books", ("input_pipeline", "small_batch"), ("communication", "launch_bound"))
    found = find_savings(books)
    at_stake = fsum(job.at_stake_gpu_hours.low for job in diagnose_books(books).jobs)
    assert 0 < fsum(pick(found).values()) <= at_stake * (1 + 1e-9)
    assert found.saved_gpu_hours <= found.lost_gpu_hours * (1 + 1e-12)
    assert found.saved_at_most is not None
    assert found.lost is not None
    assert found.saved_at_most <= found.lost * (1 + 1e-12)


def test_what_was_not_looked_at_is_said(tmp_path: Path) -> None:
    """Where fewer jobs are diagnosed than lose time, each lever of diagnoses says which part of the lost GPU-hours was seen."""
    books = fill(tmp_path / "books", ("input_pipeline",), ("host_copies",), ())
    some, every = (find_savings(books, most_diagnosed=most).levers for most in (1, 3))
    told = next(lever for lever in some if lever.lever == FEED_GPUS.name).evidence
    assert "1 of 3 jobs, " in told[1]
    assert told[1].endswith(" of the GPU-hours that they lose, were looked at.")
    assert 0.4 < float(told[1].split(", ")[1].split("%")[0]) / 100 < 0.9
    told = next(lever for lever in every if lever.lever == FEED_GPUS.name).evidence
    assert told[1] == "3 of 3 jobs, 100% of the GPU-hours that they lose, were looked at."
