"""The bridge from a bill to a budget: every amount of the chain (`money.amounts`) of each team and of the fleet, read at once."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, tzinfo
from decimal import ROUND_HALF_EVEN, Decimal

from loadfactor.base.errors import InputError, no_such
from loadfactor.books.charging.bill_lines import choose_currency, read_month, view_charges
from loadfactor.books.charging.billed_prices import node_rules
from loadfactor.books.charging.fleet_chargeback import (
    OF_GPUS,
    ChargeQuestion,
    FleetChargeback,
    ViewLedger,
    charge_fleet,
    part_charges,
)
from loadfactor.books.charging.instances import view_bill_gpus, view_sold
from loadfactor.metrics.query.calendar import Window, instant
from loadfactor.metrics.query.reading import Readings
from loadfactor.money.amounts import BILL, COST, DIRECT, IDLE, KNOWN, REST, SPENT, STATEMENT, BridgeStep, walk
from loadfactor.money.currency import EXACT, add_exactly, count_minor_digits
from loadfactor.money.lines import SHARE_OF, choose_column
from loadfactor.money.spending import BudgetStatus
from loadfactor.settings.config import settings
from loadfactor.settings.money import Budget
from loadfactor.store.session import Session

Amounts = dict[str, Decimal]


@dataclass(frozen=True)
class _Walked:
    """What amounts are of: those in [start, end), one kind of cost in one currency, to the minor unit.

    `months` are those whose statements are walked over; empty: all that the books know. `basis` is that of the cost of GPU-hours.
    """

    months: tuple[str, ...]
    start: datetime
    end: datetime
    currency: str
    column: str
    basis: str
    cost_source: str


@dataclass(frozen=True)
class Bridge(_Walked):
    """The chain of one team, or of the fleet: each step with its amount."""

    team: str | None
    steps: tuple[BridgeStep, ...]


@dataclass(frozen=True)
class Chain(_Walked):
    """The amounts of every team and of the fleet, by name; `pools` are statements that no team bears."""

    teams: Mapping[str, Amounts]
    fleet: Amounts
    pools: Decimal

    def bridge(self, team: str | None = None, spent: Decimal | None = None) -> Bridge:
        """The walk of a team, else of the fleet. Raises InputError for a team that has none of the amounts."""
        if team is not None and team not in self.teams:
            raise no_such("team", team, self.teams)
        amounts = self.fleet if team is None else self.teams[team]
        steps = walk({**amounts, SPENT.name: None if spent is None else _round(spent, self.currency)})
        return Bridge(**{of.name: getattr(self, of.name) for of in fields(_Walked)}, team=team, steps=steps)


Ask = Callable[..., Readings]


def read_chain(
    session: Session,
    show: Ask,
    basis: str,
    view_ledger: ViewLedger,
    months: Sequence[str] = (),
    zone: tzinfo = UTC,
    column: str | None = None,
) -> Chain:
    """The chain of some months, one after another; without any, of all that the books know.

    Raises InputError where the books know no cost of any of them.
    """
    found, bills = _charge_months(session, basis, view_ledger, months, zone)
    known = found[0].totals
    chosen = column if column is not None and column in known else choose_column(known)
    currency = found[0].currency
    teams: dict[str | None, Amounts] = defaultdict(dict)
    fleet: Amounts = {}
    for name, of_team in _sum_bills(bills, chosen, currency).items():
        fleet[name] = of_team.pop("")
        for team in of_team:
            teams[team][name] = of_team[team]
    start, end = found[0].start, found[0].end
    if months:
        first, last = (read_month(month, zone) for month in (months[0], months[-1]))
        start, end = instant(first.start_ms).astimezone(zone), instant(last.end_ms).astimezone(zone)
    _add_cost(teams, fleet, _read_cost(show, basis, months, (start, end), zone, currency))
    zero = _round(Decimal(0), currency)
    sums = dict.fromkeys((DIRECT.name, IDLE.name, REST.name, STATEMENT.name), zero)
    pools = zero
    own: dict[str | None, Amounts] = {}
    for statement in (s for charged in found for s in charged.statements):
        if statement.owner is None:
            pools += statement.amounts.get(chosen, zero)
            continue
        of = own.setdefault(statement.by["team"], dict(sums))
        for part in statement.parts:
            idle = part.name == f"{SHARE_OF}idle"
            steps = (IDLE, REST) if idle else (REST,) if part.name.startswith(SHARE_OF) else (DIRECT, IDLE, REST)
            for step in (*steps, STATEMENT):
                of[step.name] += part.amounts.get(chosen, zero)
    for team, charged in own.items():
        teams[team] |= charged
    fleet |= {name: add_exactly([zero, *(of[name] for of in own.values())]) for name in sums}
    fleet[STATEMENT.name] += pools
    billed = {name: zero for name in (BILL.name, KNOWN.name) if name in fleet}
    named = {team: {**billed, **sums, **amounts} for team, amounts in teams.items() if team is not None}
    source = found[0].cost_source
    return Chain(tuple(months), start, end, currency, chosen, basis, source, dict(sorted(named.items())), fleet, pools)


def _charge_months(
    session: Session, basis: str, view_ledger: ViewLedger, months: Sequence[str], zone: tzinfo
) -> tuple[list[FleetChargeback], list[list[tuple[str, str | None, str | None, dict[str, Decimal]]]]]:
    """Statements of each month that the books know a cost of, and its bill's lines by tag."""
    found, bills, missing = [], [], None
    for month in months or (None,):
        question = ChargeQuestion(("team",), month, None, settings().chargeback, zone)
        try:
            found.append(charge_fleet(session, question, basis, view_ledger))
        except InputError as error:
            missing = error
            continue
        bills.append(_list_tagged(session, question.window, list(found[-1].totals)))
    if not found and missing is not None:
        raise missing
    return found, bills


