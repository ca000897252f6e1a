"""The decoder of training logs: logs of one run, whatever wrote them, become rows of `progress` and `job_sections`."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from itertools import chain
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Gaps, Input, ReadOptions, Rows
from loadfactor.sources.databases import SQLITE
from loadfactor.sources.training_logs.event_files import is_record, read_event_file
from loadfactor.sources.training_logs.families import DEEPSPEED
from loadfactor.sources.training_logs.intervals import (
    StepInterval,
    find_batch,
    list_intervals,
    list_rows,
)
from loadfactor.sources.training_logs.iteration import JobSections, RunLog, Values
from loadfactor.sources.training_logs.run_folders import (
    WANDB,
    is_table,
    read_csv_metrics,
    read_mlflow,
    read_mlflow_database,
    read_wandb,
)
from loadfactor.sources.training_logs.text_log import TextLog, read_json_log


def decode_training_logs(logs: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """Progress of one job from the logs of its run, restarts among them.

    Raises SourceError, in one line that says what to add, where no job is named, no line says a time, or not how long steps took.
    """
    if options.held_by is None:
        raise SourceError("a training log does not say which job it is of; name it with --job")
    gaps = Gaps()
    of_mlflow: dict[str, list[tuple[str, Input]]] = {}
    for source in logs:
        if found_in := METRIC_FILE.search(source.label):
            of_mlflow.setdefault(found_in["run"], []).append((found_in["metric"], source))
    found = [read_mlflow(metrics, gaps) for metrics in of_mlflow.values()]
    rest = [source for source in logs if not METRIC_FILE.search(source.label)]
    found = [
        log for log in (*found, *(_read(source, options, gaps) for source in rest)) if log is not None and log.attempts
    ]
    run = _choose_logs(found, gaps)
    for log in run if options.gpus is not None else ():
        for attempt in log.attempts:
            attempt.iterations.tell(lambda known: known | {"gpus": float(options.gpus or 0)})
    for log in run:
        _tell(log, find_batch(log.attempts))
    _note_unknown(run, gaps)
    sections = JobSections()
    intervals = list_intervals(run, options, gaps, sections)
    seen = _SeenAmounts()
    where = run[0].where if run else ""
    yield from list_rows(options.held_by, seen.pass_on(intervals), where)
    _note_amounts(run, seen, gaps)
    yield from sections.rows(options.held_by, where)
    yield from gaps.drain()


def read_step_values(log: Input) -> list[Values]:
    """What each line of a step says, in the order of the log; nothing of a log that has none."""
    found = _read(log, ReadOptions(), Gaps())
    return [one.values for attempt in (found.attempts if found else ()) for one in attempt.iterations]


def _read(source: Input, options: ReadOptions, gaps: Gaps) -> RunLog | None:
    none = "no line of a training step in it"
    begin = next(iter(source.chunks), b"")
    if is_record(begin):
        log: RunLog | None = read_event_file(source, gaps)
    elif begin.startswith(WANDB):
        log = read_wandb(source, gaps)
    elif begin.startswith(SQLITE):
        log = read_mlflow_database(source, options.held_by)
    elif is_table(begin):
        log = read_csv_metrics(source, gaps)
    else:
        log = read_json_log(source) if begin.lstrip(_BEFORE_JSON).startswith(b"{") else None
        if log is None:
            text = TextLog(source.label, options.timezone or UTC)
            text.read(source)
            log = text.finish()
            if log is not None and text.times.has_local and options.timezone is None:
                gaps.add(source.label, "times without a zone, taken for UTC; --timezone says otherwise")
            if log is not None and text.ends_in_number:
                gaps.add(source.label, "the file ends inside a line; its last record may be cut")
            if text.epochs_alone:
                none = _EPOCHS_ALONE.format(options.held_by or "NAME")
    if log is None or not log.attempts:
        gaps.add(source.label, none)
        return None
    return log


def _choose_logs(logs: list[RunLog], gaps: Gaps) -> list[RunLog]:
    """The logs in the order of their times, else as given. One of the same time as another, of the same steps, is left out."""
    if all(log.began_ms is not None for log in logs):
        logs = sorted(logs, key=lambda log: log.began_ms or 0)
    chosen: list[RunLog] = []
    for log in logs:
        if any(_say_the_same(log, other) for other in chosen):
            gaps.add(log.where, "log of the same steps at the same time as another one (of another rank); left out")
        else:
            chosen.append(log)
    return chosen


def _say_the_same(log: RunLog, other: RunLog) -> bool:
    if None in (began := (log.began_ms, log.ended_ms, other.began_ms, other.ended_ms)):
        return False
    begin, end, other_begin, other_end = (int(t or 0) for t in began)
    if begin >= other_end or other_begin >= end:
        return False
    (first, last), (other_first, other_last) = (
        (choose(i.step for a in one.attempts for i in a.iterations) for choose in (min, max)) for one in (log, other)
    )
    return first <= other_last and other_first <= last


def _tell(log: RunLog, of_run: Values) -> None:
    """Add values of the run to all its iterations."""
    for attempt in log.attempts if of_run else ():
        attempt.iterations.tell(lambda known: of_run | known)


def _note_unknown(logs: list[RunLog], gaps: Gaps) -> None:
    for log in logs:
        for one in chain.from_iterable(attempt.iterations for attempt in log.attempts):
            reported = {"tflops", "megatron_tflops"} & one.values.keys()
            if reported and "gpus" not in one.of_run:
                gaps.add(log.where, "TFLOP/s of a GPU, of unknown many GPUs; --gpus says how many")
            elif reported == {"megatron_tflops"} and "recomputes" not in one.of_run:
                gaps.add(log.where, "TFLOP/s, not said whether with recomputed work; no model FLOPs")


_EPOCHS_ALONE: Final = (
    "lines of Hugging Face's Trainer say epochs, and no `Total optimization steps` how many steps that is; the trainer_state.json"
    " of its last checkpoint does: `loadfactor import training-log checkpoint-N/trainer_state.json --job {}`"
)
_BEFORE_JSON = b"\xef\xbb\xbf \t\r\n"
METRIC_FILE = re.compile(r"(?P<run>mlruns/.+|[^/]*\b[0-9a-f]{32})/metrics/(?P<metric>.+)$")
"""A file of MLflow's store: a metric of a run."""
NO_TOKENS = "no tokens, so that cost_per_token and MFU are unknown: "


