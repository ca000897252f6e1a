"""Diagnoses of simulated jobs whose causes are known, of waiting replicas and free GPUs, and what is at stake in all.

`UPDATE_PAGES=1` writes the thresholds in docs/diagnose.md anew.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.base.units import MIN_PER_HOUR, S_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.insight.diagnosis.diagnose import diagnose_books, diagnose_job
from loadfactor.insight.diagnosis.diagnosed_job import NODE_SIGNALS, SIGNALS, DiagnosedJob, JobAttempt, read_jobs
from loadfactor.insight.diagnosis.finding import CauseFinding, JobDiagnosis
from loadfactor.insight.diagnosis.rule import DiagnosisRule
from loadfactor.insight.diagnosis.rules import DIAGNOSES
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
        return diagnose_job(next(read_jobs(watched, [job])))


@pytest.mark.long
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


@pytest.mark.long
def test_the_fleet_is_diagnosed_job_by_job_up_to_a_bound(tmp_path: Path) -> None:
    """The jobs that lost most are looked at, and what was not is said with its hours."""
    books = fill(tmp_path / "books")
    found = diagnose_books(books, most_jobs=2)
    assert len(found.jobs) == 2
    assert found.not_looked_at == 2
    assert found.not_looked_at_gpu_hours > 0
    assert {cause.cause for cause in found.causes} <= set(SICK)
    assert diagnose_books(books, team="scenarios").not_looked_at == 0


@pytest.mark.long
def test_gpu_util_and_memory_alone_cannot_tell(tmp_path: Path) -> None:
    """Without the signals a cause needs nothing is guessed: it is named with what is missing; unused GPUs are seen all the same."""
    books = fill(tmp_path / "books", BLIND)
    assert [finding.cause for finding in diagnose(books, "over_allocation").findings] == ["over_allocation"]
    starved = diagnose(books, "input_pipeline")
    assert not starved.can_tell
    missing = {each.cause: each.missing for each in starved.cannot_tell}
    assert missing["input_pipeline"] == ("node cpu_busy_share",)


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_waiting_for_throttled_gpus_is_throttling(tmp_path: Path) -> None:
    """GPUs that wait for throttled ones are no stragglers, and their work is not unequal."""
    job = make_scenario("hot", 8, ("throttling",), JobShape("h100-sxm", 8, 120, 60))
    assert {f.cause for f in judge_alone(tmp_path, job).findings} == {"throttling"}


@pytest.mark.long
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


STEP_S = 60
ENDS = ("completed", "failed", "out_of_memory", None)
SECTIONS = ("data_wait", "checkpoint", "start_up")
ROUNDING = 1e-9


def make_job(seed: int) -> DiagnosedJob:
    """A job whose signals are drawn without regard to each other, some of them not measured."""
    rng = np.random.default_rng(seed)
    gpus, steps = int(rng.integers(1, 9)), int(rng.integers(30, 200))
    shape = (gpus, steps)
    level = rng.choice([0.02, 0.1, 0.4, 0.9, 1.0], (gpus, 1))
    held = STEP_S * np.where(rng.random(shape) < 0.97, 1.0, rng.random(shape))
    unobserved = held * (rng.random(shape) < 0.05)
    is_idle = rng.random(shape) < rng.choice([0.0, 0.2, 0.9])
    if rng.random() < 0.5:
        is_idle[:, : int(rng.integers(steps))] = True
    if rng.random() < 0.5:
        is_idle[:, int(rng.integers(steps)) :] = True
    idle = (held - unobserved) * is_idle
    underused = (held - unobserved - idle) * rng.random(shape) * level
    signals = {name: np.clip(rng.random(shape) * rng.choice([0.1, 0.5, 1, 2]), 0, 1) for name in SIGNALS}
    signals["power_of_limit"] = signals["power_w"]
    cut = int(rng.integers(1, steps))
    return DiagnosedJob(
        "job",
        str(rng.choice(["training", "notebook", "serving"])),
        tuple(f"gpu{n}" for n in range(gpus)),
        ("node",) * gpus,
        0,
        STEP_S,
        held,
        idle,
        underused,
        unobserved,
        {name: values for name, values in signals.items() if rng.random() < 0.85},
        {name: rng.random(steps) * rng.choice([0.1, 1, 1e10]) for name in NODE_SIGNALS if rng.random() < 0.8},
        {name: rng.random(steps) for name in SECTIONS if rng.random() < 0.3},
        (JobAttempt(0, cut, ENDS[rng.integers(len(ENDS))]), JobAttempt(cut, steps, ENDS[rng.integers(len(ENDS))])),
        int(rng.integers(0, 6)),
        (int(rng.integers(steps)),) if rng.random() < 0.3 else (),
        float(rng.random()) if rng.random() < 0.5 else None,
        float(held.sum()) / 3600 * 2.5,
    )


@pytest.mark.parametrize(
    ("course", "is_out"), [("leak", True), ("flat", False), ("settles", False), ("leak in time", False)]
)
def test_a_job_that_failed_when_its_memory_was_full_ran_out_of_it(course: str, is_out: bool) -> None:
    """Nobody says why it failed: memory that grew to its limit in the last ten minutes does, by the definition of the alert."""
    job, minutes = make_job(3), np.arange(60)
    used = {
        "leak": np.interp(minutes, (35, 60), (0.3, 0.99)),
        "flat": np.full(60, 0.97),
        "settles": 0.95 - 0.6 * np.exp(-minutes / 8),
        "leak in time": np.interp(minutes, (5, 60), (0.3, 0.7)),
    }[course]
    held = np.full((1, 60), 60.0)
    failed = replace(
        job, devices=("g0",), node_of=("n",), purpose="training",
        held_s=held, idle_s=0 * held, underused_s=0 * held, unobserved_s=0 * held,
        signals={"mem_utilization": used[np.newaxis], "sm_activity": np.full((1, 60), 0.8)}, nodes={}, sections={},
        attempts=(JobAttempt(0, 60, "failed"),), failed_alike=1, out_of_memory=(), padding=None,
    )  # fmt: skip
    found = {finding.cause: finding for finding in diagnose_job(failed).findings}
    assert ("out_of_memory" in found) == is_out
    if is_out:
        assert found["out_of_memory"].evidence[-1] == "memory of g0 grew by 25 % in its last 10 minutes, to 96 %"


@pytest.mark.long
@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_what_is_at_stake_is_the_union_of_what_causes_claim_and_never_more_than_was_lost(seed: int) -> None:
    """Each cause, and all of them, claim at most what was lost; together no more than their sum, no less than the largest one."""
    facts = make_job(seed)
    found = diagnose_job(facts)
    at_stake, lost = found.at_stake_gpu_hours, found.lost_gpu_hours
    highs, lows = [f.gpu_hours.high for f in found.findings], [f.gpu_hours.low for f in found.findings]
    assert lost <= found.held_gpu_hours - found.unobserved_gpu_hours + ROUNDING
    assert at_stake.low <= at_stake.high <= lost + ROUNDING
    assert max(highs, default=0) - ROUNDING <= at_stake.high <= sum(highs) + ROUNDING
    assert max(lows, default=0) - ROUNDING <= at_stake.low <= sum(lows) + ROUNDING
    assert found.at_stake_cost is not None
    assert found.at_stake_cost.high <= (found.lost_cost or 0) + ROUNDING


@given(st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_a_finding_is_complete(seed: int) -> None:
    """Every finding says its class, what was seen, what speaks against it, what to measure next and what to change."""
    for finding in diagnose_job(make_job(seed)).findings:
        assert all((finding.class_, finding.evidence, finding.against, finding.measure_next, finding.action))


@pytest.mark.long
def test_every_rule_is_met_by_random_jobs() -> None:
    """The jobs of the tests above are not spared by most rules."""
    met = {finding.cause for seed in range(400) for finding in diagnose_job(make_job(seed)).findings}
    assert len(met) >= len(DIAGNOSES) / 2


def make_rl_job(activity: Sequence[Sequence[float]], generates: Sequence[float]) -> DiagnosedJob:
    """A job of reinforcement learning: the activity of each GPU by minute, and the part of each minute in which it generates."""
    sm = np.array(activity, dtype=np.float64)
    held = np.full(sm.shape, 60.0)
    return replace(
        make_job(1), devices=tuple(f"g{n}" for n in range(len(sm))), node_of=("n",) * len(sm), purpose="training",
        held_s=held, idle_s=held * (sm == 0), underused_s=held * np.where(sm > 0, 1 - sm, 0), unobserved_s=0 * held,
        signals={"sm_activity": sm}, nodes={}, sections={"generation": np.array(generates)},
        attempts=(JobAttempt(0, sm.shape[1], None),), failed_alike=0, out_of_memory=(), padding=None, answered=None,
    )  # fmt: skip


def find_rollouts(facts: DiagnosedJob) -> CauseFinding | None:
    return next((each for each in diagnose_job(facts).findings if each.cause == "rollouts"), None)


def test_training_waits_for_rollouts_on_the_same_gpus() -> None:
    """Two GPUs for 90 min, two of three minutes generating at 0.4: 72 of 120 GPU-minutes are at stake."""
    found = find_rollouts(make_rl_job([[0.4, 0.4, 0.9] * 30] * 2, [1.0, 1.0, 0.0] * 30))
    assert found is not None
    assert found.gpu_hours.high == pytest.approx(2 * 60 * 0.6 / MIN_PER_HOUR)
    assert found.gpu_hours.low == pytest.approx(0.3 * 2 * 60 * 0.6 / MIN_PER_HOUR)
    assert found.evidence == (
        "the job says that it generates 67 % of its time, for which training waits",
        "SM active 40 % while it generates, 90 % while it trains",
    )


def test_halves_that_are_apart_wait_for_each_other() -> None:
    """One GPU works while the job generates, two while it trains; those that are full then are no symptom, nor is little of it."""
    rollout, trainer = [0.8, 0.8, 0.0] * 30, [0.0, 0.0, 0.9] * 30
    found = find_rollouts(make_rl_job([rollout, trainer, trainer], [1.0, 1.0, 0.0] * 30))
    assert found is not None
    assert found.evidence[-1] == "1 GPU works while it generates and 2 while it trains: each half waits for the other"
    assert find_rollouts(make_rl_job([[0.95] * 90], [1.0, 1.0, 0.0] * 30)) is None
    assert find_rollouts(make_rl_job([[0.4] * 90], [0.2] * 90)) is None
    assert find_rollouts(replace(make_rl_job([[0.4] * 90], [1.0] * 90), sections={})) is None


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
        jobs = {row["job_id"] for row in watched.list_rows("allocations", purpose=["serving", "inference"])}
        read = list(read_jobs(watched, sorted(jobs)[:3]))
    assert read
    for facts in read:
        found = find(facts)
        assert found is not None
        assert 0 < found.gpu_hours.high <= facts.lost_s.sum() / S_PER_HOUR


DEVICES = "device_id,node,pool,accelerator,from_utc,to_utc\n" + "".join(
    f"{node}-{n},{node},h100,h100-sxm,2026-10-05T00:00:00Z,2026-10-05T12:00:00Z\n" for node in "ab" for n in range(4)
)
PRICES = "accelerator,basis,price_per_gpu_hour,currency,source\nh100-sxm,contracted,2.0,USD,made up\n"
JOBS = """job_id,user,team,pool,node,gpus,submitted_utc,from_utc,to_utc
left,ann,one,h100,a,2,2026-10-05T00:00:00Z,2026-10-05T00:00:00Z,2026-10-05T10:00:00Z
right,ann,one,h100,b,2,2026-10-05T00:00:00Z,2026-10-05T00:00:00Z,2026-10-05T06:00:00Z
wide,bob,two,h100,b,4,2026-10-05T02:00:00Z,2026-10-05T08:00:00Z,2026-10-05T12:00:00Z
"""


@pytest.mark.long
def test_free_gpus_beside_a_waiting_job_are_fragmentation_until_it_would_fit(tmp_path: Path) -> None:
    """A job of 4 waits from 2 to 8: until 6 o'clock 2 + 2 GPUs lie on two nodes (16 GPU-hours), then a whole node is free (8)."""
    for name, text in (("devices", DEVICES), ("prices", PRICES), ("allocations", JOBS)):
        (tmp_path / f"{name}.csv").write_text(text)
    Books(tmp_path / "books").add("tables", [tmp_path])
    found = {of.cause: of for of in loadfactor.diagnose(store=tmp_path / "books").data.scheduling}
    assert {cause: of.gpu_hours.high for cause, of in found.items()} == pytest.approx(
        {"fragmentation": 16, "free_while_jobs_wait": 8}
    )
    fragmented = found["fragmentation"]
    assert fragmented.pool == "h100"
    assert fragmented.job is None
    assert fragmented.cost is not None
    assert fragmented.cost.high == pytest.approx(16 * 2.0)
    assert fragmented.share.high == pytest.approx(16 / (8 * 12))
    assert "wide" in fragmented.evidence[0]
    assert not loadfactor.diagnose(store=tmp_path / "books", team="two").data.scheduling


