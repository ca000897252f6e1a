"""Where budgets stand: what the statements of their months charge them, by day, judged by `money.spending`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import D_PER_WEEK, MS_PER_DAY, S_PER_HOUR
from loadfactor.books.billed_costs import BilledDays, convert, has_bill, view_charges
from loadfactor.books.charging.bill_lines import EPOCH, read_month
from loadfactor.books.charging.fleet_chargeback import ChargedDays, ChargeQuestion, ViewLedger, charge_days
from loadfactor.books.owned_prices import make_owned_server
from loadfactor.metrics.query.calendar import instant
from loadfactor.money.currency import EXACT, add_exactly
from loadfactor.money.lines import EFFECTIVE_COST, choose_column, measure_tag_coverage, read_hours
from loadfactor.money.project_cost import HeldCost, ProjectCost, ProjectSpending, forecast_project
from loadfactor.money.spending import (
    HISTORY_WEEKS,
    BudgetPeriod,
    BudgetStatus,
    DailySpending,
    DaySpend,
    find_period,
    follow_budget,
)
from loadfactor.planner.economics.ownership import OwnedCost, compute_owned_cost
from loadfactor.settings.config import FILE, settings
from loadfactor.settings.money import Budget, OwnedPool, ProjectPlan
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session

_MONTHS_PER_YEAR: Final = 12
BILL_SETTLES_DAYS: Final = 2
"""Clouds bill usage within a day or two: later days of a bill are not complete."""
NO_BUDGET: Final = (
    f'no budget in {FILE}; write one: [[budget]] with amount = 12000 and, of one team alone, team = "NAME"'
)


@dataclass(frozen=True)
class BudgetReview:
    """Where all budgets stand. `source` is `bill` or `ledger`; `basis` of the ledger's cost is None where a bill is read.

    `remarks` say which charges were converted from other currencies.
    `tag_coverage_share`: how much of the cost of the first budget's period that could have an owner has all of `tag_names`, None
    where there is none. Days are of `timezone`.
    """

    source: str
    currency: str
    basis: str | None
    complete_through: date
    statuses: tuple[BudgetStatus, ...]
    tag_names: tuple[str, ...]
    tag_coverage_share: Decimal | None
    remarks: tuple[str, ...] = ()
    timezone: str = "UTC"


def review_budgets(
    session: Session,
    budgets: Sequence[Budget],
    basis: str,
    view_ledger: ViewLedger,
    month: str | None = None,
    today: date | None = None,
    through: date | None = None,
    zone: tzinfo = UTC,
) -> BudgetReview:
    """Where budgets stand in the period of a month, by default that of the last complete day: what statements of it charge.

    `through`: as they stood when this day was complete: later spending is not read.
    Raises InputError where there is no budget, or no cost to compare it with.
    """
    if not budgets:
        raise InputError(NO_BUDGET)
    is_billed = has_bill(session)
    last = _find_last_day(session, is_billed, today or datetime.now(UTC).date(), zone)
    last = last if through is None else min(last, through)
    day = last if month is None else instant(read_month(month, zone).start_ms).astimezone(zone).date()
    until = last if through is not None else None
    charged = _ChargedMonths(session, basis, view_ledger, zone, until)
    periods = [find_period(day, budget.period) for budget in budgets]
    begun = None if is_billed else _find_first_day(session, zone)
    statuses = tuple(
        _follow(budget, period, charged, last, begun) for budget, period in zip(budgets, periods, strict=True)
    )
    names = tuple(name for name in ("team", "project") if any(getattr(budget, name) for budget in budgets)) or ("team",)
    return BudgetReview(
        source="bill" if is_billed else "ledger",
        currency=charged.currency,
        remarks=charged.remarks,
        basis=None if is_billed else basis,
        complete_through=last,
        statuses=statuses,
        tag_names=names,
        tag_coverage_share=charged.cover(periods[0], names),
        timezone=str(zone),
    )


class _ChargedMonths:
    """The statements of months, each worked out once for all budgets that read it."""

    def __init__(self, session: Session, basis: str, view_ledger: ViewLedger, zone: tzinfo, until: date | None) -> None:
        self._session, self._basis, self._view_ledger = session, basis, view_ledger
        self._zone, self._until = zone, until
        self._known: dict[tuple[str, tuple[str, ...], str], ChargedDays | None] = {}
        self.currency = session.currency
        self.remarks: tuple[str, ...] = ()

    def charge(self, month: str, by: tuple[str, ...], column: str) -> ChargedDays | None:
        """The statements of a month by these names, and the days of a column; None where no cost of it is known."""
        key = month, by, column
        if key not in self._known:
            policy = settings().chargeback
            question = ChargeQuestion(by, month, None, policy, self._zone, self._until)
            found = charge_days(self._session, question, self._basis, self._view_ledger, column)
            self._known[key] = found
            if found is not None:
                self.currency = found.found.currency
                self.remarks += tuple(r for r in found.found.remarks if "converted" in r and r not in self.remarks)
        return self._known[key]

    def spend(self, budget: Budget, month: str) -> tuple[Decimal, list[DaySpend], list[BilledDays]]:
        """What a month's statements charge a budget, its days, which sum to that, and the fixed charges that recur."""
        by = tuple(name for name in ("team", "project") if getattr(budget, name)) or ("team",)
        charged = self.charge(month, by, budget.column)
        if charged is None:
            return Decimal(0), [], []
        owner = tuple(getattr(budget, name) for name in by)
        is_own: Callable[[Sequence[str | None]], bool] = lambda names: not any(owner) or tuple(names) == owner  # noqa: E731
        column = budget.column if budget.column in charged.found.totals else None
        spent = add_exactly(
            of.amounts[column] for of in charged.found.statements if column and is_own(tuple(of.by.values()))
        )
        parts = [
            BilledDays.of(days, amount, read_month(month, self._zone))
            for place, of_days in charged.days.items()
            if is_own(place[1:])
            for days, amount in sorted(of_days.items())
        ]
        spends = [day for part in parts for day in part.spread()]
        if rounding := EXACT.subtract(spent, add_exactly(amount for s in spends for amount in (s.variable, s.fixed))):
            spends.append(DaySpend(max(spend.day for spend in spends), rounding))
        return spent, spends, [part for part in parts if part.recurs]

    def cover(self, period: BudgetPeriod, names: tuple[str, ...]) -> Decimal | None:
        """The part of the cost of a period that has these names: of one month, what its statements print."""
        months = [self.charge(month, names, EFFECTIVE_COST) for month in _list_months(period.first, period.last)]
        lines = [line for charged in months if charged is not None for line in charged.lines]
        if not lines:
            return None
        share = measure_tag_coverage(lines, choose_column(lines[0].costs))
        return None if share is None else round(share, 6)


