"""The losses that are left after the levers so far: nobody can take more than that, so levers never save an hour twice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from loadfactor.books.losses.facts import NodeLoss
from loadfactor.books.waterfall import FleetWaterfall
from loadfactor.metrics.fullness import Waterfall

OF_HOLDERS: Final = ("idle", "underused", "not_math", "lost_work", "failed_work")
"""The losses of those who hold GPUs; the others, unallocated and down, are of nodes."""


@dataclass(frozen=True)
class TakenLoss:
    """A part of a loss: of whom, GPU-hours, and what they cost as far as their price is known."""

    loss: str
    job: str | None
    team: str | None
    user: str | None
    gpu_hours: float
    cost: float


@dataclass
class _Cell:
    """One loss of one holder, or of one node."""

    loss: str
    job: str | None
    team: str | None
    user: str | None
    gpu_hours: float
    cost: float

    def give(self, share: float) -> TakenLoss:
        """A share of what it still has."""
        hours, cost = (min(left, left * share) for left in (self.gpu_hours, self.cost))
        self.gpu_hours, self.cost = max(0.0, self.gpu_hours - hours), max(0.0, self.cost - cost)
        return TakenLoss(self.loss, self.job, self.team, self.user, hours, cost)


def _list_losses(fall: Waterfall) -> dict[str, float]:
    """The losses of a holder: what was effective in idle time is no loss, and of its idle time nobody saves it."""
    losses = {loss: max(getattr(fall, loss), 0.0) for loss in OF_HOLDERS}
    return losses | {"idle": max(losses["idle"] + min(fall.underused, 0.0), 0.0)}


class Remainder:
    """The losses of a window, by holder and by node."""

    def __init__(self, waterfall: FleetWaterfall, nodes: Sequence[NodeLoss]) -> None:
        self._of_jobs: dict[str, list[_Cell]] = {}
        self._of_nodes: dict[str | None, list[_Cell]] = {}
        for row in waterfall.rows:
            job, team, user = (row.by[name] for name in ("job", "team", "user"))
            if job is None:  # what nobody held is kept by node
                continue
            lost, paid = _list_losses(row.gpu_hours), {} if row.cost is None else _list_losses(row.cost)
            for loss in OF_HOLDERS:
                amounts = lost[loss], paid.get(loss, 0.0)
                if any(amounts):
                    self._of_jobs.setdefault(job, []).append(_Cell(loss, job, team, user, *amounts))
        for node in nodes:
            for loss, hours, cost in (
                ("unallocated", node.unallocated_hours, node.unallocated_cost),
                ("down", node.down_hours, node.down_cost),
            ):
                self._of_nodes.setdefault(node.node, []).append(_Cell(loss, None, None, None, hours, cost))
        self._first = {
            (job, c.loss): self._left(cells, (c.loss,)) for job, cells in self._of_jobs.items() for c in cells
        }

    def left_of(self, job: str, losses: Sequence[str]) -> float:
        """GPU-hours that a job's losses still have."""
        return self._left(self._of_jobs.get(job, ()), losses)

    def first_of(self, job: str, loss: str) -> float:
        """GPU-hours of a job's loss before any lever."""
        return self._first.get((job, loss), 0.0)

    def taken_of(self, job: str) -> float:
        """GPU-hours that levers took of a job so far."""
        first = fsum(self.first_of(job, loss) for loss in OF_HOLDERS)
        return max(0.0, first - self.left_of(job, OF_HOLDERS))

    def left_of_nodes(self, loss: str, nodes: Iterable[str | None] | None = None) -> float:
        """GPU-hours that a loss of these nodes (of all) still has."""
        names = self._of_nodes if nodes is None else nodes
        return fsum(self._left(self._of_nodes.get(node, ()), (loss,)) for node in names)

    def take(self, job: str, loss: str, gpu_hours: float) -> list[TakenLoss]:
        """So many GPU-hours of a job's loss, or what is left of it."""
        return self._take(self._of_jobs.get(job, ()), loss, gpu_hours)

    def take_of_nodes(self, loss: str, gpu_hours: float, nodes: Iterable[str | None] | None = None) -> list[TakenLoss]:
        """So many GPU-hours of a loss of these nodes (of all), or what is left of it."""
        names = self._of_nodes if nodes is None else nodes
        return self._take([cell for node in names for cell in self._of_nodes.get(node, ())], loss, gpu_hours)

    def _take(self, cells: Sequence[_Cell], loss: str, gpu_hours: float) -> list[TakenLoss]:
        chosen = [cell for cell in cells if cell.loss == loss]
        left = self._left(chosen, (loss,))
        if gpu_hours <= 0 or left <= 0:
            return []
        share = min(1.0, gpu_hours / left)
        return [cell.give(share) for cell in chosen]

    @staticmethod
    def _left(cells: Iterable[_Cell], losses: Sequence[str]) -> float:
        return fsum(cell.gpu_hours for cell in cells if cell.loss in losses)