PAGE = Path(__file__).parents[3] / "docs" / "diagnose.md"
HEAD = "| cause | at least | confidence | thresholds |\n|---|--:|--:|---|\n"


def write_row(rule: DiagnosisRule) -> str:
    """The declaration of a cause as a row."""
    limits = "; ".join(
        f"{name} = {limit.value:g}{'' if limit.unit == 'share' else f' {limit.unit}'}: {limit.meaning}"
        for name, limit in rule.limits.items()
    )
    low = f"{rule.low:.0%}".replace("%", " %") if rule.low else "varies"
    return f"| {rule.cause} | {low} | {rule.confidence:g} | {limits or '–'} |\n"


def test_the_page_has_the_thresholds_that_are_declared() -> None:
    """A table that is generated from the declarations, in their order."""
    table = HEAD + "".join(map(write_row, DIAGNOSES))
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("UPDATE_PAGES"):
        text = re.sub(rf"{re.escape(HEAD)}(\|.*\n)*", lambda _: table, text)
        PAGE.write_text(text, encoding="utf-8")
    assert table in text, "run UPDATE_PAGES=1"


def test_the_page_explains_every_cause_with_its_class() -> None:
    """The table that people write has a row for each cause, in the order in which they are judged."""
    rows = re.findall(r"^\| (\w+) \| ([^|%]+) \| [^|]+ \| [^|]+ \|$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    assert [row for row in rows if row[0] != "cause" and row[1] != "varies"] == [
        (rule.cause, rule.class_) for rule in DIAGNOSES
    ]
