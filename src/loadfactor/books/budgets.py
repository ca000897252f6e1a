"""Where budgets stand: spending by day of a bill's charges, else of the ledger, built in SQL and judged by `money.budgets`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import D_PER_WEEK, MS_PER_DAY, S_PER_HOUR
from loadfactor.books.billed_costs import EPOCH, BilledDays, convert, has_bill, read_billed_days, view_charges
from loadfactor.books.charging.bill_lines import read_month
from loadfactor.books.owned_prices import make_owned_server
from loadfactor.money.currency import add_exactly
from loadfactor.money.lines import CostLine, measure_tag_coverage, read_hours
from loadfactor.money.project_cost import HeldCost, ProjectCost, ProjectSpending, forecast_project
from loadfactor.money.spending import (
    HISTORY_WEEKS,
    BudgetPeriod,
    BudgetStatus,
    DailySpending,
    find_period,
    follow_budget,
)
from loadfactor.planner.economics.ownership import OwnedCost, compute_owned_cost
from loadfactor.settings.config import FILE
from loadfactor.settings.money import Budget, OwnedPool, ProjectPlan
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session

BILL_SETTLES_DAYS: Final = 2
"""Clouds bill usage within a day or two: later days of a bill are not complete."""
NO_BUDGET: Final = (
    f'no budget in {FILE}; write one: [[budget]] with amount = 12000 and, of one team alone, team = "NAME"'
)
_LEDGER_DIGITS: Final = Decimal("1e-9")
"""To which sums of floats are read, so that they do not depend on the order in which they were added."""


@dataclass(frozen=True)
class BudgetReview:
    """Where all budgets stand. `source` is `bill` or `ledger`; `basis` of the ledger's cost is None where a bill is read.

    `remarks` say which charges were converted from other currencies.
    `tag_coverage_share`: how much of the cost of the budgets' periods that could have an owner has all of `tag_names`, None where
    there is none. Days are of UTC.
    """

    source: str
    currency: str
    basis: str | None
    complete_through: date
    statuses: tuple[BudgetStatus, ...]
    tag_names: tuple[str, ...]
    tag_coverage_share: Decimal | None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class OwnedDays:
    """Spending by owner and day, through the last complete day."""

    days: Sequence[BilledDays]
    complete_through: date
    complete_from: date | None
    currency: str
    remarks: tuple[str, ...] = ()

    def of(self, budget: Budget) -> list[BilledDays]:
        """Those of a budget's owner; of everybody where it names none."""
        return [
            spent
            for spent in self.days
            if budget.team in (None, spent.team) and budget.project in (None, spent.project)
        ]


def review_budgets(
    session: Session,
    budgets: Sequence[Budget],
    basis: str,
    month: str | None = None,
    today: date | None = None,
    through: date | None = None,
) -> BudgetReview:
    """Where budgets stand in the period of a month, by default that of the last complete day. The ledger is called `ledger`.

    `through`: as they stood when this day was complete: later spending is not read.
    Raises InputError where there is no budget, or no cost to compare it with.
    """
    if not budgets:
        raise InputError(NO_BUDGET)
    is_billed = has_bill(session)
    last = _find_last_day(session, is_billed, today or datetime.now(UTC).date())
    last = last if through is None else min(last, through)
    day = last if month is None else EPOCH + timedelta(milliseconds=read_month(month)[0])
    periods = [find_period(day, budget.period) for budget in budgets]
    statuses, coverage = [], {}
    currency = session.currency
    remarks: tuple[str, ...] = ()
    for budget, period in zip(budgets, periods, strict=True):
        key = (budget.column if is_billed else "", period)
        if key not in coverage:
            until = period.last if through is None else min(period.last, last)
            coverage[key] = _read_days(session, budget, (period.first, until), basis, is_billed, last)
        spent = coverage[key]
        currency, remarks = spent.currency, spent.remarks
        statuses.append(_follow(budget, period, spent))
    names = tuple(name for name in ("team", "project") if any(getattr(budget, name) for budget in budgets)) or ("team",)
    shares = [(spent, period) for (_, period), spent in coverage.items()]
    return BudgetReview(
        source="bill" if is_billed else "ledger",
        currency=currency,
        remarks=remarks,
        basis=None if is_billed else basis,
        complete_through=last,
        statuses=tuple(statuses),
        tag_names=names,
        tag_coverage_share=_cover(*shares[0], names),
    )


