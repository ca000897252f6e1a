"""Scalars by tag and step, as loggers of training keep them, become the iterations of a run.

Tags are those that Megatron, NeMo, torchtitan, Transformers, TRL, Axolotl, Lightning, LitGPT, verl and OpenRLHF give.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from loadfactor.sources.training_logs.iteration import Attempt, Iteration, RunLog

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
_TOTALS: Final = {"samples", "tokens", "padded_tokens", "elapsed_s", "flops", "epoch"}


class Scalar(NamedTuple):
    """One point of one tag; `at_ms` is None where its logger keeps no times."""

    tag: str
    step: int
    at_ms: int | None
    value: float


@lru_cache(maxsize=10_000)
def is_read(tag: str) -> bool:
    """Whether anything follows from a tag: of millions of points only those are kept."""
    return not _OTHER.search(tag) and (_name(tag) is not None or _LOSS.search(tag) is not None)


def make_run(where: str, family: str, scalars: Sequence[Scalar]) -> RunLog:
    """The run that scalars tell of: an iteration for each step at which a loss, or else anything, was written."""
    chosen = [s for s in scalars if is_read(s.tag)]
    has_losses = any(_LOSS.search(s.tag) for s in chosen)
    attempts = [Attempt()]
    at: dict[int, list[tuple[int, Iteration]]] = {}  # by step, with the place of the point that began each
    for place, scalar in enumerate(chosen):
        seen = attempts[-1].iterations
        is_one = _LOSS.search(scalar.tag) if has_losses else _name(scalar.tag)
        if not is_one or (seen and scalar.step == seen[-1].step):
            continue
        if seen and scalar.step < seen[-1].step:
            attempts.append(Attempt())
        attempts[-1].iterations.append(Iteration(scalar.step, {}, {}, scalar.at_ms))
        at.setdefault(scalar.step, []).append((place, attempts[-1].iterations[-1]))
    _add_values(at, chosen)
    return RunLog(where, family, [a for a in attempts if a.iterations])


def _add_values(at: Mapping[int, Sequence[tuple[int, Iteration]]], chosen: Sequence[Scalar]) -> None:
    """Each point to the iteration of its step, of several to that of nearest time, or place where there are no times."""
    for place, scalar in enumerate(chosen):
        name, same = _name(scalar.tag), at.get(scalar.step)
        if not name or not same or scalar.value < 0:
            continue
        nearest = same[0][1]
        if len(same) > 1:
            nearest = min(same, key=lambda of: (abs((of[1].at_ms or 0) - (scalar.at_ms or 0)), abs(of[0] - place)))[1]
        known = nearest.values.setdefault(name, scalar.value)
        if name in _TOTALS:  # several rows of a step, as of LitGPT's micro-batches: the last counts
            nearest.values[name] = max(known, scalar.value)


@lru_cache(maxsize=10_000)
def _name(tag: str) -> str | None:
    return next((name for name, pattern in _NAMES if pattern.search(tag)), None)
