"""The nominal step of a source, learnt from the gaps between samples of all its devices, robust against lost samples.

Every device votes, file by file, for its own most common gap. With 58 % of the samples of a device lost at random its most common
gap is still its step. Votes are counted once, stay with their file and are added up by compaction, so that the step a source has
does not depend on how its samples are divided into files later.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from loadfactor.store.manifest import LONGEST_STEP_MS, StepVote

Instants = npt.NDArray[np.int64]

_ALIKE: Final = 0.1
"""Gaps that differ by at most this share are one step with jitter."""
_LEAST_TIME: Final = 0.25
"""A step that covers a smaller share of the time is an accident."""
_LOSSES: Final = (2, 3, 4)
"""A step and its small multiples: where one, two or three samples in a row were lost."""


def count_votes(
    series: npt.NDArray[np.integer], gaps: Instants, names: Sequence[tuple[str, str]]
) -> tuple[StepVote, ...]:
    """The votes of a file: each series votes for its most common gap with all its gaps; votes of a source are added up.

    `gaps` are milliseconds between two samples of the series with that number, in any order; `names` holds device and source of
    each series. A device's gaps within 10 % of one another count together, and the middle one of them is voted for.

    >>> count_votes(np.array([0, 0, 0, 1]), np.array([60_000, 60_000, 120_000, 60_000]), [("a", "smi"), ("b", "smi")])
    (StepVote(source='smi', gap_ms=60000, gaps=4, first_device='a', last_device='b'),)
    """
    if not len(gaps):
        return ()
    bits = int(gaps.max() * (1 + _ALIKE)).bit_length()
    keys = np.sort(series.astype(np.int64) << bits | gaps)
    begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))  # of runs of one gap of one series
    different = keys[begins]
    voters, lengths = different >> bits, different & ((1 << bits) - 1)
    ends = np.searchsorted(keys, (voters << bits) + (lengths * (1 + _ALIKE)).astype(np.int64), side="right")
    alike = ends - begins  # how many gaps of the series are as long as this one, or up to 10 % longer
    firsts = np.flatnonzero(np.append(True, voters[1:] != voters[:-1]))
    most = np.repeat(np.maximum.reduceat(alike, firsts), np.diff(np.append(firsts, len(voters))))
    best = np.flatnonzero(alike == most)  # of each voter the shortest
    best = best[np.append(True, voters[best][1:] != voters[best][:-1])]
    middle = keys[begins[best] + (alike[best] - 1) // 2] & ((1 << bits) - 1)
    own = np.bincount(series)[voters[best]]
    votes = (
        StepVote(names[voter][1], int(gap), int(count), names[voter][0], names[voter][0])
        for voter, gap, count in zip(voters[best].tolist(), middle, own, strict=True)
    )
    return add_votes(votes)


def add_votes(votes: Iterable[StepVote]) -> tuple[StepVote, ...]:
    """Votes of one source for one gap as one vote, in order of source and gap."""
    found: dict[tuple[str, int], list[StepVote]] = defaultdict(list)
    for vote in votes:
        found[vote.source, vote.gap_ms].append(vote)
    return tuple(_join(found[key]) for key in sorted(found))


def learn_steps(votes: Iterable[StepVote]) -> dict[str, int]:
    """The nominal step of each source in milliseconds, at most LONGEST_STEP_MS; a source nobody votes for has none.

    Votes for gaps within 10 % of one another are one group, named by its most common gap. What a single device votes for counts
    only where no two devices agree on anything. Groups with less than a quarter of the time, and the double, triple and
    fourfold of a smaller group (its losses), fall out. The longest that remains is the step.

    >>> vote = StepVote("smi", 60_000, 1000, "a", "c")
    >>> learn_steps([vote, StepVote("smi", 120_000, 400, "d", "e"), StepVote("smi", 7_000_000, 9, "f", "f")])
    {'smi': 60000}
    >>> learn_steps([StepVote("smi", 120_000, 400, "d", "d")])
    {'smi': 120000}
    """
    by_source: dict[str, list[StepVote]] = defaultdict(list)
    for vote in add_votes(votes):
        by_source[vote.source].append(vote)
    return {source: min(_choose(_group(own)), LONGEST_STEP_MS) for source, own in by_source.items()}


def _join(votes: Sequence[StepVote]) -> StepVote:
    """Votes as one, for the gap of the first."""
    first, last = min(v.first_device for v in votes), max(v.last_device for v in votes)
    return replace(votes[0], gaps=sum(v.gaps for v in votes), first_device=first, last_device=last)


def _group(votes: list[StepVote]) -> list[StepVote]:
    """Votes of one source by groups of like gaps, each as a vote for the most common one."""
    groups: list[StepVote] = []
    for vote in sorted(votes, key=lambda v: (-v.gaps, v.gap_ms)):
        for i, group in enumerate(groups):
            if _is_alike(vote.gap_ms, group.gap_ms):
                groups[i] = _join((group, vote))
                break
        else:
            groups.append(vote)
    return groups


def _choose(groups: list[StepVote]) -> int:
    agreed = [g for g in groups if g.first_device != g.last_device] or groups
    total_ms = sum(g.gaps * g.gap_ms for g in agreed)
    usual = [g for g in agreed if g.gaps * g.gap_ms >= _LEAST_TIME * total_ms]
    usual = usual or [max(agreed, key=lambda g: (g.gaps * g.gap_ms, -g.gap_ms))]
    steps: list[int] = []
    for group in sorted(usual, key=attrgetter("gap_ms")):
        if not any(_is_alike(group.gap_ms, n * step) for step in steps for n in _LOSSES):
            steps.append(group.gap_ms)
    return steps[-1]


def _is_alike(gap_ms: int, other_ms: int) -> bool:
    return abs(gap_ms - other_ms) <= _ALIKE * other_ms
