"""Projects: what their plans say beside what the ledger booked for them so far, and what they come to."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import S_PER_HOUR
from loadfactor.books.billed_costs import convert, has_bill, view_charges
from loadfactor.books.owned_prices import make_owned_server
from loadfactor.money.currency import add_exactly
from loadfactor.money.lines import read_hours
from loadfactor.money.project_cost import HeldCost, ProjectCost, ProjectSpending, forecast_project
from loadfactor.planner.economics.ownership import OwnedCost, compute_owned_cost
from loadfactor.settings.file import FILE
from loadfactor.settings.owned import OwnedPool
from loadfactor.settings.projects import ProjectPlan
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session

EVALUATION, TRAINING = "evaluation", "training"
"""Purposes of jobs that evaluate, and of runs; a job without a purpose is a run."""
COMPLETED: Final = "completed"
_CENTS: Final = Decimal("1e-9")


@dataclass(frozen=True)
class ProjectReview:
    """All planned projects, in the order of their tables; `basis` is the kind of money of what the ledger booked."""

    currency: str
    basis: str
    projects: tuple[ProjectCost, ...]


def review_projects(
    session: Session, plans: tuple[ProjectPlan, ...], owned: tuple[OwnedPool, ...], basis: str
) -> ProjectReview:
    """Every planned project. The ledger is called `ledger`. Raises InputError where nothing is planned."""
    if not plans:
        raise InputError(
            f'no project in {FILE}; write one: [[project]], name = "NAME", runs = 10, gpu_hours_per_run = 64,'
            " price_per_gpu_hour = 2.5"
        )
    session.view_table("allocations", "allocations")
    session.materialize(
        "ends",
        f"""SELECT job_id, bool_or(end_state = '{COMPLETED}') AS is_done, bool_or(to_utc IS NULL) AS runs
            FROM allocations GROUP BY job_id""",
    )
    shares = share_cost(compute_owned_cost(make_owned_server(owned[0]))) if basis == "owned" and len(owned) == 1 else {}
    costs = tuple(forecast_project(plan, _read_spending(session, plan, basis), shares) for plan in plans)
    return ProjectReview(session.currency, basis, costs)


def share_cost(cost: OwnedCost) -> dict[str, Decimal]:
    """Of what the price of an owned GPU-hour consists: shares that sum to 1, capital first."""
    parts = {
        "capital": cost.capital_cost,
        "energy": cost.energy_cost,
        "colocation": cost.colocation_cost,
        "network, storage and CPU": cost.network_cost,
        "support": cost.support_cost,
        "staff of the servers": cost.staff_cost,
    }
    return {name: Decimal(part / cost.total_cost) for name, part in parts.items() if part}


def _read_spending(session: Session, plan: ProjectPlan, basis: str) -> ProjectSpending:
    listed = ", ".join(quote(name) for name in plan.experiments)
    which = f"experiment_id IN ({listed})" if listed else f"project = {quote(plan.name)}"
    price = f"price_per_gpu_hour_{basis}"
    sql = f"""SELECT coalesce(purpose = '{EVALUATION}', false) AS evaluates,
                coalesce(purpose, '{TRAINING}') = '{TRAINING}' AS trains,
                coalesce(is_done, false) AS done, coalesce(runs, true) AS runs, count(DISTINCT job_id), sum(gpu_s),
                coalesce(sum(gpu_s) FILTER ({price} IS NOT NULL), 0), coalesce(sum({price} * gpu_s), 0) / {S_PER_HOUR}
              FROM ledger LEFT JOIN ends USING (job_id) WHERE {which} GROUP BY ALL ORDER BY ALL"""
    rows = session.raw.execute(sql).fetchall()
    held = {True: HeldCost(), False: HeldCost()}
    done, lost = 0, Decimal(0)
    for evaluates, trains, is_done, runs, jobs, gpu_s, priced_s, cost in rows:
        held[evaluates] += HeldCost(read_hours(gpu_s), read_hours(priced_s), Decimal(cost).quantize(_CENTS))
        if trains and is_done:
            done += jobs
        elif trains and not runs:
            lost += read_hours(gpu_s)
    return ProjectSpending(done, held[False], lost, held[True], _read_storage(session, which))


def _read_storage(session: Session, which: str) -> Decimal | None:
    """What a bill says of the project's storage; None without a bill."""
    if not has_bill(session):
        return None
    view_charges(session, "EffectiveCost")
    sql = (
        f"SELECT rate, sum(cost) FROM counted WHERE ServiceCategory = 'Storage' AND {which} GROUP BY rate ORDER BY rate"
    )
    return add_exactly(convert(Decimal(cost), rate) for rate, cost in session.raw.execute(sql).fetchall())
