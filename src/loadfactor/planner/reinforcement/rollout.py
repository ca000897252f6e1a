"""Rollouts: seconds until replicas of the serving model have generated all responses of a step, and until the longest is done.

A replica decodes one token for each of its sequences a step, so that by steps responses are jobs on as many machines as its cache
holds sequences: one starts where one ends. Seconds follow from the sequences and the context of each step (serving/step.py). At
the end fewer and fewer are left: that is the tail for which a step waits.
"""

import heapq
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from loadfactor.planner.reinforcement.responses import Floats, ResponseLengths
from loadfactor.planner.serving.latency import prompt_time
from loadfactor.planner.serving.step import Replica, most_sequences, step_time

MOST_DRAWN = 8192  # responses of a replica that are followed one by one


@dataclass(frozen=True)
class Rollout:
    """Generation of a step's responses on `replicas` alike.

    Seconds: until the last response is done (`rollout_s`), and what the same tokens take at full batches (`steady_s`), of which
    `prompt_s` compute prompts.
    """

    replica: Replica = field(repr=False)
    replicas: int
    slots: int
    """Sequences that a replica decodes at a time, at most."""
    rollout_s: float
    steady_s: float
    prompt_s: float
    tokens: float

    @property
    def gpus(self) -> int:
        return self.replicas * self.replica.layout.gpus

    @property
    def layout(self) -> str:
        return str(self.replica.layout)

    @property
    def tail_s(self) -> float:
        """Seconds of the step that full batches would not take."""
        return max(0.0, self.rollout_s - self.steady_s)

    @property
    def tokens_per_s(self) -> float:
        """Tokens of responses a second, until the last one."""
        return self.tokens / self.rollout_s


def start_in_turn(lengths: Floats, slots: int) -> Floats:
    """The step at which each response begins, in their order, where at most so many run at a time.

    >>> start_in_turn(np.array([5.0, 2.0, 4.0, 1.0]), 2)
    array([0., 0., 2., 5.])
    """
    if len(lengths) <= slots:
        return np.zeros(len(lengths))
    starts, ends = [0.0] * slots, sorted(float(one) for one in lengths[:slots])
    for one in lengths[slots:].tolist():
        starts.append(ends[0])
        heapq.heapreplace(ends, ends[0] + one)
    return np.array(starts)


def decode_s(replica: Replica, prompt: float, lengths: Floats, slots: int) -> float:
    """Seconds in which a replica decodes responses of these lengths, in their order."""
    starts = start_in_turn(lengths, slots)
    ends = starts + lengths
    at = np.concatenate([starts, ends])
    change = np.concatenate([np.ones(len(starts)), -np.ones(len(ends))])
    begun = np.concatenate([starts, -starts])  # of those that run: the sum of when they began
    order = np.argsort(at, kind="stable")
    at, active, begun = at[order], np.cumsum(change[order]), np.cumsum(begun[order])
    steps, middle = np.diff(at), (at[1:] + at[:-1]) / 2
    works = steps > 0
    active, begun, middle, steps = active[:-1][works], begun[:-1][works], middle[works], steps[works]
    context = active * (prompt + middle) - begun
    return float((steps * step_time(replica, active, context).total_s).sum())


def time_rollout(
    replica: Replica,
    replicas: int,
    responses: int,
    group: int,
    lengths: ResponseLengths,
    batches: int = 1,
    ahead: int = 0,
) -> Rollout:
    """A step's responses, `group` to a prompt, spread over replicas; `batches` steps of them one after another without a stop.

    A replica has its even share of all lengths, and one of them the longest of all. `ahead`: batches that may wait or run beside
    the one that is due, which fills the batches of a steady stream.
    """
    mine = ceil(responses / replicas)
    count = min(mine * batches, MOST_DRAWN)
    most = min(
        most_sequences(replica, lengths.context), float(replica.engine.max_sequences * replica.layout.attention_dp)
    )
    slots = max(1, min(int(most), mine * batches))
    drawn = lengths.spread_evenly(count)
    drawn[-1] = max(drawn[-1], lengths.find_longest(responses * batches))
    order = np.random.default_rng(0).permutation(len(drawn))
    full = max(1, min(int(most), mine * (batches + ahead)))
    prompts = max(1.0, mine * batches / group)
    _, added = prompt_time(replica, lengths.prompt, full / 2, lengths.context)
    prompt_s = prompts * float(added)
    step_s = float(step_time(replica, float(full), full * lengths.context).total_s)
    each_s = lengths.mean / full * step_s  # of a response at full batches, as those before the ones that are drawn are
    last_s = decode_s(replica, lengths.prompt, drawn[order], slots) + (mine * batches - count) * each_s
    steady_s = mine * batches * each_s
    return Rollout(
        replica,
        replicas,
        slots,
        (last_s + prompt_s) / batches,
        (min(steady_s, last_s) + prompt_s) / batches,
        prompt_s / batches,
        responses * lengths.mean,
    )
