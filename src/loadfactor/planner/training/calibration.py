"""A run that was measured moves the constants of a plan by Bayes' rule: what is known beforehand, the run, what is known after.

In logarithms, all normal: each constant lies about the fitted one (CONSTANT_SPREAD); the whole stack is off by as much as sources
that were left out of the fit; one layout is off beside another of the job by what two of them differ. One measured step then moves
every constant by as much as the step depends on it, and the stack by the rest.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.quantities import parse_bytes, parse_duration_s
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.constants import TrainingConstants, read_constants, read_left_out_errors
from loadfactor.planner.hardware.distance import (
    TENTH,
    WORTH_SAYING,
    MovedConstant,
    read_spread,
    spread_range,
    weigh_measurements,
)
from loadfactor.planner.training.distance import find_range
from loadfactor.planner.training.job import Calibration, TrainingJob
from loadfactor.planner.training.layout import NONE, RECOMPUTE, TrainingLayout
from loadfactor.planner.training.machine import build_machine
from loadfactor.planner.training.memory import estimate_memory
from loadfactor.planner.training.step import estimate_step

CONSTANT_SPREAD = 0.15  # of the logarithm of a constant: about what fitted ones lie from their priors
PEAK_SPREAD = 0.05  # of the logarithm of a peak, between layouts of one job
NUDGE = 0.01


@dataclass(frozen=True)
class MeasuredTraining:
    """A measured run of the job: seconds of a step or bytes of the fullest GPU, or both, in a layout."""

    step_s: float | None
    peak_bytes: float | None
    layout: str | None
    """As tp4/pp2x20/mb1/zero1/full; None: the one that the plan would choose."""


@dataclass(frozen=True)
class MovedTrainingConstant(MovedConstant):
    """`seconds_share`: how much of a change of it the step takes up."""

    seconds_share: float


@dataclass(frozen=True)
class CalibrationReport:
    """What a measured run changed. Factors are on predicted seconds and bytes, beside what moved constants do."""

    layout: TrainingLayout
    measured_step_s: float | None
    step_s_before: float
    step_s_after: float
    measured_peak_bytes: float | None
    peak_bytes_before: float
    peak_bytes_after: float
    stack_factor: float
    time_range_before: tuple[float, float]
    time_range_after: tuple[float, float]
    constants: Sequence[MovedTrainingConstant]


def read_measured(texts: Sequence[str], peak: str | None) -> MeasuredTraining | None:
    """The run of `--measured step=1.92s,layout=tp4/mb1` and `--measured-peak 71GiB`; None without any.

    Raises InputError that says how it is written.

    >>> read_measured(("step=1.92s", "layout=tp4/pp2"), "71GiB")
    MeasuredTraining(step_s=1.92, peak_bytes=76235669504.0, layout='tp4/pp2')
    """
    given: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if name not in ("step", "layout") or not equals or not value:
            raise InputError(f"--measured is step=1.92s or step=1.92s,layout=tp4/pp2/mb1/zero1, got {text!r}")
        given[name] = value
    if "layout" in given and "step" not in given and peak is None:
        raise InputError("--measured has a layout and no step; give step=1.92s, too")
    if not given and peak is None:
        return None
    step_s = parse_duration_s(given["step"]) if "step" in given else None
    return MeasuredTraining(step_s, None if peak is None else parse_bytes(peak), given.get("layout"))


TOKEN = re.compile(r"(tp|pp|cp|dp|ep|mb|zero|micro-?batch)[ -]?(\d+)(?:[x×](\d+))?|(fsdp|none|selective|full)")
FIELDS = {
    "tp": "tensor", "pp": "pipeline", "cp": "context", "dp": "data", "ep": "expert", "mb": "micro_batch", "zero": "zero",
    "microbatch": "micro_batch",
}  # fmt: skip


def read_layout(text: str, gpus: int, job: TrainingJob) -> TrainingLayout:
    """A layout as people and the pages of plans write it; data ranks follow from the GPUs.

    Raises InputError for a word that is none, PlanError where it does not make up the GPUs or divide the batch.
    """
    found: dict[str, int] = {}
    for word in re.split(r"[/·+, ]+", re.sub(r"(?<=[a-z]) (?=[\d×])|(?<=\d) (?=[×x]\d)", "", text.lower().strip())):
        token = TOKEN.fullmatch(word)
        if word in ("", "recompute"):
            continue
        if token is None:
            raise InputError(f"--measured: no layout has {word!r}; write it as tp4/pp2x4/dp8/mb1/zero1/full")
        if token[4] == "fsdp":
            found["zero"] = 3
        elif token[4]:
            found["recompute"] = RECOMPUTE.index(token[4])
        else:
            found[FIELDS[token[1].replace("-", "")]] = int(token[2])
            if token[3]:
                found["interleave"] = int(token[3])
    cut = found.get("tensor", 1) * found.get("pipeline", 1) * found.get("context", 1)
    found.setdefault("data", max(gpus // cut, 1))
    layout = TrainingLayout(
        **{"zero": int(job.software.distributed_optimizer), "recompute": NONE} | found,
        sequence_parallel=job.software.sequence_parallel and found.get("tensor", 1) > 1,
    )
    if layout.gpus != gpus:
        raise PlanError(
            f"the measured layout takes {layout.gpus} GPUs, and the plan is for {gpus}; give it with --gpus first"
        )
    if job.global_batch % (layout.data * layout.micro_batch):
        raise PlanError(
            f"the measured layout has {layout.data} data ranks of micro-batch {layout.micro_batch}, which do not divide a global "
            f"batch of {job.global_batch}; give that run's --global-batch"
        )
    return layout


def calibrate(
    job: TrainingJob, layout: TrainingLayout, measured: MeasuredTraining
) -> tuple[TrainingJob, CalibrationReport]:
    """The job as it is known after the run, and what changed."""
    step_before, peak_before = _predict_step(job, layout), _predict_peak(job, layout)
    range_before = find_range(job, layout.gpus)
    moved: list[MovedTrainingConstant] = []
    after, stack_factor, step_range = job, 1.0, None
    if measured.step_s is not None:
        noise = (read_left_out_errors().layout_spread / TENTH) ** 2 / 2
        names = [name for name, entry in read_constants("training.toml").items() if "prior" in entry]
        slopes = {name: _find_slope(job, layout, name, step_before) for name in names}
        surprise, stack = float(np.log(measured.step_s / step_before)), read_spread(*range_before)
        known = weigh_measurements([surprise], [list(slopes.values())], [0], CONSTANT_SPREAD, [stack], [noise])
        values = {
            name: getattr(job.constants, name) * float(np.exp(move))
            for name, move in zip(names, known.moves, strict=True)
        }
        after = with_constants(job, replace(job.constants, **values))
        stack_factor = float(np.exp(known.stack_mean[0]))
        step_range = spread_range(float(known.stack_variance[0]) + noise)
        moved = [
            MovedTrainingConstant(name, getattr(job.constants, name), values[name], abs(slopes[name]))
            for name in names
            if abs(values[name] / getattr(job.constants, name) - 1) > WORTH_SAYING
        ]
    peak_factor, peak_range = 1.0, None
    if measured.peak_bytes is not None:
        seen = float(np.log(measured.peak_bytes / peak_before))
        peak = weigh_measurements([seen], [[]], [0], 0.0, [read_spread(*job.peak_range)], [PEAK_SPREAD**2])
        peak_factor = float(np.exp(peak.stack_mean[0]))
        peak_range = spread_range(float(peak.stack_variance[0]) + PEAK_SPREAD**2)
    calibration = Calibration(stack_factor, step_range, peak_factor, peak_range)
    after = replace(after, calibration=calibration)
    return after, CalibrationReport(
        layout,
        measured.step_s,
        step_before,
        _predict_step(after, layout),
        measured.peak_bytes,
        peak_before,
        _predict_peak(after, layout),
        stack_factor,
        range_before,
        step_range or range_before,
        sorted(moved, key=lambda m: -abs(np.log(m.after / m.before))),
    )


def _predict_step(job: TrainingJob, layout: TrainingLayout) -> float:
    return float(np.ravel(estimate_step(job, layout).step_s)[0])


def _predict_peak(job: TrainingJob, layout: TrainingLayout) -> float:
    return float(np.ravel(estimate_memory(job, layout).total_bytes)[0])


def _find_slope(job: TrainingJob, layout: TrainingLayout, name: str, step_s: float) -> float:
    """Change of the logarithm of a step by that of a constant."""
    nudged = replace(job.constants, **{name: getattr(job.constants, name) * (1 + NUDGE)})
    return float(np.log(_predict_step(with_constants(job, nudged), layout) / step_s) / np.log1p(NUDGE))


def with_constants(job: TrainingJob, constants: TrainingConstants) -> TrainingJob:
    """The same job on a machine whose software gets other shares of the datasheet's peaks."""
    old = job.machine
    new = build_machine(accelerator(old.name), old.datatype, old.fabric.scale_out_bytes_per_s, constants, job.software)
    kept = replace(new, fabric=replace(new.fabric, domain_gpus=old.fabric.domain_gpus))
    return replace(job, machine=kept, constants=constants)
