"""A measured run moves the constants of a plan, and how much it says of other layouts."""

from collections.abc import Sequence
from math import exp, log

import pytest

from loadfactor import plan_training
from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.units import BYTES_PER_GIB
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.models import network
from loadfactor.planner.training.calibration import (
    PEAK_SPREAD,
    TENTH,
    MeasuredTraining,
    calibrate,
    read_layout,
    read_measured,
)
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import FULL, TrainingLayout
from loadfactor.planner.training.machine import build_machine
from loadfactor.planner.training.memory import estimate_memory
from loadfactor.planner.training.step import estimate_step

JOB = TrainingJob(network("llama-3.1-8b"), 8192, 512, build_machine(accelerator("h100-sxm")))
LAYOUT = TrainingLayout(2, 1, 32, micro_batch=1, zero=1, sequence_parallel=True)
OTHER = TrainingLayout(4, 2, 8, micro_batch=1, zero=1, sequence_parallel=True)


def step_s(job: TrainingJob, layout: TrainingLayout = LAYOUT) -> float:
    return float(estimate_step(job, layout).step_s[0])


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.3, 2.0])
def test_a_measured_step_moves_predictions_towards_it(factor: float) -> None:
    """Nearer than before, not beyond; other layouts by about as much; the range of all of them does not grow."""
    measured = factor * step_s(JOB)
    after, report = calibrate(JOB, LAYOUT, MeasuredTraining(measured, None, None))
    assert abs(log(measured / report.step_s_after)) <= max(0.45 * abs(log(factor)), 0.05)
    assert report.step_s_after == pytest.approx(step_s(after))
    assert step_s(after, OTHER) / step_s(JOB, OTHER) == pytest.approx(step_s(after) / step_s(JOB), rel=0.1)
    low, high = report.time_range_after
    assert high / low < report.time_range_before[1] / report.time_range_before[0] * 1.1
    if factor > 1.2:
        assert any(one.after < one.before for one in report.constants if one.name.startswith("matmul_share"))


def test_a_measured_peak_is_weighed_by_what_was_known() -> None:
    """By hand: two normals of logarithms, what published peaks are off by and what layouts of one job differ by."""
    peak = float(estimate_memory(JOB, LAYOUT).total_bytes[0])
    after, report = calibrate(JOB, LAYOUT, MeasuredTraining(None, 1.3 * peak, None))
    low, high = map(log, JOB.peak_range)
    variance = ((high - low) / 2 / TENTH) ** 2
    expected = ((low + high) / 2 / variance + log(1.3) / PEAK_SPREAD**2) / (1 / variance + 1 / PEAK_SPREAD**2)
    assert report.peak_bytes_after / peak == pytest.approx(exp(expected))
    other, before = (float(estimate_memory(job, OTHER).total_bytes[0]) for job in (after, JOB))
    assert other / before == pytest.approx(exp(expected))
    assert step_s(after) == step_s(JOB)
    assert after.peak_range[1] / after.peak_range[0] < JOB.peak_range[1] / JOB.peak_range[0]


def test_a_plan_after_a_measured_run() -> None:
    """Time, cost and layout are those of the moved constants, and the page says what was measured."""
    given = {"model": "llama-3.1-8b", "gpus": (64,), "tokens": 1e12, "global_batch": 512, "framework": "megatron"}
    plain = plan_training(**given).data
    slow = plan_training(**given, measured=("step=12s", "layout=tp2/mb1/zero1"), measured_peak="75GiB")
    assert slow.data.plans[0].step_s > 1.2 * plain.plans[0].step_s
    assert slow.data.calibration.measured_peak_bytes == 75 * BYTES_PER_GIB
    assert slow.data.plans[0].time_range == slow.data.calibration.time_range_after
    assert "Calibrated" in str(slow)
    assert plain.calibration is None
    alone = plan_training(**given, measured=("step=12s",)).data
    assert str(alone.calibration.layout) == str(plain.plans[0].best.layout)


@pytest.mark.parametrize(
    "text",
    [
        "tp4/pp2x4/dp8/mb2/full",
        "TP4 PP2×4 DP8 mb2 full ZeRO-1",
        "TP 4 · PP 2 ×4 · DP 8 · micro-batch 2 · full recompute · ZeRO-1",
    ],
)
def test_layouts_are_read_as_pages_write_them(text: str) -> None:
    """With slashes, as in tables, and in long form; data ranks follow from the GPUs."""
    expected = TrainingLayout(4, 2, 8, micro_batch=2, interleave=4, recompute=FULL, sequence_parallel=True)
    assert read_layout(text, 64, JOB) == expected
    assert read_layout("tp2 fsdp mb1", 64, JOB).zero == 3


@pytest.mark.parametrize(
    ("texts", "peak", "error"),
    [
        (("stp=2s",), None, "--measured is step="), (("step=",), None, "--measured is step="),
        (("step=soon",), None, "no length of time"), (("layout=tp2",), None, "give step=1.92s, too"),
        ((), "much", "no size"), ((), "-4GB", "no size"),
    ],
)  # fmt: skip
def test_what_is_no_measured_run_is_refused(texts: Sequence[str], peak: str | None, error: str) -> None:
    """In one line that says how it is written."""
    with pytest.raises(InputError, match=error):
        read_measured(texts, peak)


def test_layouts_that_the_job_cannot_have_are_refused() -> None:
    """Words that are none, other numbers of GPUs, data ranks that do not divide the batch."""
    with pytest.raises(InputError, match="no layout has 'quick'"):
        read_layout("tp2 quick", 64, JOB)
    with pytest.raises(PlanError, match="takes 32 GPUs"):
        read_layout("tp2 dp16", 64, JOB)
    with pytest.raises(PlanError, match="do not divide a global batch of 512"):
        read_layout("tp1 mb16", 64, JOB)
