"""What a project was planned to cost, what it cost so far, and what it comes to when all of its runs are done."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from loadfactor.money.currency import add_exactly
from loadfactor.project_settings import ProjectPlan
from loadfactor.units import PERCENT

NOTHING: Final = Decimal(0)


@dataclass(frozen=True)
class ProjectPart:
    """A kind of cost of a project: GPU-hours, None where there are none, and their cost, None where it is not known."""

    name: str
    planned_gpu_hours: Decimal | None
    planned_cost: Decimal
    spent_gpu_hours: Decimal | None
    spent_cost: Decimal | None
    expected_gpu_hours: Decimal | None
    expected_cost: Decimal


@dataclass(frozen=True)
class ProjectSpending:
    """What the books say of a project: held GPU-hours and their cost, evaluation apart, and storage by a bill (None without one).

    `runs_done` are jobs, evaluation aside, that completed; `lost_gpu_hours` those of jobs that ended otherwise.
    """

    runs_done: int = 0
    training_gpu_hours: Decimal = NOTHING
    training_cost: Decimal | None = None
    lost_gpu_hours: Decimal = NOTHING
    evaluation_gpu_hours: Decimal = NOTHING
    evaluation_cost: Decimal | None = None
    storage_cost: Decimal | None = None


@dataclass(frozen=True)
class ProjectCost:
    """A project planned, so far, and at its end. `method` says what the runs to come are reckoned by."""

    plan: ProjectPlan
    spending: ProjectSpending
    parts: tuple[ProjectPart, ...]
    gpu_hours_per_run: Decimal
    price_per_gpu_hour: Decimal
    method: str
    capital: Mapping[str, Decimal]

    @property
    def planned_cost(self) -> Decimal:
        """All of the plan."""
        return add_exactly(part.planned_cost for part in self.parts)

    @property
    def spent_cost(self) -> Decimal:
        """What is known to have been spent."""
        return add_exactly(part.spent_cost or NOTHING for part in self.parts)

    @property
    def expected_cost(self) -> Decimal:
        """What it comes to at its end."""
        return add_exactly(part.expected_cost for part in self.parts)

    @property
    def runs_left(self) -> int:
        """Runs that still have to succeed."""
        return max(0, self.plan.runs - self.spending.runs_done)

    @property
    def over_plan_cost(self) -> Decimal:
        """What it comes to less what was planned; negative where it is less."""
        return self.expected_cost - self.planned_cost


def plan_gpu_hours(plan: ProjectPlan) -> Decimal:
    """GPU-hours of all runs, those that fail included, evaluation apart.

    >>> plan = ProjectPlan(name="p", runs=10, gpu_hours_per_run=64, retry_percent=25, price_per_gpu_hour=2)
    >>> plan_gpu_hours(plan)
    Decimal('800')
    """
    return plan.runs * plan.gpu_hours_per_run * (PERCENT + plan.retry_percent) / PERCENT


def forecast_project(
    plan: ProjectPlan, spending: ProjectSpending, shares: Mapping[str, Decimal] | None = None
) -> ProjectCost:
    """The plan beside what happened and what it comes to.

    Runs to come take as many GPU-hours as those that are done took, failed ones included; before the first of them as planned. An
    hour costs what it cost so far, before the first as planned. Evaluation, storage and staff come to what was planned, or to what
    they have cost, if that is more; staff is in no books. `shares` are the parts of the price of an owned GPU-hour, in which the
    expected cost of GPU-hours is split.

    >>> plan = ProjectPlan(name="p", runs=10, gpu_hours_per_run=64, price_per_gpu_hour=2, staff_cost=500)
    >>> so_far = ProjectSpending(4, Decimal(320), Decimal(800))
    >>> cost = forecast_project(plan, so_far)
    >>> cost.planned_cost, cost.spent_cost, cost.expected_cost
    (Decimal('1780'), Decimal('800'), Decimal('2500.0'))
    """
    planned = plan_gpu_hours(plan)
    left = max(0, plan.runs - spending.runs_done)
    per_run, price = planned / plan.runs, plan.price_per_gpu_hour
    method = "as planned"
    if spending.runs_done and spending.training_gpu_hours:
        per_run, method = spending.training_gpu_hours / spending.runs_done, "as the runs that are done"
    if spending.training_gpu_hours and spending.training_cost is not None:
        price = spending.training_cost / spending.training_gpu_hours
    to_come = _count_to_come(left, per_run, spending)
    training = ProjectPart(
        "training",
        planned,
        planned * plan.price_per_gpu_hour,
        spending.training_gpu_hours,
        spending.training_cost,
        spending.training_gpu_hours + to_come,
        _cost(spending.training_gpu_hours, spending.training_cost, plan) + to_come * price,
    )
    more = max(NOTHING, plan.evaluation_gpu_hours - spending.evaluation_gpu_hours)
    evaluation = ProjectPart(
        "evaluation",
        plan.evaluation_gpu_hours,
        plan.evaluation_gpu_hours * plan.price_per_gpu_hour,
        spending.evaluation_gpu_hours,
        spending.evaluation_cost,
        spending.evaluation_gpu_hours + more,
        _cost(spending.evaluation_gpu_hours, spending.evaluation_cost, plan) + more * price,
    )
    stored = max(plan.storage_cost, spending.storage_cost or NOTHING)
    storage = ProjectPart("storage", None, plan.storage_cost, None, spending.storage_cost, None, stored)
    staff = ProjectPart("staff", None, plan.staff_cost, None, None, None, plan.staff_cost)
    gpus = training.expected_cost + evaluation.expected_cost
    capital = {name: gpus * share for name, share in (shares or {}).items()}
    return ProjectCost(plan, spending, (training, evaluation, storage, staff), per_run, price, method, capital)


def _count_to_come(left: int, per_run: Decimal, spending: ProjectSpending) -> Decimal:
    """GPU-hours still to be held: of a project without a finished run, what its plan has beyond those held already."""
    if left and not spending.runs_done:
        return max(NOTHING, left * per_run - spending.training_gpu_hours)
    return left * per_run


def _cost(gpu_hours: Decimal, cost: Decimal | None, plan: ProjectPlan) -> Decimal:
    """What hours so far cost; at the planned price where the books know none."""
    return gpu_hours * plan.price_per_gpu_hour if cost is None else cost