def _list_months(first: date, last: date) -> list[str]:
    """The months that some days lie in.

    >>> _list_months(date(2026, 11, 30), date(2027, 1, 1))
    ['2026-11', '2026-12', '2027-01']
    """
    count = (last.year - first.year) * _MONTHS_PER_YEAR + last.month - first.month + 1
    numbers = (first.year * _MONTHS_PER_YEAR + first.month - 1 + n for n in range(count))
    return [f"{number // _MONTHS_PER_YEAR:04d}-{number % _MONTHS_PER_YEAR + 1:02d}" for number in numbers]


def _follow(
    budget: Budget, period: BudgetPeriod, charged: _ChargedMonths, last: date, begun: date | None
) -> BudgetStatus:
    since = period.first - timedelta(HISTORY_WEEKS * D_PER_WEEK)
    spends: list[DaySpend] = []
    recurring: list[BilledDays] = []
    for month in _list_months(since, period.last):
        _, of_month, recurs = charged.spend(budget, month)
        spends += of_month
        recurring += recurs
    complete_from = None if begun is None else max(begun, since)
    spending = DailySpending((s for s in spends if s.day >= since), last, complete_from)
    return follow_budget(budget, spending, period, _expect_fixed(recurring, period, last))


def _expect_fixed(own: Iterable[BilledDays], period: BudgetPeriod, complete_through: date) -> Decimal:
    """Fixed cost that comes every day, like that of a commitment spread over its time: at its daily mean, for days to come."""
    recurring = [part for part in own if part.first in period]
    complete = add_exactly(part.cost for part in recurring if part.first <= complete_through)
    later = add_exactly(part.cost for part in recurring if part.first > complete_through)
    days = (min(complete_through, period.last) - period.first).days + 1
    left = (period.last - complete_through).days
    if days <= 0 or left <= 0:
        return Decimal(0)
    return max(Decimal(0), complete * left / days - later)


def _find_last_day(session: Session, is_billed: bool, today: date, zone: tzinfo) -> date:
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
            f"the books in {session.name} know of no cost yet; begin with `loadfactor import` of a bill or of allocations"
        )
    return instant(end).astimezone(zone).date() - timedelta(1)


def _find_first_day(session: Session, zone: tzinfo) -> date:
    """The first day that the ledger knows whole."""
    begun = instant(session.span()[0]).astimezone(zone)
    return begun.date() if begun.time() == time() else begun.date() + timedelta(1)


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
