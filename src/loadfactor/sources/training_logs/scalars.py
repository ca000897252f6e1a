"""Scalars by tag and step, as loggers of training keep them, become the iterations of a run.

Tags are those that Megatron, NeMo, torchtitan, Transformers, TRL, Axolotl, Lightning, LitGPT, verl and OpenRLHF give.
"""

import re
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.training_logs.iteration import Attempt, Iterations, RunLog

Numbers = NDArray[Any]

_OTHER: Final = re.compile(
    r"\bvs (?:samples|tokens)\b|(?:^|[/_ -])(?:eval|evaluation|val|valid|validation|test)(?:[/_ -]|$)|^epoch_",
    re.IGNORECASE,
)
"""Tags of evaluation, and those whose steps are no steps: Keras numbers `epoch_loss` by epochs."""
_LOSS: Final = re.compile(r"loss(?!.?scale)", re.IGNORECASE)
STEP: Final = re.compile(r"(?:^|/)global_step$")
"""A tag whose values are steps, where the rows of a logger are numbered otherwise."""
_NAMES: Final = (
    ("step_samples", re.compile(r"(?:^|/)(?:global[_-])?batch[_-]size$")),
    ("samples", re.compile(r"(?:^|/)consumed[_-](?:train[_-])?samples$|^train\|samples$")),
    (
        "tokens",
        re.compile(
            r"(?:^|/)consumed[_-](?:train[_-])?tokens$|(?:^|/)n?_?tokens_seen$|(?:^|/)num_tokens$|^total_tokens$"
        ),
    ),
    ("padded_tokens", re.compile(r"(?:^|/)num_input_tokens_seen$|(?:^|/)tokens/total$|^train\|lengths$")),
    (
        "step_s",
        re.compile(
            r"(?:^|/)iteration[_-]time$|time_metrics/end_to_end\(s\)$|(?:^|/)train_step_timing in s$|(?:^|/)timing_s/step$"
            r"|(?:^|/)timing/step_total$"
        ),
    ),
    ("generation_s", re.compile(r"(?:^|/)timing_s/gen$|(?:^|/)timing/generation$")),
    ("evaluation_s", re.compile(r"(?:^|/)timing_s/testing$")),
    ("checkpoint_s", re.compile(r"(?:^|/)timing_s/save_checkpoint$")),
    ("line_tokens", re.compile(r"(?:^|/)perf/total_num_tokens$")),
    ("line_samples", re.compile(r"(?:^|/)rollout/num_samples$")),
    ("elapsed_s", re.compile(r"^train\|time$")),
    ("epoch", re.compile(r"(?:^|/)epoch$")),
    ("gpu_tokens_per_s", re.compile(r"(?:^|/)throughput\(tps\)$|(?:^|/)tokens_per_second_per_gpu$")),
    ("tflops", re.compile(r"(?:^|/)tflops$|(?:^|/)throughput$")),
    ("flops", re.compile(r"(?:^|/)total_flos$")),
)
"""Values (see `iteration.Values`) by the tags that training frameworks give them."""
_AT_ONCE: Final = 100_000
"""Points that are looked at together."""
_TOTALS: Final = {"samples", "tokens", "padded_tokens", "elapsed_s", "flops", "epoch"}


class Scalars:
    """Points of tags in the order of their file, as columns; `at_ms` is None where its logger keeps no times."""

    def __init__(self) -> None:
        self.tags: dict[str, int] = {}
        self.tag, self.step, self.at_ms = array("i"), array("q"), array("q")
        self.value = array("d")

    def add(self, tag: str, step: int, at_ms: int | None, value: float) -> None:
        """Add a point of a tag from which something follows: of millions only those are kept."""
        if is_read(tag):
            self.tag.append(self.tags.setdefault(tag, len(self.tags)))
            self.step.append(step)
            self.at_ms.append(-1 if at_ms is None else at_ms)
            self.value.append(value)

    def ordered(self) -> "Scalars":
        """The same by time, then by step."""
        order = np.lexsort((self.step, self.at_ms))
        made = Scalars()
        made.tags = self.tags
        for name in ("tag", "step", "at_ms", "value"):
            column = getattr(self, name)
            setattr(made, name, array(column.typecode, np.frombuffer(column, column.typecode)[order].tobytes()))
        return made


@lru_cache(maxsize=10_000)
def is_read(tag: str) -> bool:
    """Whether anything follows from a tag: of millions of points only those are kept."""
    return not _OTHER.search(tag) and (_name(tag) is not None or _LOSS.search(tag) is not None)


def make_run(where: str, family: str, scalars: Scalars) -> RunLog:
    """The run that scalars tell of: an iteration for each step at which a loss, or else anything, was written."""
    tag, step, at_ms = (np.frombuffer(of, of.typecode) for of in (scalars.tag, scalars.step, scalars.at_ms))
    names = [_name(tag) for tag in scalars.tags]
    losses = np.array([_LOSS.search(tag) is not None for tag in scalars.tags], bool)
    marks = losses if losses.any() else np.array([name is not None for name in names], bool)
    ones = np.flatnonzero(marks[tag]) if len(tag) else np.zeros(0, np.int64)
    place = ones[np.flatnonzero(np.diff(step[ones], prepend=-1))]  # of the point that began each
    columns = _list_values(scalars, names, step[place], at_ms[place], place)
    begins = [0, *(np.flatnonzero(np.diff(step[place]) < 0) + 1).tolist(), len(place)]
    attempts = []
    for first, last in pairwise(begins):
        if last > first:
            values = {name: array("d", of[first:last].tobytes()) for name, of in columns.items()}
            own = place[first:last]
            steps, times = (array("q", of[own].tobytes()) for of in (step, at_ms))
            attempts.append(Attempt(Iterations.of_columns(steps, times, values)))
    return RunLog(where, family, attempts)


def _list_values(
    scalars: Scalars, names: Sequence[str | None], steps: Numbers, at_ms: Numbers, place: Numbers
) -> dict[str, Numbers]:
    """Values of iterations by name. Each point is of the one of its step, of several of that nearest in time, else in place.

    Of several points of an iteration the first counts, of totals the largest: rows of a step may be those of micro-batches.
    """
    tag, step, at, value = (
        np.frombuffer(of, of.typecode) for of in (scalars.tag, scalars.step, scalars.at_ms, scalars.value)
    )
    order = np.argsort(steps, kind="stable")
    ordered = steps[order]
    columns: dict[str, Numbers] = {}
    for begin in range(0, len(tag), _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        for number in np.unique(tag[some]).tolist():
            name = names[number]
            if name is None:
                continue
            own = begin + np.flatnonzero((tag[some] == number) & (value[some] >= 0))
            first, after = (np.searchsorted(ordered, step[own], side) for side in ("left", "right"))
            own, first, after = own[after > first], first[after > first], after[after > first]
            nearest = order[first]
            for k in np.flatnonzero(after - first > 1).tolist():
                same = order[first[k] : after[k]]
                apart = np.abs(np.maximum(at_ms[same], 0) - max(at[own[k]], 0))
                nearest[k] = same[np.lexsort((np.abs(place[same] - own[k]), apart))[0]]
            column = columns.setdefault(name, np.full(len(steps), np.nan))
            if name in _TOTALS:
                np.fmax.at(column, nearest, value[own])
            else:
                is_new = np.isnan(column[nearest])[::-1]
                column[nearest[::-1][is_new]] = value[own[::-1][is_new]]
    return columns


@lru_cache(maxsize=10_000)
def _name(tag: str) -> str | None:
    return next((name for name, pattern in _NAMES if pattern.search(tag)), None)
