"""Lever of price: jobs on accelerators that cost more than they need, moved to a cheaper one that has a price in the books.

`smaller_gpu` counts hours that a diagnosis says were lost on GPUs too large; this counts what the hours that are left would have
cost elsewhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from loadfactor.base.units import BYTES_PER_GB
from loadfactor.books.losses.pool_jobs import JobNeed
from loadfactor.catalog.accelerators import Accelerator, accelerators, find_accelerator
from loadfactor.insight.diagnosis.diagnosed_job import SERVING
from loadfactor.insight.diagnosis.finding import Range
from loadfactor.insight.levers.lever import LOW, MEDIUM
from loadfactor.insight.levers.price_saving import KeptHours, PriceSaving
from loadfactor.insight.levers.situation import Situation
from loadfactor.insight.levers.wording import say_hours, say_largest

LEAST_OBSERVED: Final = 0.8
MEMORY_FILLED: Final = 0.9
"""Of the cheaper accelerator's memory, by the peak that was seen."""
LINKS_USED: Final = 0.05
"""Traffic of NVLink, of its peak, over which GPUs of a job need it."""
PEAKS: Final = ("peak_bf16_flops", "peak_fp32_flops", "memory_bandwidth_bytes_per_s")
"""What kernels may be bound by: where a job is not known to be bound by another, by the one that is worst."""


@dataclass(frozen=True)
class _Move:
    """A job, where it would fit, and what it would have cost less there: at least, and at most."""

    need: JobNeed
    kept: KeptHours
    board: Accelerator
    to: Accelerator
    price: float
    saved: Range

    @property
    def words(self) -> str:
        """What says so."""
        used = self.need.memory_share * self.board.driver_memory_bytes / BYTES_PER_GB
        return (
            f"{self.need.job} had kernels {self.need.kernel_share:.0%} of its time and used {used:.3g} GB at most: {self.to.id}"
            f" has {self.to.driver_memory_bytes / BYTES_PER_GB:.3g} GB, at {self.price:.3g} an hour in place of"
            f" {self.kept.price:.3g}"
        )


def find_cheaper_gpus(situation: Situation, kept: Mapping[str, KeptHours]) -> tuple[PriceSaving | None, set[str]]:
    """The jobs that would have cost less elsewhere even if all their kernels took as long as the peaks say, and which they are."""
    prices = [(accelerators()[name], price) for name, price in situation.facts.prices.items()]
    moves = (
        []
        if len(prices) < 2
        else [move for need in situation.facts.job_needs if (move := _move(situation, need, kept, prices))]
    )
    if not moves:
        return None, set()
    hours: dict[str, float] = {}
    for move in moves:
        name = f"{move.to.id} in place of {move.board.id}"
        hours[name] = hours.get(name, 0.0) + move.kept.gpu_hours
    largest = max(moves, key=lambda move: move.saved.low)
    saved = Range(fsum(move.saved.low for move in moves), fsum(move.saved.high for move in moves))
    told = PriceSaving(
        "cheaper_gpu",
        "Run it on a cheaper accelerator",
        saved.low,
        fsum(hours.values()),
        (
            f"{len(moves)} jobs would have fitted a cheaper accelerator: {say_largest(hours)}.",
            f"{largest.words}.",
            "At least: kernels take longer by the worst ratio of peaks (16 bits, FP32, memory bandwidth); at most: they do not.",
            f"They held {say_hours(fsum(hours.values()))} after what the levers above save.",
        ),
        f"Ask for {largest.to.id} (Slurm: --gres=gpu:{largest.to.id}:N; Kubernetes: a nodeSelector), and compare samples/s over an"
        " hour.",
        saved,
        MEDIUM if all(move.need.is_profiled for move in moves) else LOW,
    )
    return told, {move.need.job for move in moves}


def _move(
    situation: Situation, need: JobNeed, kept: Mapping[str, KeptHours], prices: Sequence[tuple[Accelerator, float]]
) -> _Move | None:
    """Where a job would have cost least; None where it would not have fitted, or not have been cheaper for certain."""
    board, of = find_accelerator(need.accelerator), kept.get(need.job)
    if board is None or of is None or not of.gpu_hours or need.observed_share < LEAST_OBSERVED:
        return None
    if situation.facts.purposes.get(need.job) in SERVING:  # who asks waits for each answer
        return None
    links = 0.0 if len(situation.facts.job_gpus.get(need.job, ())) == 1 else need.nvlink_share
    if links is None or links > LINKS_USED:
        return None
    # what levers saved had no kernels
    kernels = min(1.0, need.kernel_share * of.held_hours / of.gpu_hours)
    found = []
    for other, price in prices:
        slower = _slow_down(board, other)
        fits = need.memory_share * board.driver_memory_bytes <= MEMORY_FILLED * other.driver_memory_bytes
        if other.id == board.id or other.vendor != board.vendor or not fits or slower is None:
            continue
        low, high = (of.gpu_hours * (of.price - price * (1 - kernels + kernels * times)) for times in (slower, 1.0))
        if low > 0:
            found.append(_Move(need, of, board, other, price, Range(low, high)))
    return max(found, key=lambda move: move.saved.low, default=None)


def _slow_down(board: Accelerator, other: Accelerator) -> float | None:
    """How many times as long kernels take at most, never less than once; None where the catalog lacks a peak."""
    ratios = []
    for name in PEAKS:
        own, its = board.get(name), other.get(name)
        if own is None or its is None:
            return None
        ratios.append(own / its)
    return max(1.0, *ratios)
