"""Rules of links: GPUs wait for data, for each other, or for the slowest among them."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.insight.alerts.rule import (
    Compound,
    Evidence,
    Flags,
    Floats,
    Ints,
    Limit,
    Limits,
    Need,
    Rule,
    Verdicts,
    list_recent,
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

    def explain(group: int) -> tuple[str, ...]:
        return (
            f"PCIe carries {show(pcie[group], 'share')} of its peak in its busier direction, over 10 min",
            f"SM active {show(sm[group], 'share')}",
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

    def explain(group: int) -> tuple[str, ...]:
        found = [f"SM active {show(sm[group], 'share')} over 10 min"]
        if is_moving[group]:
            found.append(f"NVLink carries {show(nvlink[group], 'share')} of its peak")
        if is_spinning[group]:
            found.append(
                f"GPU_UTIL {show(resident[group], 'share')}, at {show(power[group], 'share')} of the board's power"
                f" and tensor cores active {show(tensor[group], 'share')}: kernels are resident and wait"
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
    ratio = np.divide(value, middle, out=np.full(len(value), np.nan), where=middle > 0)
    is_far = (np.abs(value - middle) >= limits["distance"]) & (count >= limits["gpus"])
    slow = is_far & (job.above <= limits["spread"]) & (ratio <= limits["ratio"])
    alone = is_far & (job.below <= limits["spread"]) & (ratio >= 1 / limits["ratio"]) & (middle < limits["sm"])
    nearer = (1 + 2 * limits["ratio"]) / 3  # clear once a third of the difference is gone
    is_near = (ratio >= nearer) & (ratio <= 1 / nearer)
    is_clear = (count >= limits["gpus"]) & is_near

    def explain(group: int) -> tuple[str, ...]:
        who = "is slower than" if slow[group] else "works while it is waited for by"
        return (
            f"SM active {show(value[group], 'share')} over 10 min, {show(middle[group], 'share')} in the middle of the job",
            f"it {who} the other {count[group] - 1:.0f} GPUs, which are alike",
        )

    return Verdicts(groups, slow | alone, is_clear, value, "share", explain, ~evidence.read(_GPUS).is_there)


def _count_gpus(evidence: Evidence) -> Ints:
    """How many GPUs each job has now."""
    jobs = evidence.parents(_GPUS.by, _JOB)
    return np.bincount(jobs[jobs >= 0], minlength=len(evidence.groups(_JOB)))


def share_of_limit(evidence: Evidence, by: tuple[str, ...], chosen: Flags, power: Floats) -> Floats:
    """The power of chosen groups, as a share of the limit of their boards; NaN where that is not known."""
    found = np.full(len(chosen), np.nan)
    if chosen.any():
        boards = evidence.names(by, "accelerator")
        for group in np.flatnonzero(chosen).tolist():
            board = find_accelerator(boards[group] or "")
            limit_w = board.get("tdp_w") if board else None
            found[group] = power[group] / limit_w if limit_w else np.nan
    return found


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
    jobs = evidence.parents(_GPUS.by, _JOB)
    is_known = (jobs >= 0) & ~np.isnan(value)
    known = np.flatnonzero(is_known)
    order = known[np.lexsort((value[known], jobs[known]))]
    of, first, count = np.unique(jobs[order], return_index=True, return_counts=True)
    ranked, last = value[order], first + count - 1
    cut = np.maximum(count // 4, np.minimum(1, (count - 1) // 2))
    place = np.full(len(evidence.groups(_JOB)) + 1, len(of))
    place[of] = np.arange(len(of))
    own = np.where(is_known, place[jobs], len(of))

    def spread(of_jobs: Floats) -> Floats:
        return np.append(of_jobs, np.nan)[own]

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


_GPU: Final = ("job", "device")
_MEMORY_WINDOW_S: Final = 5 * S_PER_MIN
_APART_S: Final = 20 * S_PER_MIN
_WARM_UP_S: Final = 10 * S_PER_MIN
_AGO_S: Final = 10 * S_PER_MIN
_NOW, *_BEFORE = (Need("mem_utilization", _GPU, _MEMORY_WINDOW_S, ago) for ago in (0, _APART_S, 2 * _APART_S))
_THEN = tuple(Need("mem_utilization", _GPU, _MEMORY_WINDOW_S, _AGO_S + ago) for ago in (0, _APART_S, 2 * _APART_S))
"""The same three ten minutes ago: a single step up is growth only while a window holds both sides of it."""
STAYS_S: Final = S_PER_HOUR
"""So long an alert of an event stays."""


def find_pressure(evidence: Evidence, limits: Limits) -> Verdicts:
    """Memory is nearly full and grew in the last 20 minutes and the 20 before them; or a GPU was out of memory a while ago.

    What is full from its first minutes on grows no more: a framework that takes all memory is no pressure.
    """
    now, before, long_before = (read_known(evidence, need) for need in (_NOW, *_BEFORE))
    warm = evidence.starts(_GPU) + (_WARM_UP_S + _MEMORY_WINDOW_S + _AGO_S + 2 * _APART_S) * MS_PER_S <= evidence.at_ms
    is_growing = warm & _grows(now, before, long_before, limits["growth"])
    then, before_then, long_before_then = (read_known(evidence, need) for need in _THEN)
    is_growing &= _grows(then, before_then, long_before_then, limits["growth"])
    is_out = _find_out_of_memory(evidence)
    is_bad = (is_growing & (now > limits["used"])) | is_out
    is_clear = (now < limits["clears_at"]) & ~is_out

    def explain(group: int) -> tuple[str, ...]:
        if is_out[group]:
            return ("the GPU was out of memory within the last hour",)
        grown = show(now[group] - long_before[group], "share")
        return (
            f"{show(now[group], 'share')} of the memory is in use, {grown} more than 40 minutes ago",
            "it still grows",
        )

    is_gone = ~evidence.read(_NOW).is_there & ~is_out
    return Verdicts(evidence.groups(_GPU), is_bad, is_clear, now, "share", explain, is_gone)


def _grows(now: Floats, before: Floats, long_before: Floats, least: float) -> Flags:
    """More than 20 minutes ago, when it was more than 20 minutes before."""
    return (now - before >= least) & (before - long_before >= least)


def _find_out_of_memory(evidence: Evidence) -> Flags:
    """Which GPUs of which jobs were out of memory: of the jobs that had the GPU the one that began last before it."""
    groups, starts = evidence.groups(_GPU), evidence.starts(_GPU)
    found = np.zeros(len(groups), dtype=np.bool_)
    events = [e for e in list_recent(evidence.records.events, evidence.at_ms, STAYS_S) if e.kind == "out_of_memory"]
    if not events:
        return found
    jobs: dict[str, list[int]] = {event.device: [] for event in events}
    for place, (_, device) in enumerate(groups):
        if device in jobs:
            jobs[device].append(place)
    for event in events:
        had = [place for place in jobs[event.device] if starts[place] <= event.at_ms]
        if had:
            found[max(had, key=lambda place: float(starts[place]))] = True
    return found


MEMORY: Final = (
    Rule(
        "memory_pressure",
        Compound(
            find_pressure,
            (_NOW, *_BEFORE, *_THEN),
            {
                "used": Limit(0.85, "share", "memory in use above which growth is pressure", 0.1, 1),
                "clears_at": Limit(0.8, "share", "memory in use under which it is clear again", 0.1, 1),
                "growth": Limit(0.005, "share", "of the memory more in use than 20 minutes before", 0.0001, 1),
            },
        ),
        _GPU, 0.0, "warning", "model and batch",
        "The memory of a GPU grows towards its limit, or was too small: the job will die, or did.",
        "Does the job keep what it no longer needs (tensors with their graph, a cache), or did sequences become longer?",
        "The memory's course on the job's page; `torch.cuda.memory_summary()`; smaller batches, checkpointing of activations.",
    ),
)  # fmt: skip