Tagged = list[tuple[str, str | None, str | None, dict[str, Decimal]]]


def _list_tagged(session: Session, window: Window | None, columns: Sequence[str]) -> Tagged:
    """Sums of the bill by the team of its tags, of all lines and of GPUs of known nodes: name, team, exchange rate, costs."""
    if not view_charges(session, window):
        return []
    _, relation, _ = choose_currency(session, None)
    relations = {BILL.name: relation}
    if view_sold(session, relation) and (session.manifest.of("devices") or "devices" in session.live):
        view_bill_gpus(session, node_rules())
        part_charges(session, "bill_gpus")
        relations[KNOWN.name] = OF_GPUS
    sums = ", ".join(f"coalesce(sum({column}), 0)" for column in columns)
    return [
        (name, team, rate, dict(zip(columns, map(Decimal, costs), strict=True)))
        for name, of in relations.items()
        for team, rate, *costs in session.raw.execute(
            f"SELECT team, rate, {sums} FROM {of} GROUP BY team, rate ORDER BY ALL"
        ).fetchall()
    ] + [(KNOWN.name, None, None, dict.fromkeys(columns, Decimal(0)))]


def _sum_bills(bills: Sequence[Tagged], column: str, currency: str) -> dict[str, dict[str | None, Decimal]]:
    """Amounts by name and team of the tags, and "" for all of them, each rounded once; nothing where there is no bill."""
    sums: dict[str, dict[str | None, Decimal]] = {}
    for name, team, rate, costs in (row for rows in bills for row in rows):
        of_team = sums.setdefault(name, {})
        worth = EXACT.multiply(costs.get(column, Decimal(0)), Decimal(rate or 1))
        of_team[team] = EXACT.add(of_team.get(team, Decimal(0)), worth)
    for team in sums.get(BILL.name, {}):
        sums[KNOWN.name].setdefault(team, Decimal(0))
    for found in sums.values():
        found[""] = add_exactly(found.values())
    return {name: {team: _round(of, currency) for team, of in found.items()} for name, found in sums.items()}


def _read_cost(
    show: Ask, basis: str, months: Sequence[str], span: tuple[datetime, datetime], zone: tzinfo, currency: str
) -> dict[str | None, Decimal] | None:
    """The cost of GPU-hours by team, and "" for all of them, as `show cost` reads it; None where the books know no GPUs then."""
    start, end = span if months else (None, None)
    try:
        whole = show("cost", (), start, end, zone, basis)
        split = show("cost", ("team",), start, end, zone, basis)
    except InputError:
        return None
    values = {"": whole[0].value, **{reading.by["team"]: reading.value for reading in split}}
    return {
        team: _round(Decimal(repr(float(value))), currency)
        for team, value in values.items()
        if isinstance(value, int | float)
    }


def _add_cost(teams: dict[str | None, Amounts], fleet: Amounts, cost: dict[str | None, Decimal] | None) -> None:
    if cost is None or "" not in cost:
        return
    fleet[COST.name] = cost.pop("")
    for team in {*teams, *cost}:
        teams[team][COST.name] = cost.get(team, Decimal(0) * fleet[COST.name])


def find_budget(budgets: Sequence[Budget], team: str | None) -> Budget | None:
    """The budget of a team, else of everybody; one of amortized cost before others."""
    own = [budget for budget in budgets if (budget.team, budget.project) == (team, None)]
    return min(own, key=lambda budget: budget.column != "EffectiveCost", default=None)


def list_months(status: BudgetStatus) -> tuple[str, ...]:
    """The months of a budget's period."""
    first, last = status.period.first, status.period.last
    numbers = range(first.year * 12 + first.month - 1, last.year * 12 + last.month)
    return tuple(f"{number // 12:04d}-{number % 12 + 1:02d}" for number in numbers)


def _round(amount: Decimal, currency: str) -> Decimal:
    return amount.quantize(Decimal(1).scaleb(-count_minor_digits(currency)), ROUND_HALF_EVEN)
