"""Rules of links: GPUs wait for data, for each other, or for the slowest among them."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from loadfactor.base.units import S_PER_MIN
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.insight.alerts.rule import (
    Compound,
    Evidence,
    Flags,
    Floats,
    Limit,
    Limits,
    Need,
    Rule,
    Verdicts,
    count_by,
    flatten,
    read_known,
    show,
)

_JOB: Final = ("job",)
_WINDOW_S: Final = 10 * S_PER_MIN
_SM = Need("sm_activity", _JOB, _WINDOW_S)
_PCIE = Need("pcie_saturation", _JOB, _WINDOW_S)
_NVLINK = Need("nvlink_saturation", _JOB, _WINDOW_S)
_RESIDENT = Need("gpu_util", _JOB, _WINDOW_S)
_TENSOR = Need("tensor_activity", _JOB, _WINDOW_S)
_POWER = Need("power_w", _JOB, _WINDOW_S)
_BOARDS = Need("power_w", ("accelerator",), S_PER_MIN)
"""Read so that the accelerator of a job is known."""
_GPUS = Need("sm_activity", ("job", "device"), _WINDOW_S)
_LOW_SM = Limit(0.5, "share", "SM activity under which the GPUs of a job wait", 0.01, 1)


def find_full_pcie(evidence: Evidence, limits: Limits) -> Verdicts:
    """PCIe is full while the GPUs wait."""
    sm, pcie = read_known(evidence, _SM), read_known(evidence, _PCIE)
    is_bad = (pcie > limits["traffic"]) & (sm < limits["sm"])
    is_clear = (pcie <= limits["clears_at"]) | (sm >= 1.1 * limits["sm"])

    def explain(step: int, group: int) -> tuple[str, ...]:
        return (
            f"PCIe carries {show(pcie[step, group], 'share')} of its peak in its busier direction, over 10 min",
            f"SM active {show(sm[step, group], 'share')}",
        )

    value = np.where(np.isnan(sm), np.nan, pcie)
    return Verdicts(evidence.groups(_JOB), is_bad, is_clear, value, "share", explain, ~evidence.read(_SM).is_there)


def find_waiting_for_others(evidence: Evidence, limits: Limits) -> Verdicts:
    """GPUs of a job wait for each other: NVLink is busy, or kernels are resident that draw little power and do no matrix work.

    A job with one GPU waits for nobody.
    """
    sm, nvlink, resident, tensor = (read_known(evidence, need) for need in (_SM, _NVLINK, _RESIDENT, _TENSOR))
    is_low = (sm < limits["sm"]) & (_count_gpus(evidence) > 1)
    is_moving = nvlink > limits["nvlink"]
    near = is_low & (resident > limits["gpu_util"]) & (tensor < limits["tensor"])
    power = share_of_limit(evidence, _JOB, near, read_known(evidence, _POWER))
    is_spinning = near & (power < limits["power"])
    is_bad = is_low & (is_moving | is_spinning)
    is_known = ~np.isnan(sm) & ~(np.isnan(nvlink) & np.isnan(tensor))
    # neither is left: traffic fell, and kernels come and go or work
    still = (nvlink > 0.8 * limits["nvlink"]) | (
        (resident > 0.95 * limits["gpu_util"]) & (tensor < 1.2 * limits["tensor"])
    )
    is_clear = is_known & ((sm >= 1.1 * limits["sm"]) | ~still)

    def explain(step: int, group: int) -> tuple[str, ...]:
        at = step, group
        found = [f"SM active {show(sm[at], 'share')} over 10 min"]
        if is_moving[at]:
            found.append(f"NVLink carries {show(nvlink[at], 'share')} of its peak")
        if is_spinning[at]:
            found.append(
                f"GPU_UTIL {show(resident[at], 'share')}, at {show(power[at], 'share')} of the board's power"
                f" and tensor cores active {show(tensor[at], 'share')}: kernels are resident and wait"
            )
        return tuple(found)

    value = np.where(is_known, sm, np.nan)
    return Verdicts(evidence.groups(_JOB), is_bad, is_clear, value, "share", explain, ~evidence.read(_SM).is_there)


def find_stragglers(evidence: Evidence, limits: Limits) -> Verdicts:
    """One GPU of a job does far less than the others, which are alike, or far more, while they wait for it.

    GPUs that do nothing at all are no stragglers: nobody uses them.
    """
    by = _GPUS.by
    value, groups = read_known(evidence, _GPUS), evidence.groups(by)
    value = np.where(value < limits["least"], np.nan, value)
    job = _spread_by_job(evidence, value)
    middle, count = job.middle, job.count
    ratio = np.divide(value, middle, out=np.full(value.shape, np.nan), where=middle > 0)
    is_far = (np.abs(value - middle) >= limits["distance"]) & (count >= limits["gpus"])
    slow = is_far & (job.above <= limits["spread"]) & (ratio <= limits["ratio"])
    alone = is_far & (job.below <= limits["spread"]) & (ratio >= 1 / limits["ratio"]) & (middle < limits["sm"])
    nearer = (1 + 2 * limits["ratio"]) / 3  # clear once a third of the difference is gone
    is_near = (ratio >= nearer) & (ratio <= 1 / nearer)
    is_clear = (count >= limits["gpus"]) & is_near

    def explain(step: int, group: int) -> tuple[str, ...]:
        at = step, group
        who = "is slower than" if slow[at] else "works while it is waited for by"
        return (
            f"SM active {show(value[at], 'share')} over 10 min, {show(middle[at], 'share')} in the middle of the job",
            f"it {who} the other {count[at] - 1:.0f} GPUs, which are alike",
        )

    return Verdicts(groups, slow | alone, is_clear, value, "share", explain, ~evidence.read(_GPUS).is_there)


def _count_gpus(evidence: Evidence) -> Floats:
    """How many GPUs each job has now."""
    jobs = evidence.parents(_GPUS.by, _JOB)
    return count_by(jobs, len(evidence.groups(_JOB)), np.ones_like(jobs))


def share_of_limit(evidence: Evidence, by: tuple[str, ...], chosen: Flags, power: Floats) -> Floats:
    """The power of chosen groups, as a share of the limit of their boards; NaN where that is not known."""
    found = np.full(chosen.shape, np.nan)
    if chosen.any():
        boards = evidence.names(by, "accelerator")
        limits_w = np.array(
            [*(_find_limit(name) for name in boards.names), np.nan]
        )  # a code of −1 is that of the last one
        found[chosen] = power[chosen] / limits_w[boards.codes[chosen]]
    return found


def _find_limit(accelerator: str) -> float:
    """The limit of power of a board, in watts; NaN where it is not known."""
    board = find_accelerator(accelerator)
    return (board.get("tdp_w") if board else None) or np.nan


@dataclass(frozen=True)
class _JobSpread:
    """Of the job of each GPU: its middle, how many GPUs are known, and how far they lie apart without a quarter at one end."""

    middle: Floats
    count: Floats
    above: Floats
    """Without the lowest ones."""
    below: Floats
    """Without the highest ones."""


def _spread_by_job(evidence: Evidence, value: Floats) -> _JobSpread:
    """The middle and the spread of the job of each GPU; NaN, and a count of 0, where the GPU is not known itself."""
    jobs, among = evidence.parents(_GPUS.by, _JOB), len(evidence.groups(_JOB))
    is_known = (jobs >= 0) & ~np.isnan(value)
    known = np.flatnonzero(is_known)
    of_step, levels = flatten(jobs, among)[known], value.ravel()[known]
    order = np.lexsort((levels, of_step))
    of, first, count = np.unique(of_step[order], return_index=True, return_counts=True)
    ranked, last = levels[order], first + count - 1
    cut = np.maximum(count // 4, np.minimum(1, (count - 1) // 2))
    own = np.searchsorted(of, of_step)

    def spread(of_jobs: Floats) -> Floats:
        found = np.full(value.shape, np.nan)
        found.ravel()[known] = of_jobs[own]
        return found

    return _JobSpread(
        spread((ranked[first + (count - 1) // 2] + ranked[first + count // 2]) / 2),
        np.nan_to_num(spread(count.astype(np.float64))),
        spread(ranked[last] - ranked[first + cut]),
        spread(ranked[last - cut] - ranked[first]),
    )


LINKS: Final = (
    Rule(
        "pcie_saturated",
        Compound(
            find_full_pcie,
            (_SM, _PCIE),
            {
                "traffic": Limit(0.7, "share", "PCIe traffic of its peak, in the busier direction", 0.05, 1),
                "clears_at": Limit(0.6, "share", "traffic at which it is clear again", 0.05, 1),
                "sm": _LOW_SM,
            },
        ),
        _JOB, 10 * S_PER_MIN, "warning", "I/O",
        "PCIe is full while the GPUs of a job wait: what they work on does not fit through it.",
        "What moves: inputs that could be smaller, offloaded weights and optimizer states, or copies between GPUs?",
        "Pinned memory, inputs decoded on the GPU, less offloading; `nvidia-smi topo -m` for GPUs without NVLink between them.",
    ),
    Rule(
        "collective_bound",
        Compound(
            find_waiting_for_others,
            (_SM, _NVLINK, _RESIDENT, _TENSOR, _POWER, _GPUS, _BOARDS),
            {
                "sm": _LOW_SM,
                "nvlink": Limit(0.4, "share", "NVLink traffic of its peak, in both directions together", 0.05, 1),
                "gpu_util": Limit(0.95, "share", "GPU_UTIL above which kernels are always resident", 0.5, 1),
                "tensor": Limit(0.1, "share", "tensor activity under which they do no matrix work", 0.01, 1),
                "power": Limit(0.6, "share", "power of the board's limit under which they do little at all", 0.1, 1),
            },
        ),
        _JOB, 10 * S_PER_MIN, "warning", "communication",
        "GPUs of a job spend their time in collectives such as AllReduce: links are busy or kernels wait, little is computed.",
        "Is too much sent for what is computed (small batches, many GPUs), is the network slow, or is one GPU waited for?",
        "`job_straggler` for one slow GPU; the network's counters; larger batches, gradient accumulation, layouts within a node.",
    ),
    Rule(
        "job_straggler",
        Compound(
            find_stragglers,
            (_GPUS, _SM),
            {
                "ratio": Limit(0.75, "share", "SM activity of one GPU of that in its job's middle, or the inverse", 0.05, 0.95),
                "distance": Limit(0.15, "share", "least difference to the middle", 0.01, 1),
                "spread": Limit(0.15, "share", "within which the other GPUs lie, without a quarter at either end", 0.01, 1),
                "sm": Limit(0.55, "share", "SM activity of the others, under which they wait for a GPU that works more", 0.05, 1),
                "least": Limit(0.02, "share", "SM activity under which a GPU is not used at all", 0, 0.5),
                "gpus": Limit(3, "GPUs", "least GPUs of a job of which one can be told from the others", 3),
            },
        ),
        ("job", "device"), 10 * S_PER_MIN, "warning", "hardware",
        "One GPU of a job does far less than the others, or all others wait for it.",
        "Is it the GPU (throttled, errors), its node (disk, network), or does the program give this rank more or other work?",
        "`gpu_throttled`, `gpu_hot` and `gpu_xid` of the device; the job once more without this node.",
    ),
)  # fmt: skip
