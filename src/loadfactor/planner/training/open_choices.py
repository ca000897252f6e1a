"""Decisions of a training plan that errors of its equations can turn: recomputation, by time and by memory."""

from collections.abc import Iterator
from dataclasses import replace

from loadfactor.base.units import PERCENT
from loadfactor.catalog.constants import read_left_out_errors
from loadfactor.planner.training.evaluation import EvaluatedLayout, evaluate_layout
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import FULL, NONE, SELECTIVE, TrainingLayout
from loadfactor.planner.training.memory import recompute_as_needed
from loadfactor.planner.training.reasons import describe_need

PEAK_RANGE = (0.82, 1.35)  # published peaks over predicted ones, four of five of 27 (`validate memory`)


def list_open_recomputation(job: TrainingJob, best: EvaluatedLayout) -> tuple[EvaluatedLayout, ...]:
    """The best layout with other recomputation, where the errors of time or memory can turn the choice, with the reason.

    Less of it where it would fit if memory is predicted too high; more of it where it is hardly slower, or where memory may be
    predicted too low.
    """
    low, high = PEAK_RANGE
    close = 1 + read_left_out_errors().layout_spread
    is_tight = best.memory_bytes * high > best.usable_bytes
    found = []
    for one in _vary_recomputation(job, best):
        change = one.step_s / best.step_s - 1
        if one.memory_bytes > one.usable_bytes:
            if change < 0 and one.memory_bytes * low <= one.usable_bytes:
                over = (one.memory_bytes / one.usable_bytes - 1) * PERCENT
                why = f"{_write(-change)} faster; {describe_need(one)}, so it fits if that is predicted {over:.0f} % too high"
                found.append(replace(one, why_it_loses=why))
        elif one.memory_bytes < best.memory_bytes and is_tight and one.memory_bytes * high <= one.usable_bytes:
            why = f"{_write(change)} slower, and fits where memory is predicted a quarter too low"
            found.append(replace(one, why_it_loses=why))
        elif 0 <= change < close - 1:
            found.append(replace(one, why_it_loses=f"{_write(change)} slower, which is too close to call"))
    return tuple(found)


def _vary_recomputation(job: TrainingJob, best: EvaluatedLayout) -> Iterator[EvaluatedLayout]:
    """The same layout with none, selective, as little as needed and full recomputation, each once and none like the best."""
    seen = {(round(best.step_s, 9), best.memory_bytes)}
    for mode in (NONE, SELECTIVE, FULL):
        whole = replace(best.layout, recompute=mode, recompute_share=1.0)
        ways: list[TrainingLayout] = [whole]
        if mode == FULL:
            ways.insert(0, recompute_as_needed(job, whole.as_arrays()).pick(0))
        for layout in ways:
            one = evaluate_layout(job, layout)
            key = (round(one.step_s, 9), one.memory_bytes)
            if key not in seen:
                seen.add(key)
                yield one


def _write(share: float) -> str:
    return f"{share * PERCENT:.1f} %"
