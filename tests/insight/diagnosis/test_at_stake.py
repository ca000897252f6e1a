"""What is at stake in all, on random jobs with any mixture of symptoms."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.insight.diagnosis.diagnose import diagnose_job
from loadfactor.insight.diagnosis.diagnosed_job import NODE_SIGNALS, SIGNALS, DiagnosedJob, JobAttempt
from loadfactor.insight.diagnosis.rules import DIAGNOSES

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


def test_every_rule_is_met_by_random_jobs() -> None:
    """The jobs of the tests above are not spared by most rules."""
    met = {finding.cause for seed in range(400) for finding in diagnose_job(make_job(seed)).findings}
    assert len(met) >= len(DIAGNOSES) / 2
