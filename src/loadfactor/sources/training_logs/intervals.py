"""Iterations become intervals: from when to when, which steps, and how much of each unit was done in them."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import FLOPS_PER_TFLOPS, MS_PER_S
from loadfactor.sources.base import Gaps, ReadOptions, Rows
from loadfactor.sources.training_logs.iteration import Attempt, Iteration, JobSections, RunLog, Values
from loadfactor.tables.work import PROGRESS, RATE

SAY_START: Final = "say when the run began: --start 2026-05-01T12:00:00Z"
SAY_STEP: Final = "say how many seconds a training step took: --step 0.25"
RESTART, SKIPPED = "restart", "loss_scale"
BATCH_ROWS: Final = 20_000
_COLUMNS: Final = ("job_id", "from_utc", "to_utc", "unit", "amount", "kept", "cause", "known_from")


class Counted(NamedTuple):
    """Amounts by unit of progress, those of steps that changed nothing, and units of which a rate × time is an estimate."""

    done: dict[str, float]
    lost: dict[str, float]
    estimated: frozenset[str] = frozenset()


def find_seconds(before: Iteration | None, one: Iteration, steps: int) -> float | None:
    """Seconds that the steps before a line took, where it says so. A timer that shows less than before was started anew."""
    step_s, elapsed_s = one.values.get("step_s"), one.values.get("elapsed_s")
    if step_s is not None:
        return step_s * steps
    if elapsed_s is None:
        return None
    earlier = before.values.get("elapsed_s") if before else None
    return elapsed_s - earlier if earlier is not None and earlier <= elapsed_s else elapsed_s


def find_amounts(totals: Values, one: Iteration, steps: int, seconds: float) -> Counted:
    """Amounts of `steps` steps that took so many seconds. `totals`: the last ones of earlier lines of the attempt."""
    values = one.of_run | one.values
    done = {
        "step": float(steps),
        "train_sample": _count(totals, one, steps, "samples", "step_samples"),
        "train_token": _count(totals, one, steps, "tokens", "step_tokens"),
        "padded_token": _count(totals, one, steps, "padded_tokens", ""),
        "epoch": _count(totals, one, steps, "epoch", ""),
        "model_flop": _count(totals, one, steps, "flops", ""),
    }
    estimated: set[str] = set()
    if done["train_sample"] is None and (samples := _estimate_samples(values, steps, seconds)) is not None:
        done["train_sample"] = samples
        estimated.add("train_sample")
    length = values.get("seq", values.get("longest") if values.get("packs") else None)
    padded = None if length is None or done["train_sample"] is None else done["train_sample"] * length
    if done["train_token"] is None:
        full = "gpu_tokens_per_s" in values or values.get("packs")  # samples of torchtitan are cut to one length, too
        done["train_token"] = padded if full else None
        if done["train_token"] is not None:
            estimated |= {"train_token"} if "train_sample" in estimated else set()
        elif (tokens := _estimate_tokens(values, seconds)) is not None:
            done["train_token"] = tokens
            estimated.add("train_token")
    if done["padded_token"] is None and padded is not None:
        done["padded_token"] = padded
        estimated |= {"padded_token"} if "train_sample" in estimated else set()
    if done["model_flop"] is None:
        done["model_flop"] = _find_flops(values, seconds)
    known = {unit: amount for unit, amount in done.items() if amount}
    skipped = one.values.get("skipped")
    if skipped is None and "skipped_total" in one.values:
        earlier = totals.get("skipped_total", 0.0 if steps == one.step else one.values["skipped_total"])
        skipped = one.values["skipped_total"] - earlier
    share = min(max(skipped or 0.0, 0.0), float(steps)) / steps
    return Counted(
        known, {unit: amount * share for unit, amount in known.items()} if share else {}, frozenset(estimated)
    )


def cap_epochs(values: Values, step: int) -> float | None:
    """Samples seen after so many steps where an epoch's last batch is smaller; None where the log does not say enough.

    >>> cap_epochs({"examples": 1000, "epochs": 1, "steps": 4, "step_samples": 256}, 3)
    768.0
    >>> cap_epochs({"examples": 1000, "epochs": 2, "steps": 8, "step_samples": 256}, 5)
    1256.0
    """
    try:
        of_epoch = values["steps"] / values["epochs"]
        whole, rest = divmod(step, of_epoch)
        return whole * values["examples"] + min(rest * values["step_samples"], values["examples"])
    except (KeyError, ZeroDivisionError):
        return None


def _count(totals: Values, one: Iteration, steps: int, total: str, of_step: str) -> float | None:
    """By what this line says of its steps, its totals and those of the last that had one, else by what a step has."""
    if (own := one.values.get(f"line_{total}")) is not None:
        return own
    now, earlier = one.values.get(total), totals.get(total)
    if now is not None and earlier is not None and now >= earlier:
        return now - earlier
    if now is not None and steps == one.step:
        return now  # since the run began
    if total == "samples":
        capped = cap_epochs(one.of_run, one.step), cap_epochs(one.of_run, one.step - steps)
        if capped[0] is not None and capped[1] is not None:
            return capped[0] - capped[1]
    each = one.values.get(of_step, one.of_run.get(of_step))
    if each is None and total == "samples" and {"device_samples", "gpus"} <= one.of_run.keys():
        each = one.of_run["device_samples"] * one.of_run["gpus"] * one.of_run.get("accumulation", 1)
    return each * steps if each is not None else None


def find_batch(attempts: Sequence[Attempt]) -> Values:
    """Samples of a step by the rates that an engine reports × seconds of a step, as a whole number of batches; empty without rates.

    `step_samples` where each rate has its own seconds beside it. By the time between lines they are `guessed_samples`, at most so
    many: the rate is that of the time in which the engine trained.
    """
    each = array("d")
    of_lines = False
    for attempt in attempts:
        for before, one in attempt.iterations.pairs():
            rate, steps = one.values.get("engine_samples_per_s"), one.step - before.step if before else 1
            seconds = find_seconds(before, one, steps) if before or "step_s" in one.values else None
            if seconds is None and before and before.at_ms is not None and one.at_ms is not None:
                seconds, of_lines = (one.at_ms - before.at_ms) / MS_PER_S, True
            if rate and seconds and steps:
                each.append(rate * seconds / steps)
    if not each:
        return {}
    of_device = attempts[0].iterations[-1].of_run.get("device_samples", 1.0) or 1.0
    return {
        "guessed_samples" if of_lines else "step_samples": max(1.0, round(float(np.median(each)) / of_device))
        * of_device
    }


def _estimate_samples(values: Values, steps: int, seconds: float) -> float | None:
    if "samples_per_s" in values:
        return values["samples_per_s"] * seconds
    return values["guessed_samples"] * steps if "guessed_samples" in values else None


def _estimate_tokens(values: Values, seconds: float) -> float | None:
    if "gpu_tokens_per_s" in values and "gpus" in values:
        return values["gpu_tokens_per_s"] * values["gpus"] * seconds
    return values["tokens_per_s"] * seconds if "tokens_per_s" in values else None


def _find_flops(values: Values, seconds: float) -> float | None:
    gpus, reported = values.get("gpus"), values.get("tflops")
    if reported is None and "megatron_tflops" in values:
        share = _model_share(values)
        reported = values["megatron_tflops"] * share if share is not None else None
    return reported * FLOPS_PER_TFLOPS * gpus * seconds if gpus and reported is not None else None


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
    estimated: frozenset[str] = frozenset()  # units whose amounts are a rate × time


def list_intervals(
    logs: Sequence[RunLog], options: ReadOptions, gaps: Gaps, sections: JobSections
) -> Iterator[StepInterval]:
    """The intervals of a run, the logs in the order of their times; the sections between them are added to `sections`.

    Those before a restart are lost from the step on that the restart began with; one may be cut in two.
    Raises SourceError, saying what to add, where a log says no time at all, or not how long its steps took.
    """
    run = [attempt for log in logs for attempt in log.attempts]
    usual_s = options.step_s or find_usual_step(run)
    end_ms: float | None = None
    redone = iter(_find_redone(run))
    for log in logs:
        if usual_s is None and not all(
            one.at_ms is not None or {"step_s", "elapsed_s"} & one.values.keys()
            for a in log.attempts
            for one in islice(a.iterations, 1, None)
        ):
            option = SAY_STEP if end_ms or log.began_ms or options.begun_ms else f"{SAY_START} --step SECONDS_OF_A_STEP"
            raise SourceError(f"{log.where}: no line says how long a step took or when it was written; {option}")
        for attempt in log.attempts:
            begin_ms = attempt.began_ms if attempt.began_ms is not None else attempt.iterations[0].clock_ms
            if begin_ms is None and attempt.iterations[0].at_ms is None:
                begin_ms = _continue_from(log, end_ms, options, gaps)
            elif end_ms is not None and begin_ms is not None:
                begin_ms = max(begin_ms, int(end_ms))
            again_from = next(redone)
            for one in _walk(attempt, begin_ms, usual_s, log.where, gaps, sections):
                end_ms = one.to_ms
                if again_from is None or one.last <= again_from:
                    yield one
                elif one.first < again_from:
                    done, lost = split_interval(one, again_from)
                    yield done
                    yield replace(lost, cause=RESTART)
                else:
                    yield replace(one, cause=RESTART)


def _find_redone(run: Sequence[Attempt]) -> list[int | None]:
    """From which step on later attempts do the steps of each attempt again; None where none does."""
    found: list[int | None] = []
    least: int | None = None
    for attempt in reversed(run):
        found.append(least)
        first = attempt.iterations[0].step - count_first_steps(attempt)
        if attempt.iterations[-1].step != first:
            least = first if least is None else min(least, first)
    return found[::-1]


def find_usual_step(attempts: Sequence[Attempt]) -> float | None:
    """Seconds that a step of these attempts takes, by the median over lines; None where no line tells."""
    each = array("d")
    for attempt in attempts:
        for before, one in attempt.iterations.pairs():
            steps = one.step - before.step if before else 0
            seconds = one.values.get("step_s") or (find_seconds(before, one, steps) or 0.0) / max(steps, 1)
            if not seconds and before and before.at_ms is not None and one.at_ms is not None and steps:
                seconds = (one.at_ms - before.at_ms) / MS_PER_S / steps
            if seconds > 0:
                each.append(seconds)
    return float(np.median(each)) if each else None


def count_first_steps(attempt: Attempt) -> int:
    """Steps that the first line of an attempt is about: since its checkpoint, else as many as between the lines that follow."""
    first = attempt.iterations[0]
    if attempt.from_step is not None and attempt.from_step <= first.step:
        return first.step - attempt.from_step
    apart = (after.step - before.step for before, after in pairwise(attempt.iterations))
    between = first.of_run.get("log_interval") or min((steps for steps in apart if steps > 0), default=1)
    return min(int(between), first.step)


def _continue_from(log: RunLog, end_ms: float | None, options: ReadOptions, gaps: Gaps) -> int:
    if end_ms is not None:
        gaps.add(log.where, "start without a time, dated right after the attempt before it")
        return int(end_ms)
    if options.begun_ms is None:
        raise SourceError(f"{log.where}: no line says a time; {SAY_START}")
    return options.begun_ms


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
            yield StepInterval(begin, end, first, one.step, counted.done, counted.lost, None, counted.estimated)
            sections.add_parts(one.values, begin, end)
        sections.add(one.pauses, end)
        cursor, before, first, totals = end, one, one.step, totals | one.values


def split_interval(one: StepInterval, step: int) -> tuple[StepInterval, StepInterval]:
    """The interval before a step and after it, amounts and time by steps."""
    share = (step - one.first) / (one.last - one.first)
    at_ms = one.from_ms + share * (one.to_ms - one.from_ms)

    def part(amounts: dict[str, float], of: float) -> dict[str, float]:
        return {unit: amount * of for unit, amount in amounts.items()}

    return (
        replace(one, to_ms=at_ms, last=step, amounts=part(one.amounts, share), lost=part(one.lost, share)),
        replace(one, from_ms=at_ms, first=step, amounts=part(one.amounts, 1 - share), lost=part(one.lost, 1 - share)),
    )


def list_rows(job: str, intervals: Iterable[StepInterval], where: str) -> Iterator[Rows]:
    """The rows, in batches. What took less than a millisecond is put into the interval after it."""
    batch: list[tuple[object, ...]] = []
    for one in _join_short(intervals):
        start, end = round(one.from_ms), round(one.to_ms)
        for unit, amount in one.amounts.items():
            lost = amount if one.cause else one.lost.get(unit, 0.0)
            for kept, part in ((True, amount - lost), (False, lost)):
                cause = None if kept else (one.cause or SKIPPED)
                if part > 0:
                    known_from = RATE if unit in one.estimated else None
                    batch.append((job, start, end, unit, part, kept, cause, known_from))
        if len(batch) >= BATCH_ROWS - 100:
            yield _rows(batch, where)
            batch = []
    if batch:
        yield _rows(batch, where)


def _join_short(intervals: Iterable[StepInterval]) -> Iterator[StepInterval]:
    waiting: StepInterval | None = None
    for one in intervals:
        if waiting is not None and waiting.cause == one.cause and one.from_ms - waiting.to_ms < 1:
            one = StepInterval(
                waiting.from_ms,
                one.to_ms,
                waiting.first,
                one.last,
                _add(waiting.amounts, one.amounts),
                _add(waiting.lost, one.lost),
                one.cause,
                waiting.estimated | one.estimated,
            )
        elif waiting is not None:
            yield _lengthen(waiting)
            one.from_ms = max(one.from_ms, waiting.to_ms)  # no two begin at once: a row is known by its start
            one.to_ms = max(one.to_ms, one.from_ms)
        if round(one.to_ms) > round(one.from_ms):
            yield one
            waiting = None
        else:
            waiting = one
    if waiting is not None:
        yield _lengthen(waiting)


def _lengthen(one: StepInterval) -> StepInterval:
    one.to_ms = round(one.from_ms) + 1.0
    return one


def _add(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {unit: one.get(unit, 0.0) + other.get(unit, 0.0) for unit in one | other}


def _rows(batch: list[tuple[object, ...]], where: str) -> Rows:
    columns = dict(zip(_COLUMNS, map(list, zip(*batch, strict=True)), strict=True))
    types = {c.name: PROGRESS.schema.field(c.name).type for c in PROGRESS.columns}
    return Rows("progress", pa.table({name: pa.array(cells, types[name]) for name, cells in columns.items()}), where)


def _model_share(values: Values) -> float | None:
    """Model FLOPs ÷ the FLOPs that Megatron-DeepSpeed reports; None where the log does not say whether activations are recomputed.

    It reports 24·c·B·s·l·h²(1 + s/6h + V/16lh), with c = 4 where activations are recomputed and 3 where not. Of the terms the last,
    the logits, is right at c = 4 and is not recomputed (arXiv:2104.04473 §5.1).

    >>> round(_model_share({"recomputes": 1, "hidden": 14336, "layers": 70, "seq": 2048, "vocabulary": 250880}), 4)
    0.7538
    >>> _model_share({"recomputes": 1}), _model_share({"recomputes": 0}), _model_share({})
    (0.75, 1.0, None)
    """
    recomputes = values.get("recomputes")
    if recomputes is None:
        return None
    counted = 1.0 if recomputes else 0.75
    hidden, layers, seq, vocabulary = (values.get(k) for k in ("hidden", "layers", "seq", "vocabulary"))
    if not (hidden and layers and seq and vocabulary):
        return 0.75 / counted
    blocks, logits = 1 + seq / (6 * hidden), vocabulary / (16 * layers * hidden)
    return (0.75 * blocks + logits) / (counted * (blocks + logits))