def _read_days(
    session: Session, budget: Budget, days: tuple[date, date], basis: str, is_billed: bool, last: date
) -> OwnedDays:
    """Spending of everybody in some days, the last one included, and the weeks before them."""
    since, until = days[0] - timedelta(HISTORY_WEEKS * D_PER_WEEK), days[1]
    if is_billed:
        currency, remarks = view_charges(session, budget.column)
        return OwnedDays(read_billed_days(session, since, until), last, None, currency, remarks)
    spent = _read_ledger_days(session, since, until, basis)
    begin = EPOCH + timedelta(-(-session.span()[0] // MS_PER_DAY))
    return OwnedDays(spent, last, max(begin, since), session.currency)


def _follow(budget: Budget, period: BudgetPeriod, spent: OwnedDays) -> BudgetStatus:
    own = spent.of(budget)
    days = (day for part in own for day in part.spread())
    spending = DailySpending(days, spent.complete_through, spent.complete_from)
    return follow_budget(budget, spending, period, _expect_fixed(own, period, spent.complete_through))


def _expect_fixed(own: Iterable[BilledDays], period: BudgetPeriod, complete_through: date) -> Decimal:
    """Fixed cost that comes every day, like that of a commitment spread over its time: at its daily mean, for days to come."""
    recurring = [part for part in own if part.recurs and part.first in period]
    complete = add_exactly(part.cost for part in recurring if part.first <= complete_through)
    later = add_exactly(part.cost for part in recurring if part.first > complete_through)
    days = (min(complete_through, period.last) - period.first).days + 1
    left = (period.last - complete_through).days
    if days <= 0 or left <= 0:
        return Decimal(0)
    return max(Decimal(0), complete * left / days - later)


def _cover(spent: OwnedDays, period: BudgetPeriod, names: tuple[str, ...]) -> Decimal | None:
    lines = (
        CostLine({"cost": part.cost}, tuple(getattr(part, name) for name in names))
        for part in spent.days
        if part.can_be_owned and part.first in period
    )
    return measure_tag_coverage(lines, "cost")


def _find_last_day(session: Session, is_billed: bool, today: date) -> date:
    """The last day whose cost is complete: settled, in a bill; over, in the ledger. Raises InputError where there is none."""
    if is_billed:
        session.view_table("charges", "charges")
        sql = f"""SELECT max((coalesce(ChargePeriodEnd, ChargePeriodStart + 1) - 1) // {MS_PER_DAY}) FROM charges
                  WHERE ChargeCategory IS DISTINCT FROM 'Purchase' AND ChargeFrequency IS DISTINCT FROM 'Recurring'"""
        (last,) = session.fetch_one(sql)
        return min(today - timedelta(BILL_SETTLES_DAYS), today if last is None else EPOCH + timedelta(last))
    start, end = session.span()
    if start == end:
        raise InputError(
            f"the books in {session.folder} know of no cost yet; begin with `loadfactor import` of a bill or of allocations"
        )
    return EPOCH + timedelta(end // MS_PER_DAY - 1)


def _read_ledger_days(session: Session, since: date, until: date, basis: str) -> list[BilledDays]:
    """The ledger's cost by owner and day, what nobody holds included."""
    start, end = ((day - EPOCH).days * MS_PER_DAY for day in (since, until + timedelta(1)))
    sql = f"""SELECT team, project, hour_utc // {MS_PER_DAY} AS day, state NOT IN ('unallocated', 'down') AS held,
                sum(price_per_gpu_hour_{basis} * gpu_s) / {S_PER_HOUR} AS cost
              FROM ledger WHERE hour_utc >= {start} AND hour_utc < {end}
              GROUP BY ALL HAVING cost IS NOT NULL ORDER BY ALL"""
    return [
        BilledDays(team, project, at, at, False, False, held, Decimal(cost).quantize(_LEDGER_DIGITS, ROUND_HALF_EVEN))
        for team, project, day, held, cost in session.raw.execute(sql).fetchall()
        for at in (EPOCH + timedelta(day),)
    ]


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
    """Cost of the project's storage by the bill; None without a bill."""
    if not has_bill(session):
        return None
    view_charges(session, "EffectiveCost")
    sql = (
        f"SELECT rate, sum(cost) FROM counted WHERE ServiceCategory = 'Storage' AND {which} GROUP BY rate ORDER BY rate"
    )
    return add_exactly(convert(Decimal(cost), rate) for rate, cost in session.raw.execute(sql).fetchall())
