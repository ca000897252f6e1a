"""How many GPUs a pod holds: what its containers ask for, as its node divides its GPUs."""

from typing import NamedTuple

from loadfactor.sources.kubernetes.asked import NVIDIA, SHARED, Asks
from loadfactor.sources.kubernetes.nodes import NodeFacts, find_share


class Held(NamedTuple):
    """How many units, and which part of a GPU each is; None: all of it, or parts that differ, added up in `gpus`.

    `is_sure`: the node said how it divides its GPUs; else a unit was taken for a whole one.
    """

    gpus: float
    share: float | None
    is_sure: bool

    @property
    def total(self) -> float:
        """In whole GPUs."""
        return self.gpus * (1.0 if self.share is None else self.share)


NOTHING = Held(0.0, None, True)


def add_up(stages: tuple[Asks, ...], node: NodeFacts | None) -> Held:
    """What the stage that needs most takes."""
    return max((_add_stage(stage, node) for stage in stages), key=lambda held: held.total, default=NOTHING)


def _add_stage(stage: Asks, node: NodeFacts | None) -> Held:
    found = [(ask, find_share(ask, node)) for ask in stage]
    is_sure = all(
        share is not None and (node is not None or ask.resource.removesuffix(SHARED) != NVIDIA) for ask, share in found
    )
    units = [(ask.units, 1.0 if share is None else share) for ask, share in found]
    shares = {share for _, share in units}
    if len(shares) == 1:
        share = shares.pop()
        return Held(sum(n for n, _ in units), share if share < 1 else None, is_sure)
    return Held(sum(n * share for n, share in units), None, is_sure)