@dataclass
class _SeenAmounts:
    """What intervals that went through say: how many have and estimate an amount of each unit, and steps without tokens."""

    made: Counter[str] = field(default_factory=Counter)
    estimated: Counter[str] = field(default_factory=Counter)
    silent_steps: int = 0

    def pass_on(self, intervals: Iterable[StepInterval]) -> Iterator[StepInterval]:
        """The intervals, each looked at."""
        for one in intervals:
            self.made.update(one.amounts.keys())
            self.estimated.update(one.estimated)
            self.silent_steps += 0 if "train_token" in one.amounts else one.last - one.first
            yield one


def _note_amounts(run: Sequence[RunLog], seen: _SeenAmounts, gaps: Gaps) -> None:
    """Say which amounts are estimates, and why there are no tokens."""
    made = seen.made
    if not made:
        return
    where, values = run[0].where, run[-1].attempts[-1].iterations[-1].of_run
    for unit, count in sorted(seen.estimated.items()):
        rate, batch = "a reported rate × time", values.get("guessed_samples")
        if batch is not None and run[0].family == DEEPSPEED.name and unit != "train_token":
            rate = f"steps × {batch:,.0f} samples, at most, as the engine's own rate × the time between lines is"
        gaps.add(
            where,
            f"{unit.replace('_', ' ')}s estimated: {rate}; the batch size in the log, or --gpus, counts them",
            count,
        )
    if "train_token" in made:
        gaps.add(
            where, "steps of which the log says no tokens: cost_per_token is too high by their share", seen.silent_steps
        )
        return
    if "padded_token" in made:
        why = "those with padding are known; where samples are packed, [[network]] says packed = true"
    elif "train_sample" in made:
        why = "samples of unknown length; where they are packed, [[network]] says sequence_length and packed = true"
    else:
        why = "the log says neither tokens nor how many samples a step has"
    gaps.add(where, f"{NO_TOKENS}{why}")
