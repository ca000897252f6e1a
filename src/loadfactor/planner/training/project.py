"""Cost of a whole training or fine-tuning project, part by part: runs, padding, runs that fail, evaluation, storage, staff."""

from collections.abc import Mapping
from dataclasses import dataclass

from loadfactor.base.units import PERCENT
from loadfactor.planner.training.training_plan import TrainingPlan


@dataclass(frozen=True)
class ProjectNeeds:
    """What a project needs beside one run: how many runs have to succeed, and what else is paid.

    `retry_percent`: GPU-hours of runs that fail, of those that succeed. `padding_percent`: tokens that are padding, of those that
    a run works on. `storage_cost` and `staff_cost` are of the whole project, in the currency of the plan's price.
    """

    runs: int = 1
    retry_percent: float = 0.0
    padding_percent: float = 0.0
    evaluation_gpu_hours: float = 0.0
    storage_cost: float = 0.0
    staff_cost: float = 0.0

    @property
    def work_share(self) -> float:
        """Share of a run's tokens that are no padding."""
        return 1 - self.padding_percent / PERCENT


@dataclass(frozen=True)
class PlannedProject:
    """A project's cost by part, in the order they are paid; the parts sum to `cost`. None without a price of a GPU-hour."""

    needs: ProjectNeeds
    gpu_hours: Mapping[str, float]
    costs: Mapping[str, float] | None
    cost: float | None
    cost_range: tuple[float, float] | None
    """From the lower to the upper end of the range of the runs' time; evaluation, storage and staff are as given."""


def cost_project(plan: TrainingPlan, needs: ProjectNeeds) -> PlannedProject:
    """The cost of a project whose successful runs are each as `plan`, which works on real tokens and padding.

    On paper: 10 runs of 100 GPU-hours at $2, a fifth of them padding, 30 % of retries, 50 GPU-hours of evaluation, $300 and
    $5,000: 1,600 + 400 + 600 + 100 + 300 + 5,000 = $8,000 (tests/planner/training/test_project.py).
    """
    runs_h = needs.runs * plan.gpu_hours
    hours = {
        "runs": runs_h * needs.work_share,
        "padding": runs_h * (1 - needs.work_share),
        "retries": runs_h * needs.retry_percent / PERCENT,
        "evaluation": needs.evaluation_gpu_hours,
    }
    price = plan.price_per_gpu_hour
    if price is None:
        return PlannedProject(needs, hours, None, None, None)
    costs = {name: h * price for name, h in hours.items()} | {"storage": needs.storage_cost, "staff": needs.staff_cost}
    total = sum(costs.values())
    uncertain = costs["runs"] + costs["padding"] + costs["retries"]
    low, high = plan.time_range
    return PlannedProject(needs, hours, costs, total, (total + (low - 1) * uncertain, total + (high - 1) * uncertain))
