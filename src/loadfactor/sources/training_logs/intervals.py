"""Iterations become intervals: from when to when, which steps, and how much of each unit was done in them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Gaps, ReadOptions
from loadfactor.sources.training_logs.amounts import find_amounts, find_seconds
from loadfactor.sources.training_logs.iteration import Attempt, Iteration, RunLog, Values
from loadfactor.sources.training_logs.sections import JobSections

SAY_START: Final = "say when the run began: --start 2026-05-01T12:00:00Z"
SAY_STEP: Final = "say how many seconds a training step took: --step 0.25"


@dataclass(slots=True)
class StepInterval:
    """Steps after `first` up to `last`, done between two instants (ms since 1970 UTC, not rounded)."""

    from_ms: float
    to_ms: float
    first: int
    last: int
    amounts: dict[str, float] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)  # of these amounts what did not count in its own attempt
    cause: str | None = None  # why all of it was lost, where it was


def list_intervals(
    logs: Sequence[RunLog], options: ReadOptions, gaps: Gaps, sections: JobSections
) -> list[list[StepInterval]]:
    """The intervals of every attempt, the logs in the order of their times; the sections between them are added to `sections`.

    Raises SourceError, saying what to add, where a log says no time at all, or not how long its steps took.
    """
    run = [attempt for log in logs for attempt in log.attempts]
    usual_s = options.step_s or find_usual_step(run)
    end_ms: float | None = None
    found = []
    for log in logs:
        if usual_s is None and not all(_can_be_timed(one) for a in log.attempts for one in a.iterations[1:]):
            asked = SAY_STEP if end_ms or log.began_ms or options.begun_ms else f"{SAY_START} --step SECONDS_OF_A_STEP"
            raise SourceError(f"{log.where}: no line says how long a step took or when it was written; {asked}")
        for attempt in log.attempts:
            begin_ms = attempt.began_ms if attempt.began_ms is not None else attempt.iterations[0].clock_ms
            if begin_ms is None and attempt.iterations[0].at_ms is None:
                begin_ms = _continue_from(log, end_ms, options, gaps)
            elif end_ms is not None and begin_ms is not None:
                begin_ms = max(begin_ms, int(end_ms))
            intervals = list(_walk(attempt, begin_ms, usual_s, log.where, gaps, sections))
            end_ms = intervals[-1].to_ms if intervals else end_ms
            found.append(intervals)
    return found


def find_usual_step(attempts: Sequence[Attempt]) -> float | None:
    """Seconds that a step of these attempts takes, by the median over lines; None where no line tells."""
    each = []
    for attempt in attempts:
        for before, one in zip([None, *attempt.iterations], attempt.iterations, strict=False):
            steps = one.step - before.step if before else 0
            seconds = one.values.get("step_s") or (find_seconds(before, one, steps) or 0.0) / max(steps, 1)
            if not seconds and before and before.at_ms is not None and one.at_ms is not None and steps:
                seconds = (one.at_ms - before.at_ms) / MS_PER_S / steps
            if seconds > 0:
                each.append(seconds)
    return median(each) if each else None


def count_first_steps(attempt: Attempt) -> int:
    """Steps that the first line of an attempt is about: since its checkpoint, else as many as between the lines that follow."""
    first = attempt.iterations[0]
    if attempt.from_step is not None and attempt.from_step <= first.step:
        return first.step - attempt.from_step
    apart = [b.step - a.step for a, b in zip(attempt.iterations, attempt.iterations[1:], strict=False)]
    between = first.said.get("log_interval") or min((steps for steps in apart if steps > 0), default=1)
    return min(int(between), first.step)


def _continue_from(log: RunLog, end_ms: float | None, options: ReadOptions, gaps: Gaps) -> int:
    if end_ms is not None:
        gaps.add(log.where, "start without a time, dated right after the attempt before it")
        return int(end_ms)
    if options.begun_ms is None:
        raise SourceError(f"{log.where}: no line says a time; {SAY_START}")
    return options.begun_ms


def _can_be_timed(one: Iteration) -> bool:
    return one.at_ms is not None or bool({"step_s", "elapsed_s"} & one.values.keys())


def _walk(
    attempt: Attempt, begin_ms: float | None, usual_s: float | None, where: str, gaps: Gaps, sections: JobSections
) -> Iterator[StepInterval]:
    """The intervals of one attempt. An interval ends when its line was written, else as long after the one before as it took."""
    cursor, before = begin_ms, None
    totals: Values = {}
    first = attempt.iterations[0].step - count_first_steps(attempt)
    for one in attempt.iterations:
        steps = one.step - first
        seconds = find_seconds(before, one, steps)
        if one.at_ms is None:
            if seconds is None:
                seconds = steps * (usual_s or 0.0)
                gaps.add(where, "interval without a time, as long as the others' steps took", int(steps > 0))
            assert cursor is not None
            begin, end = cursor, cursor + seconds * MS_PER_S
            clock = None if "elapsed_s" in one.values else one.clock_ms
            if clock is not None and clock > end:  # something else was written later than that, before this line
                begin, end = begin + (clock - end), float(clock)
        else:
            end = float(one.at_ms)
            if seconds is None and cursor is None:
                seconds = steps * (usual_s or 0.0)
            begin = max(cursor if cursor is not None else 0.0, end - seconds * MS_PER_S if seconds is not None else 0.0)
            end = max(begin, end)
        if steps:
            counted = find_amounts(totals, one, steps, (end - begin) / MS_PER_S if seconds is None else seconds)
            yield StepInterval(begin, end, first, one.step, counted.done, counted.lost)
        sections.add(one.pauses, end)
        cursor, before, first, totals = end, one, one.step, totals | one.values
