"""Diagnoses of simulated jobs whose causes are known."""

from pathlib import Path

import numpy as np
import pytest
from tests.faults.job_scenarios import (
    LONGEST_MIN,
    MOST_SAMPLES,
    SHORTEST_MIN,
    STEPS_S,
    JobScenario,
    JobShape,
    draw_shape,
    make_rows,
    make_scenario,
    measure,
)
from tests.insight.levers.fleet import held, keep

from loadfactor.base.errors import InputError
from loadfactor.base.units import MIN_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.insight.diagnosis.diagnose import diagnose_books, diagnose_job
from loadfactor.insight.diagnosis.diagnosed_job import read_job
from loadfactor.insight.diagnosis.finding import JobDiagnosis
from loadfactor.sources.base import Rows, Source

SICK = ("over_allocation", "input_pipeline", "no_mixed_precision")
MINUTES = 240
SHAPE = JobShape("h100-sxm", 4, MINUTES, 60)
BLIND = frozenset({"busy_share", "mem_used_bytes", "mem_total_bytes"})


def fill(folder: Path, signals: frozenset[str] | None = None) -> Books:
    """Books of a job for each cause, and of a healthy one."""
    scenarios = [make_scenario(cause, 40 + n, (cause,), SHAPE) for n, cause in enumerate(SICK)]
    scenarios.append(make_scenario("healthy", 50, (), SHAPE))
    rows = [Rows(batch.table, batch.data, "simulated") for batch in make_rows(scenarios, signals, signals is None)]
    books = Books.open(folder, create=True)
    books.add_rows(Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows)), rows, "scenarios")
    return books


def diagnose(books: Books, job: str) -> JobDiagnosis:
    """The diagnosis of one job."""
    with books.watch() as watched:
        return diagnose_job(read_job(watched, job))


def test_known_causes_are_told_first(tmp_path: Path) -> None:
    """A cause that was put in is told first; nothing is told of a healthy job; what is at stake is never more than was lost."""
    books = fill(tmp_path / "books")
    for cause in SICK:
        found = diagnose(books, cause)
        assert found.findings[0].cause == cause
        assert 0 < found.at_stake_gpu_hours.low <= found.at_stake_gpu_hours.high <= found.lost_gpu_hours
        assert found.held_gpu_hours == pytest.approx(found.gpus * MINUTES / MIN_PER_HOUR)
        assert found.findings[0].cost is not None
    assert not diagnose(books, "healthy").findings
    with pytest.raises(InputError, match="no GPU that job 'nobody' held"):
        diagnose(books, "nobody")


def test_the_fleet_is_diagnosed_job_by_job_up_to_a_bound(tmp_path: Path) -> None:
    """The jobs that lost most are looked at, and what was not is said with its hours."""
    books = fill(tmp_path / "books")
    found = diagnose_books(books, most_jobs=2)
    assert len(found.jobs) == 2
    assert found.not_looked_at == 2
    assert found.not_looked_at_gpu_hours > 0
    assert {cause.cause for cause in found.causes} <= set(SICK)
    assert diagnose_books(books, team="scenarios").not_looked_at == 0


def test_gpu_util_and_memory_alone_cannot_tell(tmp_path: Path) -> None:
    """Without the signals a cause needs nothing is guessed: it is named with what is missing; unused GPUs are seen all the same."""
    books = fill(tmp_path / "books", BLIND)
    assert [finding.cause for finding in diagnose(books, "over_allocation").findings] == ["over_allocation"]
    starved = diagnose(books, "input_pipeline")
    assert not starved.can_tell
    missing = {each.cause: each.missing for each in starved.cannot_tell}
    assert missing["input_pipeline"] == ("node cpu_busy_share",)


def test_serving_is_not_asked_of_causes_of_training(tmp_path: Path) -> None:
    """The same stops at even intervals are checkpoints of a training job; a job that answers requests waits for them."""
    training, serving = (
        make_scenario(f"{of}-checkpoints", 3, ("checkpoint_stalls",), SHAPE) for of in ("training", "serving")
    )
    serving.purpose = "serving"
    for each in (training, serving):
        each.sections = []
    rows = [Rows(batch.table, batch.data, "simulated") for batch in make_rows([training, serving])]
    books = Books.open(tmp_path / "books", create=True)
    books.add_rows(Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows)), rows, "scenarios")
    assert diagnose(books, training.name).findings[0].cause == "checkpoint_stalls"
    assert not diagnose(books, serving.name).findings


