"""Rules of memory: a GPU's memory grows towards its limit, or was too small. Growth towards it has its one definition here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_S, S_PER_HOUR, S_PER_MIN
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
    read_known,
    show,
)

WINDOW_MIN: Final = 10
"""The window over which growth is judged as it goes on: from so many means of a minute, or as many of longer steps as it has."""
STRAIGHT: Final = 0.92
"""Share of the variance that a straight line explains, at least: two steps up have 0.89, a step or a sawtooth less."""
FALLING_OFF: Final = 0.97
"""A pace below this share of the one before falls off: then what follows is a geometric series, and may never fill the memory."""


@dataclass(frozen=True)
class Growth:
    """Growth over a window by group: `grown` in shares of the memory, and in how many minutes it is full at its pace.

    `full_min` is infinite where it does not grow, not in a straight line, or levels off below the limit; NaN where it is not known.
    """

    grown: Floats
    full_min: Floats


def project_growth(used: Floats, step_min: float = 1.0) -> Growth:
    """The growth of memory in use (shares; points × groups, five points at least) and the time to full, if it goes on like this.

    >>> ramp = np.array([[0.30 + 0.02 * minute] for minute in range(10)])
    >>> found = project_growth(ramp)
    >>> round(float(found.grown[0]), 2), round(float(found.full_min[0]), 1)
    (0.18, 26.0)
    """
    points = len(used)
    third = points // 3
    first, middle, last = used[:third].mean(0), used[third : points - third].mean(0), used[-third:].mean(0)
    earlier, later, left = middle - first, last - middle, 1 - last
    at = np.arange(points) - (points - 1) / 2
    centred = used - used.mean(0)
    slope, spread = at @ centred / (at @ at), (centred**2).sum(0)
    with np.errstate(all="ignore"):  # what does not grow is left out below
        is_straight = slope**2 * (at @ at) >= STRAIGHT * spread
        goes_on = (earlier > 0) & (later > 0) & (used[-1] - used[-3] >= slope)  # half of its pace at least, to the last
        pace = later / earlier
        part = (
            left * (1 - pace) / (later * pace)
        )  # of all that is still to come, where each part is so much of the one before
        falling = np.where(part < 1, np.log1p(-part) / np.log(pace), np.inf)
        periods = np.where(pace < FALLING_OFF, falling, left / later)
    full_min = np.maximum(periods * (points - third) / 2 - (third - 1) / 2, 0) * step_min
    full_min = np.where(is_straight & goes_on, full_min, np.inf)
    is_known = ~np.isnan(used).any(0)
    return Growth(np.where(is_known, used[-1] - used[0], np.nan), np.where(is_known, full_min, np.nan))


def is_filling(growth: Growth, latest: Floats, highest: Floats, limits: Limits) -> Flags:
    """Whether memory grows steadily beyond what was in use before, and is full soon.

    `highest` before the window, NaN where nothing is known: what was in use before is nothing new, as with an allocator that
    fills its cache and empties it again and again.
    """
    grown = np.fmin(growth.grown, latest - highest)
    return (grown >= limits["steep"]) & (growth.full_min <= limits["full_in"])


_GPU: Final = ("job", "device")
HIGHEST_MIN: Final = 60
"""So long before the window the highest is looked for."""
_MINUTES: Final = tuple(
    Need("mem_utilization", _GPU, S_PER_MIN, ago * S_PER_MIN) for ago in reversed(range(WINDOW_MIN + HIGHEST_MIN))
)
"""The window, after an hour of which the highest is read where it matters."""
_SETTLES_S: Final = 5 * S_PER_MIN
"""The first minutes of a job, in which it loads what it works on, are no growth."""
_MEAN_S: Final = 5 * S_PER_MIN
_APART_S: Final = 20 * S_PER_MIN
_WARM_UP_S: Final = 10 * S_PER_MIN
_AGO_S: Final = 10 * S_PER_MIN
_NOW, *_BEFORE = (Need("mem_utilization", _GPU, _MEAN_S, ago) for ago in (0, _APART_S, 2 * _APART_S))
_THEN = tuple(Need("mem_utilization", _GPU, _MEAN_S, _AGO_S + ago) for ago in (0, _APART_S, 2 * _APART_S))
"""The same three ten minutes ago: a single step up is growth only while a window holds both sides of it."""
_ROUNDING: Final = 1e-9
STAYS_S: Final = S_PER_HOUR
"""So long an alert of an event stays."""


def find_pressure(evidence: Evidence, limits: Limits) -> Verdicts:
    """Memory grows steadily and is full soon; or it is nearly full and grew for 40 minutes; or a GPU was out of it a while ago.

    What is full from its first minutes on grows no more: a framework that takes all memory is no pressure.
    """
    now, before, long_before = (read_known(evidence, need) for need in (_NOW, *_BEFORE))
    is_creeping = evidence.has_lasted(_GPU, _WARM_UP_S + _MEAN_S + _AGO_S + 2 * _APART_S)
    is_creeping &= _grows(now, before, long_before, limits["growth"])
    then, before_then, long_before_then = (read_known(evidence, need) for need in _THEN)
    is_creeping &= _grows(then, before_then, long_before_then, limits["growth"])
    used = [read_known(evidence, need) for need in _MINUTES[-WINDOW_MIN:]]
    latest, full_min = used[-1], np.full(now.shape, np.inf)
    full_min[np.isnan(sum(used))] = np.nan
    near = np.nonzero(_may_be_full(used, 2 * limits["full_in"]) | (latest - used[0] >= limits["steep"]))
    growth = project_growth(np.stack([of[near] for of in used]))
    full_min[near] = growth.full_min
    is_steep = np.zeros(now.shape, dtype=np.bool_)
    is_steep[near] = is_filling(growth, latest[near], np.full_like(growth.grown, np.nan), limits)
    is_steep &= evidence.has_lasted(_GPU, _SETTLES_S + WINDOW_MIN * S_PER_MIN)
    if is_steep.any():
        steep = np.nonzero(is_steep)
        highest = np.fmax.reduce([evidence.read(need).value[steep] for need in _MINUTES[:-WINDOW_MIN]])
        is_steep[steep] = is_filling(
            project_growth(np.stack([of[steep] for of in used])), latest[steep], highest, limits
        )
    is_out = _find_out_of_memory(evidence)
    is_bad = (is_creeping & (now > limits["used"])) | is_steep | is_out
    still_steep = full_min <= 2 * limits["full_in"]
    is_clear = (now < limits["clears_at"]) & ~is_out & ~still_steep

    def explain(step: int, group: int) -> tuple[str, ...]:
        at = step, group
        if is_out[at]:
            return ("the GPU was out of memory within the last hour",)
        if is_steep[at]:
            return (
                f"{show(latest[at], 'share')} of the memory is in use, {show(latest[at] - used[0][at], 'share')} more than"
                f" {WINDOW_MIN} minutes before",
                f"if it goes on growing like this it is full in {full_min[at]:.0f} minutes",
            )
        return (
            f"{show(now[at], 'share')} of the memory is in use, {show(now[at] - before[at], 'share')} more than"
            f" 20 minutes before; in the 20 minutes before these it grew by {show(before[at] - long_before[at], 'share')}",
        )

    is_gone = ~evidence.read(_NOW).is_there & ~is_out
    value = np.where(np.isnan(now), latest, now)
    return Verdicts(evidence.groups(_GPU), is_bad, is_clear, value, "share", explain, is_gone)


def _may_be_full(used: Sequence[Floats], within_min: float) -> Flags:
    """Where memory may be full within so many minutes: nowhere else does `project_growth` give less, which costs much more."""
    points, third = len(used), len(used) // 3
    middle, last = (np.add.reduce(of) / len(of) for of in (used[third : points - third], used[-third:]))
    periods = (within_min + (third - 1) / 2) * 2 / (points - third)
    may: Flags = (last - middle) * periods >= (1 - last) * (1 - _ROUNDING)
    return may


def _grows(now: Floats, before: Floats, long_before: Floats, least: float) -> Flags:
    """More than 20 minutes ago, when it was more than 20 minutes before."""
    return (now - before >= least) & (before - long_before >= least)


def _find_out_of_memory(evidence: Evidence) -> Flags:
    """Which GPUs of which jobs were out of memory: of the jobs that had the GPU the one that began last before it."""
    groups, starts = evidence.groups(_GPU), evidence.starts(_GPU)
    found = np.zeros(starts.shape, dtype=np.bool_)
    for event in evidence.records.events:
        if event.kind != "out_of_memory":
            continue
        steps = evidence.find_steps(event.at_ms, event.at_ms + STAYS_S * MS_PER_S)
        of = [place for place, (_, device) in enumerate(groups) if device == event.device]
        began = np.where(starts[steps, of] <= event.at_ms, starts[steps, of], -np.inf)
        if of:
            latest, had = np.argmax(began, axis=1), np.isfinite(began).any(axis=1)
            found[steps.start + np.flatnonzero(had), np.array(of)[latest[had]]] = True
    return found


FULL_IN: Final = Limit(
    10, "min", "time to full at which steady growth is pressure, at the pace of the last 10 minutes", 1, 60
)
STEEP: Final = Limit(
    0.05, "share", "of the memory more in use than 10 minutes before, and than in the hour before these", 0.01, 1
)
MEMORY: Final = (
    Rule(
        "memory_pressure",
        Compound(
            find_pressure,
            (*_MINUTES, _NOW, *_BEFORE, *_THEN),
            {
                "full_in": FULL_IN,
                "steep": STEEP,
                "used": Limit(0.85, "share", "memory in use above which slow growth is pressure", 0.1, 1),
                "growth": Limit(0.005, "share", "of the memory more in use than 20 minutes before, twice in a row", 0.0001, 1),
                "clears_at": Limit(0.8, "share", "memory in use under which it is clear again", 0.1, 1),
            },
        ),
        _GPU, 0.0, "warning", "model and batch",
        "The memory of a GPU grows towards its limit, or was too small: the job will die, or did.",
        "Does the job keep what it no longer needs (tensors with their graph, a cache), or did sequences become longer?",
        "The memory's course on the job's page; `torch.cuda.memory_summary()`; smaller batches, checkpointing of activations.",
    ),
)  # fmt: skip
