"""Rules of memory: it runs full because it grows, not because a framework takes all of it at once."""

from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.insight.alerts.evidence import Evidence, Flags, Floats, Need, Verdicts
from loadfactor.insight.alerts.rule import Compound, Limit, Limits, Rule
from loadfactor.insight.alerts.rules.reading import list_recent, read_known
from loadfactor.insight.alerts.threshold import show

_GPU: Final = ("job", "device")
_WINDOW_S: Final = 5 * S_PER_MIN
_APART_S: Final = 20 * S_PER_MIN
_WARM_UP_S: Final = 10 * S_PER_MIN
_AGO_S: Final = 10 * S_PER_MIN
_NOW, *_BEFORE = (Need("mem_utilization", _GPU, _WINDOW_S, ago) for ago in (0, _APART_S, 2 * _APART_S))
_THEN = tuple(Need("mem_utilization", _GPU, _WINDOW_S, _AGO_S + ago) for ago in (0, _APART_S, 2 * _APART_S))
"""The same three ten minutes ago: a single step up is growth only while a window holds both sides of it."""
TOLD_FOR_S: Final = S_PER_HOUR
"""So long an alert of an event stays."""


def find_pressure(evidence: Evidence, limits: Limits) -> Verdicts:
    """Memory is nearly full and grew in the last 20 minutes and the 20 before them; or a GPU was out of memory a while ago.

    What is full from its first minutes on grows no more: a framework that takes all memory is no pressure.
    """
    now, before, long_before = (read_known(evidence, need) for need in (_NOW, *_BEFORE))
    warm = evidence.starts(_GPU) + (_WARM_UP_S + _WINDOW_S + _AGO_S + 2 * _APART_S) * MS_PER_S <= evidence.at_ms
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
    events = [e for e in list_recent(evidence.records.events, evidence.at_ms, TOLD_FOR_S) if e.kind == "out_of_memory"]
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