def test_books_that_are_not_booked_yet_are_diagnosed(tmp_path: Path) -> None:
    """A reader books stale hours in its own session, and reads the samples of the job there, too."""
    activity = {"a": [(0.0, 2.0, 0.9), (2.0, 6.0, 0.0)]}
    books = keep(tmp_path, {"a": "n"}, 6, held("left", ["a"], 0, 6), activity)
    assert books.store.manifest.stale
    assert diagnose_books(books).jobs[0].findings[0].cause == "not_released"


def test_job_scenarios_vary() -> None:
    """They hold 1 to 64 GPUs of four kinds for 40 minutes to three days; AMD's boards have no profiling counters, L4 no NVLink."""
    shapes = [draw_shape(np.random.default_rng(seed), ()) for seed in range(200)]
    assert {shape.board for shape in shapes} == {"h100-sxm", "a100-sxm", "l4", "mi300x"}
    assert {shape.gpus for shape in shapes} == {1, 2, 4, 8, 16, 32, 64}
    assert all(SHORTEST_MIN <= shape.minutes <= LONGEST_MIN and shape.step_s in STEPS_S for shape in shapes)
    assert max(shape.minutes for shape in shapes) > LONGEST_MIN / 2
    assert max(shape.gpus * shape.steps for shape in shapes) <= MOST_SAMPLES
    assert max(shape.nodes for shape in shapes) == 8
    of = {b: set(measure(make_scenario(b, 1, (), JobShape(b, 2, 60, 60)))) for b in ("a100-sxm", "l4", "mi300x")}
    assert of["a100-sxm"] - of["l4"] == {"nvlink_bytes_per_s"}
    assert of["mi300x"] == {"busy_share", "mem_used_bytes", "mem_total_bytes", "power_w"}


def test_links_are_those_that_a_board_has(tmp_path: Path) -> None:
    """Communication of boards without NVLink is seen on PCIe, and is no copy from the host: kernels send it."""
    jobs = [
        make_scenario(f"on-{b}", 5, ("communication",), JobShape(b, 8, 120, 60, n))
        for b, n in (("l4", 4), ("a100-sxm", 8))
    ]
    for job in jobs:
        assert judge_alone(tmp_path / job.name, job).findings[0].cause == "communication"
    copies = make_scenario("copies", 5, ("host_copies",), JobShape("l4", 8, 120, 60, 4))
    assert judge_alone(tmp_path / "copies", copies).findings[0].cause == "host_copies"


def test_waiting_for_throttled_gpus_is_throttling(tmp_path: Path) -> None:
    """GPUs that wait for throttled ones are no stragglers, and their work is not unequal."""
    job = make_scenario("hot", 8, ("throttling",), JobShape("h100-sxm", 8, 120, 60))
    assert {f.cause for f in judge_alone(tmp_path, job).findings} == {"throttling"}


def test_a_straggler_that_is_throttled_now_and_then_is_one_all_the_same(tmp_path: Path) -> None:
    """The others wait for it as long while it is not throttled: that is not why it is slow."""
    job = make_scenario("slow", 8, ("straggler",), JobShape("h100-sxm", 8, 180, 60))
    slow = int(np.argmax(job.compute.sum(1)))
    job.throttled[slow, ::7] = 1.0
    assert judge_alone(tmp_path, job).findings[0].cause == "straggler"


def judge_alone(folder: Path, scenario: JobScenario) -> JobDiagnosis:
    """The diagnosis of a job in books of its own."""
    rows = [Rows(batch.table, batch.data, "simulated") for batch in make_rows([scenario])]
    books = Books.open(folder / "books", create=True)
    books.add_rows(Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows)), rows, "scenarios")
    return diagnose(books, scenario.name)
