"""The cost of a project: planned, so far, and when all of its runs are done."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from loadfactor.base.units import PERCENT
from loadfactor.money.currency import add_exactly
from loadfactor.settings.money import ProjectPlan

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
class HeldCost:
    """GPU-hours that were held, what those of a known price cost, and how many they are."""

    gpu_hours: Decimal = NOTHING
    priced_gpu_hours: Decimal = NOTHING
    known_cost: Decimal = NOTHING

    def __add__(self, other: "HeldCost") -> "HeldCost":
        return HeldCost(
            self.gpu_hours + other.gpu_hours,
            self.priced_gpu_hours + other.priced_gpu_hours,
            self.known_cost + other.known_cost,
        )

    @property
    def cost(self) -> Decimal | None:
        """Their cost as far as it is known; None where nothing is."""
        return self.known_cost if self.priced_gpu_hours else None

    @property
    def price_per_gpu_hour(self) -> Decimal | None:
        """The mean price of those that have one."""
        return self.known_cost / self.priced_gpu_hours if self.priced_gpu_hours else None

    def cost_at(self, price_per_gpu_hour: Decimal) -> Decimal:
        """The cost of all of them, those without a price at this one."""
        return self.known_cost + (self.gpu_hours - self.priced_gpu_hours) * price_per_gpu_hour


@dataclass(frozen=True)
class ProjectSpending:
    """A project in the books: held GPU-hours and their cost, evaluation apart, and storage by a bill (None without one).

    `runs_done` are training jobs that completed; `lost_gpu_hours` those of training jobs that ended otherwise. The hours of all
    jobs but evaluation, notebooks among them, count as training.
    """

    runs_done: int = 0
    training: HeldCost = HeldCost()
    lost_gpu_hours: Decimal = NOTHING
    evaluation: HeldCost = HeldCost()
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
        """The amount known to have been spent."""
        return add_exactly(part.spent_cost or NOTHING for part in self.parts)

    @property
    def expected_cost(self) -> Decimal:
        """The cost at its end."""
        return add_exactly(part.expected_cost for part in self.parts)

    @property
    def runs_left(self) -> int:
        """Runs that still have to succeed."""
        return max(0, self.plan.runs - self.spending.runs_done)

    @property
    def over_plan_cost(self) -> Decimal:
        """The cost at its end less what was planned; negative where it is less."""
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

    Runs to come take as many GPU-hours as those that are done took, failed ones and notebooks included; before the first of them as
    planned. An hour costs what it cost so far, before the first as planned. Evaluation, storage and staff come to what was planned,
    or to what they have cost, if that is more; staff is in no books. `shares` are the parts of the price of an owned GPU-hour, in
    which the expected cost of GPU-hours is split.

    >>> plan = ProjectPlan(name="p", runs=10, gpu_hours_per_run=64, price_per_gpu_hour=2, staff_cost=500)
    >>> so_far = ProjectSpending(4, HeldCost(Decimal(320), Decimal(320), Decimal(800)))
    >>> cost = forecast_project(plan, so_far)
    >>> cost.planned_cost, cost.spent_cost, cost.expected_cost
    (Decimal('1780'), Decimal('800'), Decimal('2500.0'))
    """
    planned = plan_gpu_hours(plan)
    left = max(0, plan.runs - spending.runs_done)
    per_run, method = planned / plan.runs, "as planned"
    if spending.runs_done and spending.training.gpu_hours:
        per_run, method = spending.training.gpu_hours / spending.runs_done, "as the runs that are done"
    price = spending.training.price_per_gpu_hour or plan.price_per_gpu_hour
    training = _expect("training", planned, spending.training, _count_to_come(left, per_run, spending), plan, price)
    more = max(NOTHING, plan.evaluation_gpu_hours - spending.evaluation.gpu_hours)
    evaluation = _expect("evaluation", plan.evaluation_gpu_hours, spending.evaluation, more, plan, price)
    stored = max(plan.storage_cost, spending.storage_cost or NOTHING)
    storage = ProjectPart("storage", None, plan.storage_cost, None, spending.storage_cost, None, stored)
    staff = ProjectPart("staff", None, plan.staff_cost, None, None, None, plan.staff_cost)
    gpus = training.expected_cost + evaluation.expected_cost
    capital = {name: gpus * share for name, share in (shares or {}).items()}
    return ProjectCost(plan, spending, (training, evaluation, storage, staff), per_run, price, method, capital)


def _expect(
    name: str, planned: Decimal, held: HeldCost, to_come: Decimal, plan: ProjectPlan, price: Decimal
) -> ProjectPart:
    """GPU-hours planned, held, and at the end, when so many more were held at a price."""
    return ProjectPart(
        name,
        planned,
        planned * plan.price_per_gpu_hour,
        held.gpu_hours,
        held.cost,
        held.gpu_hours + to_come,
        held.cost_at(price) + to_come * price,
    )


def _count_to_come(left: int, per_run: Decimal, spending: ProjectSpending) -> Decimal:
    """GPU-hours still to be held: of a project without a finished run, what its plan has beyond those held already."""
    if left and not spending.runs_done:
        return max(NOTHING, left * per_run - spending.training.gpu_hours)
    return left * per_run
