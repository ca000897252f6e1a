"""Collectives of several ranks beside each other: who waited how long in each, for whom, and how long the transfer took.

The k-th collective from the end of every rank is the same one, because captures begin at different moments, where the names agree.
The wait of a rank is the latest start − its start; the transfer is the shortest duration. The whole wait is booked on the rank
that came
last, which is a convention. All of it needs clocks that agree: the ends of one collective then lie together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import NS_PER_US
from loadfactor.tables.trace_events import GpuKind, TraceCapture

CLOCKS_AGREE_US: Final = 1000.0
"""Ends of one collective, in the middle of all, that lie further apart are of clocks that do not agree."""
_FEWEST: Final = 3

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class RankWait:
    """One rank: how long it waited in collectives, how much of all waiting it caused by coming last, and how often it came last."""

    rank: int
    collectives: int
    wait_us: float
    caused_us: float
    caused_share: float | None
    times_last: int


@dataclass(frozen=True)
class Skew:
    """The collectives that all ranks have in common. Times are microseconds; `transfer_us` is the sum of the shortest durations.

    Where clocks do not agree, waits are what each rank's collective lasted longer than the shortest, and nobody's doing.
    """

    collectives: int
    transfer_us: float
    wait_us: float
    end_spread_us: float
    clocks_agree: bool
    ranks: tuple[RankWait, ...]

    @property
    def straggler(self) -> RankWait | None:
        """The rank that caused the most waiting; None where that is not known."""
        known = [rank for rank in self.ranks if rank.caused_share is not None]
        return max(known, key=lambda rank: rank.caused_us) if known else None


def compare_ranks(captures: Sequence[TraceCapture]) -> Skew | None:
    """The skew of the captures with collectives, one a rank; None where they are fewer than two, or have too few in common."""
    found: dict[int, tuple[NDArray[np.int64], NDArray[np.int64], list[str]]] = {}
    for capture in captures:
        if capture.rank is None or capture.rank in found:
            continue
        rows = np.nonzero((capture.gpu.kind == GpuKind.COMM) & (capture.gpu.end_ns > capture.gpu.start_ns))[0]
        if len(rows):
            offset = capture.clock_ns or 0
            starts, ends = capture.gpu.start_ns[rows] + offset, capture.gpu.end_ns[rows] + offset
            found[capture.rank] = (starts, ends, [capture.names[n] for n in capture.gpu.name[rows]])
    if len(found) < 2:
        return None
    ranks = sorted(found)
    origin = min(int(found[rank][0][0]) for rank in ranks)
    count = min(len(found[rank][0]) for rank in ranks)
    begins: Matrix = np.array([found[rank][0][-count:] - origin for rank in ranks]) / NS_PER_US
    lasts: Matrix = np.array([found[rank][1][-count:] - origin for rank in ranks]) / NS_PER_US
    names = [found[rank][2][-count:] for rank in ranks]
    same = np.array([len({(own[k]).split("(", 1)[0] for own in names}) == 1 for k in range(count)])
    if same.sum() < _FEWEST:
        return None
    return _measure(ranks, begins[:, same], lasts[:, same])


def _measure(ranks: list[int], starts: Matrix, ends: Matrix) -> Skew:
    spread = float(np.median(ends.max(axis=0) - ends.min(axis=0)))
    lengths = ends - starts
    agree = spread <= CLOCKS_AGREE_US
    waits = starts.max(axis=0) - starts if agree else lengths - lengths.min(axis=0)
    last = starts.argmax(axis=0)
    total = waits.sum(axis=0)
    everything = float(total.sum())
    found = []
    for place, rank in enumerate(ranks):
        caused = float(total[last == place].sum()) if agree else 0.0
        found.append(
            RankWait(
                rank=rank,
                collectives=starts.shape[1],
                wait_us=float(waits[place].sum()),
                caused_us=caused,
                caused_share=caused / everything if agree and everything > 0 else None,
                times_last=int((last == place).sum()) if agree else 0,
            )
        )
    return Skew(starts.shape[1], float(lengths.min(axis=0).sum()), everything, spread, agree, tuple(found))
