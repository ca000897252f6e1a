"""Chargeback of a fleet: the bill of a month, or without one price × installed time, as statements of owners and pools.

Lines of bills that are GPUs of known nodes, divided over what the ledger says these GPUs did in their charge periods.

What a line costs goes to holders and states by GPU-seconds; GPU-hours billed beyond those of the ledger are unobserved. Parts are
differences of rounded running sums, so those of a line sum to it exactly, however many they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, NamedTuple

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.units import MS_PER_HOUR, S_PER_HOUR, US_PER_S
from loadfactor.books.charging.bill_lines import (
    IS_FIXED,
    NO_DAYS,
    choose_currency,
    find_extent,
    read_month,
    sum_charges,
    view_charges,
    write_charge_days,
)
from loadfactor.books.charging.billed_prices import node_rules
from loadfactor.books.charging.instances import SOLD, view_bill_gpus, view_sold
from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.books.served_use import divide_ledger
from loadfactor.metrics.query.calendar import Window, instant, milliseconds, write_local_day
from loadfactor.money.chargeback import charge, charge_parts
from loadfactor.money.currency import EXACT, add_exactly, shorten
from loadfactor.money.lines import (
    EFFECTIVE_COST,
    Chargeback,
    ChargedHours,
    ColumnTotal,
    CostLine,
    Costs,
    Owner,
    SpreadPool,
    Statement,
    choose_column,
    measure_tag_coverage,
    read_hours,
)
from loadfactor.settings.money import ChargebackPolicy
from loadfactor.store.session import Session
from loadfactor.tables.charges import COSTS
from loadfactor.tables.schema import DIMENSIONS, Span

Expr = Any


class CostDays(NamedTuple):
    """The days that a charge is for, in days since 1970-01-01, and whether it was bound to come, and is charged anew every day."""

    first: int
    last: int
    is_fixed: bool
    recurs: bool


@dataclass(frozen=True)
class LedgerHours:
    """GPU-hours of one owner (or nobody) in one state at one price, of one day where days are given; None: no price is known."""

    owner: Owner
    state: str
    price: Decimal | None
    hours: Decimal
    effective: Decimal
    day: int = 0

    @property
    def pool(self) -> str | None:
        """The pool of time that nobody held."""
        return self.state if self.state in ("unallocated", "down") else None

    @property
    def charged_hours(self) -> ChargedHours:
        """As the hours of a line."""
        return ChargedHours(
            self.hours,
            self.hours if self.state == "idle" else Decimal(0),
            self.hours if self.state == "unobserved" else Decimal(0),
            self.effective,
        )

    def cost_as(self, costs: dict[str, Decimal], billed_hours: Decimal | None = None) -> CostLine:
        owner = None if self.pool else self.owner
        return CostLine(costs, owner, self.pool, "gpu", self.charged_hours, billed_hours)


def read_ledger_hours(session: Session, by: Sequence[str], basis: str, days: Window | None = None) -> list[LedgerHours]:
    """Sums of `window_ledger` by owner, state and price, and local day of a window where one is given.

    GPU-seconds are added up as whole microseconds, in any order alike.
    """
    if days is not None:
        day = write_local_day("from_utc", days)
        session.create_view("dated_ledger", f"SELECT *, {day} AS local_day FROM window_ledger")
    dated = days is not None
    sql = recall(
        f"ledger hours {by} {basis} {dated}",
        lambda: {"hours": expressions().write_sql(_sum_hours(tuple(by), basis, dated))},
    )["hours"]
    return [
        LedgerHours(
            tuple(owner),
            state,
            None if price is None else Decimal(str(price)),
            read_hours(held_us / US_PER_S),
            read_hours(effective_us / US_PER_S),
            day,
        )
        for *owner, state, price, day, held_us, effective_us in session.raw.execute(f"{sql} ORDER BY ALL").fetchall()
    ]


def price_hours(hours: Iterable[LedgerHours]) -> Iterator[CostLine]:
    """Price × hours; hours without a price are left out, for their cost is unknown."""
    for held in hours:
        if held.price is not None:
            yield held.cost_as({EFFECTIVE_COST: EXACT.multiply(held.hours, held.price)})


def _sum_hours(by: tuple[str, ...], basis: str, dated: bool) -> Expr:
    import ibis

    from loadfactor.ledger.columns import ACTIVITIES
    from loadfactor.ledger.states import measures
    from loadfactor.ledger.steps import ledger_columns
    from loadfactor.tables.schema import DIMENSIONS

    book = ibis.table(
        ledger_columns() | ({"local_day": "int64"} if dated else {}), name="dated_ledger" if dated else "window_ledger"
    )
    known = measures(book)
    effective = sum(
        (known[f"effective_{kind.basis}_s"] for kind in ACTIVITIES[1:]), known[f"effective_{ACTIVITIES[0].basis}_s"]
    )
    rows = book.select(
        **{name: book[DIMENSIONS[name]] for name in by},
        state=book.state,
        price=book[f"price_per_gpu_hour_{basis}"],
        day=book.local_day if dated else ibis.literal(0),
        held_us=(book.gpu_s * US_PER_S).round().cast("int64"),
        effective_us=(effective * US_PER_S).round().cast("int64"),
    )
    return rows.group_by(*by, "state", "price", "day").aggregate(
        held_us=rows.held_us.sum(), effective_us=rows.effective_us.sum()
    )


OF_GPUS, BESIDE_GPUS = "gpu_costs", "other_costs"
"""Relations of rows: costs of GPUs of known nodes; all other costs, what such a row costs beyond its GPUs among them."""
_UNSEEN: Final = "unseen"
_EXACT: Final = "DECIMAL(38, 18)"


@dataclass(frozen=True)
class DividedCosts:
    """Costs by owner and state of the ledger, the GPU-hours that they are for, and lines of what was billed and not seen.

    `dated` are all of these costs as lines with their days, where days are given.
    """

    by_state: dict[tuple[Owner, str], dict[str, Decimal]] = field(default_factory=dict)
    unseen: list[CostLine] = field(default_factory=list)
    billed_us: dict[tuple[Owner, str], int] = field(default_factory=dict)
    dated: list[tuple[CostLine, CostDays]] = field(default_factory=list)


def part_charges(session: Session, relation: str) -> int:
    """Part a relation of `view_bill_gpus` into `OF_GPUS` and `BESIDE_GPUS`, whose costs sum to its own; rows of the first.

    A row of no known node, or of which nobody knows what part its GPUs are, is beside.
    """
    known = "node IS NOT NULL AND coalesce(gpu_share, 0) > 0"
    of_gpus, rest = [], []
    for cost in COSTS:
        part = f"if(gpu_share = 1, {cost}, ({cost}::DOUBLE * gpu_share::DOUBLE)::{_EXACT})"
        of_gpus.append(f"{part} AS {cost}")
        rest.append(f"{cost} - {part} AS {cost}")
    session.create_view(OF_GPUS, f"SELECT * REPLACE ({', '.join(of_gpus)}) FROM {relation} WHERE {known}")
    session.create_view(
        BESIDE_GPUS,
        f"SELECT * REPLACE (sold IS NOT NULL AS is_gpu) FROM {relation} WHERE NOT ({known})"
        f" UNION ALL BY NAME SELECT * REPLACE ({', '.join(rest)}) FROM {relation} WHERE {known} AND gpu_share < 1",
    )
    return int(session.fetch_one(f"SELECT count(*) FROM {OF_GPUS}")[0])


def divide_charges(session: Session, by: Sequence[str], days: str = NO_DAYS) -> DividedCosts:
    """The costs of `OF_GPUS` over the rows of `window_ledger`, by GPU-seconds of each node in each charge period.

    `days` is SQL for the columns of `CostDays`.
    """
    session.materialize("billed_gpus", _sum_billed(days))
    divided = DividedCosts()
    wide = len(CostDays._fields)
    for row in session.raw.execute(_write_division(by)).fetchall():
        owner, rest = tuple(row[: len(by)]), row[len(by) :]
        (state, rate, unseen_us, seen_us), of_days, parts = rest[:4], CostDays(*rest[4 : 4 + wide]), rest[4 + wide :]
        worth = Decimal(1) if rate is None else Decimal(rate)
        costs = {cost: EXACT.multiply(part or Decimal(0), worth) for cost, part in zip(COSTS, parts, strict=True)}
        if state == _UNSEEN:
            line = CostLine(costs, None, "unobserved", "gpu", ChargedHours(read_hours(unseen_us / US_PER_S)))
            divided.unseen.append(line)
        else:
            line = LedgerHours(owner, state, None, Decimal(1), Decimal(0)).cost_as(costs)
            before = divided.by_state.setdefault((owner, state), dict.fromkeys(COSTS, Decimal(0)))
            divided.by_state[owner, state] = {cost: EXACT.add(before[cost], costs[cost]) for cost in COSTS}
            divided.billed_us[owner, state] = divided.billed_us.get((owner, state), 0) + int(seen_us)
        divided.dated.append((line, of_days))
    return divided


def _sum_billed(days: str) -> str:
    """SQL: what was billed of a node in a charge period."""
    return f"""
    SELECT row_number() OVER () AS id, * FROM (
      SELECT node, rate, {days}, ChargePeriodStart AS start_ms,
        greatest(coalesce(ChargePeriodEnd, 0), ChargePeriodStart + 1) AS end_ms,
        sum(round(coalesce(gpu_hours, 0) * {S_PER_HOUR * US_PER_S})::HUGEINT) AS billed_us,
        {", ".join(f"coalesce(sum({cost}), 0)::{_EXACT} AS {cost}" for cost in COSTS)}
      FROM {OF_GPUS} GROUP BY ALL)"""


def _write_division(by: Sequence[str]) -> str:
    """SQL: costs by owner and state. The order of parts is that of owners and states, so the answer is the same every time."""
    names = [f'"{DIMENSIONS[name]}"' for name in by]
    owner, nobody = ", ".join(names), ", ".join(f"NULL AS {name}" for name in names)
    days = ", ".join(CostDays._fields)
    inside = "least(l.to_utc, h.end_ms) - greatest(l.from_utc, h.start_ms)"
    running = ", ".join(
        f"if(upto = whole, {cost}, ({cost}::DOUBLE * (upto::DOUBLE / whole::DOUBLE))::{_EXACT}) AS {cost}"
        for cost in COSTS
    )
    parts = ", ".join(f"{cost} - lag({cost}, 1, 0::{_EXACT}) OVER line AS {cost}" for cost in COSTS)
    return f"""
    WITH hours AS (
      SELECT id, node, start_ms, end_ms, unnest(range(start_ms - start_ms % {MS_PER_HOUR}, end_ms, {MS_PER_HOUR})) AS hour_utc
      FROM billed_gpus),
    held AS (
      SELECT node, hour_utc, from_utc, to_utc, {owner}, state, sum(round(gpu_s * {US_PER_S})::BIGINT) AS us
      FROM window_ledger WHERE node IN (SELECT node FROM billed_gpus) GROUP BY ALL),
    seen AS (
      SELECT h.id, {", ".join(f"l.{name}" for name in names)}, l.state,
        sum(round(l.us * (({inside}) / (l.to_utc - l.from_utc)))::HUGEINT) AS us
      FROM hours h JOIN held l ON h.node = l.node AND h.hour_utc = l.hour_utc
        AND l.from_utc < h.end_ms AND l.to_utc > h.start_ms GROUP BY ALL),
    summed AS (SELECT id, sum(us) AS us FROM seen GROUP BY id),
    filled AS (
      SELECT id, {owner}, state, us, 0 AS unseen_us FROM seen WHERE us > 0
      UNION ALL BY NAME
      SELECT b.id, {nobody}, '{_UNSEEN}' AS state, greatest(b.billed_us - coalesce(s.us, 0), 1) AS us,
        greatest(b.billed_us - coalesce(s.us, 0), 0) AS unseen_us
      FROM billed_gpus b LEFT JOIN summed s USING (id) WHERE b.billed_us > coalesce(s.us, 0) OR coalesce(s.us, 0) = 0),
    placed AS (
      SELECT *, sum(us) OVER (PARTITION BY id ORDER BY {owner}, state ROWS UNBOUNDED PRECEDING) AS upto,
        sum(us) OVER (PARTITION BY id) AS whole FROM filled),
    summing AS (
      SELECT id, {owner}, state, unseen_us, us, upto, rate, {days}, {running} FROM placed JOIN billed_gpus USING (id)),
    parts AS (
      SELECT {owner}, state, rate, {days}, unseen_us, us, {parts} FROM summing
      WINDOW line AS (PARTITION BY id ORDER BY {owner}, state))
    SELECT {owner}, state, rate, sum(unseen_us), sum(us), {days}, {", ".join(f"sum({cost})" for cost in COSTS)}
    FROM parts GROUP BY ALL ORDER BY ALL"""


OWNERS: Final = ("team", "project", "experiment", "user", "purpose")
"""Dimensions that statements can be by."""
GPU_KINDS: Final = "charges_with_kinds"
BILL, PRICES = "bill", "price × installed time"


@dataclass(frozen=True)
class FleetChargeback:
    """Statements, and what they stand on. `totals` of each cost column: the bill exactly, charged, rounding, and the difference, 0.

    `start` and `end` are those of the month, else of what the books know. `cost_source` is the bill, or price × installed time in
    the kind of money `basis`. `tag_coverage_share` is the part of the cost that has all its names. `closing` is how the books keep
    it, once closed, and `replaces` the earlier closing of its month. What is of the fleet is empty or None where one team reads.
    """

    month: str | None
    start: datetime
    end: datetime
    currency: str
    policy: Mapping[str, str]
    by: tuple[str, ...]
    cost_source: str
    basis: str | None
    statements: tuple[Statement, ...]
    spreads: tuple[SpreadPool, ...]
    totals: Mapping[str, ColumnTotal]
    coverage_share: Decimal | None
    tag_coverage_share: Decimal | None
    unpriced_gpu_hours: Decimal | None
    remarks: tuple[str, ...]
    closing: str | None = None
    replaces: str | None = None


@dataclass(frozen=True)
class ChargeQuestion:
    """A request for statements by which names, of which month (None: all the books know), of which currency's lines.

    The month is one of `zone`, and ends after the day `until` where one is given.
    """

    by: tuple[str, ...]
    month: str | None
    currency: str | None
    policy: ChargebackPolicy
    zone: tzinfo = UTC
    until: date | None = None

    def __post_init__(self) -> None:
        if not self.by:
            raise InputError("statements are by at least one name; write --by team")
        for name in self.by:
            if name not in OWNERS:
                raise no_such("name of owners", name, OWNERS)
        if len(set(self.by)) < len(self.by):
            raise InputError(f"--by {','.join(self.by)} names one of them twice")

    @property
    def window(self) -> Window | None:
        """The month, in instants."""
        if self.month is None:
            return None
        window = read_month(self.month, self.zone)
        if self.until is None:
            return window
        end = milliseconds(datetime.combine(self.until + timedelta(1), datetime.min.time(), self.zone))
        return replace(window, end_ms=min(window.end_ms, end))


ViewLedger = Callable[[Window | None], bool]
"""Names the ledger of a window `window_ledger`, of all time without one; False where the books know nothing of it."""


def charge_fleet(session: Session, question: ChargeQuestion, basis: str, view_ledger: ViewLedger) -> FleetChargeback:
    """Statements that sum to the bill of the month, rounded; without a bill, to price × installed time. Once a session.

    Raises InputError where the books know nothing of the month, or a rate of exchange is missing.
    """
    key = "charged", question, basis, view_ledger
    if key not in session.derived:
        session.derived[key] = _charge_fleet(session, question, basis, view_ledger)
    found: FleetChargeback = session.derived[key]
    return found


def _view_charged(session: Session, question: ChargeQuestion, view_ledger: ViewLedger) -> bool:
    """Name the ledger of a question `window_ledger`, what jobs served divided by who used it where the policy charges them."""
    is_known = view_ledger(question.window)
    if is_known and _say_division(session, question):
        divide_ledger(session, charged=True, by_us=True)
    return is_known


def _say_division(session: Session, question: ChargeQuestion) -> list[str]:
    """How GPUs that serve models are divided, where the policy charges who used them and the books know of anybody."""
    if question.policy.served != "users" or not session.has_rows("served_requests"):
        return []
    return [
        "GPUs of jobs that serve are divided by the tokens that gateways logged of each day (UTC); idle time and what no log has"
        " are their holder's"
    ]


def _charge_fleet(session: Session, question: ChargeQuestion, basis: str, view_ledger: ViewLedger) -> FleetChargeback:
    hours = read_ledger_hours(session, question.by, basis) if _view_charged(session, question, view_ledger) else []
    if view_charges(session, question.window):
        return _charge_bill(session, question, hours)[0]
    lines = _price_ledger(session, question, basis, hours)
    found = charge(lines, question.by, (EFFECTIVE_COST,), question.policy, session.currency)
    unpriced = add_exactly(held.hours for held in hours if held.price is None)
    remarks = _say_division(session, question)
    remarks += [f"{unpriced:,.1f} GPU-hours have no price and are in no statement"] if unpriced else []
    span = question.window.limits if question.window else session.span()
    return _conclude(found, question, lines, span, (PRICES, basis), remarks, unpriced)


def _price_ledger(
    session: Session, question: ChargeQuestion, basis: str, hours: Sequence[LedgerHours]
) -> list[CostLine]:
    """Lines of price × installed time. Raises InputError where there are none, saying why."""
    if question.currency not in (None, session.currency):
        raise InputError(f"the books hold no bill, and are kept in {session.currency}; leave --currency out")
    if not hours:
        raise InputError(_say_nothing(session, question.month))
    if lines := list(price_hours(hours)):
        return lines
    raise InputError(
        f"no bill, and no price of these GPUs in the basis {basis}: import one (`loadfactor import prices …`, or focus,"
        " aws-cur, azure-cost, gcp-billing)"
    )


@dataclass(frozen=True)
class ChargedDays:
    """Statements of a month, the lines they charge, and exact amounts of one column by (pool or "", owner) and days.

    Statements round these.
    """

    found: FleetChargeback
    lines: Sequence[CostLine]
    days: Mapping[tuple[str | None, ...], Mapping[CostDays, Fraction]]


def charge_days(
    session: Session, question: ChargeQuestion, basis: str, view_ledger: ViewLedger, column: str
) -> ChargedDays | None:
    """The statements of a month and the days they are for; None where the books know no cost of it. Once a session.

    Raises InputError where a rate of exchange is missing.
    """
    key = "charged days", question, basis, view_ledger, column
    if key not in session.derived:
        session.derived[key] = _charge_days(session, question, basis, view_ledger, column)
    found: ChargedDays | None = session.derived[key]
    return found


def _charge_days(
    session: Session, question: ChargeQuestion, basis: str, view_ledger: ViewLedger, column: str
) -> ChargedDays | None:
    window = question.window or Window(*session.span(), question.zone)
    hours = read_ledger_hours(session, question.by, basis) if _view_charged(session, question, view_ledger) else []
    if not view_charges(session, question.window):
        lines = list(price_hours(hours))
        if not lines:
            return None
        dated = [
            (next(price_hours([held])), CostDays(held.day, held.day, False, False))
            for held in read_ledger_hours(session, question.by, basis, window)
            if held.price is not None
        ]
        found = charge_fleet(session, question, basis, view_ledger)
        column = EFFECTIVE_COST
    else:
        first, last = write_charge_days(window)
        days = f"{first} AS first, {last} AS last, coalesce({IS_FIXED}, false) AS is_fixed"
        days += f", coalesce({IS_FIXED} AND ChargeCategory = 'Usage', false) AS recurs"
        found, lines, dated = _charge_bill(session, question, hours, days)
        if column not in found.totals:
            return ChargedDays(found, lines, {})
    return ChargedDays(found, lines, charge_parts(lines, dated, question.by, column, question.policy))


def _charge_bill(
    session: Session, question: ChargeQuestion, hours: Sequence[LedgerHours], days: str = NO_DAYS
) -> tuple[FleetChargeback, list[CostLine], list[tuple[CostLine, CostDays]]]:
    """Statements, the lines they charge, and their costs as lines with days, `days` being SQL for the columns of `CostDays`."""
    currency, relation, reported = choose_currency(session, question.currency)
    remarks = [*reported, *_say_division(session, question)]
    divided = DividedCosts()
    has_gpus = view_sold(session, relation)
    if has_gpus and (session.manifest.of("devices") or "devices" in session.live):
        rules = node_rules()
        view_bill_gpus(session, rules)
        if of_nodes := part_charges(session, "bill_gpus"):
            divided = divide_charges(session, question.by, days)
            share = "all" if rules.gpu_share == 1 else f"{rules.gpu_share:f}"
            remarks.append(
                f"{of_nodes:,} lines of GPUs of known nodes are divided by the ledger's GPU-seconds; of each of them {share} is the"
                " GPUs' cost ([billing] gpu_share)"
            )
        relation = BESIDE_GPUS
    elif has_gpus:  # of no node that the ledger knows
        session.create_view(GPU_KINDS, f"SELECT * REPLACE (sold IS NOT NULL AS is_gpu) FROM {SOLD}")
        relation = GPU_KINDS
    sums = sum_charges(session, question.by, relation, days)
    rows = sum(found.rows for found in sums)
    lacking = {cost: sum(found.lacking[cost] for found in sums) for cost in COSTS}
    of_gpus = (*divided.by_state.values(), *(line.costs for line in divided.unseen))
    known = [cost for cost in COSTS if lacking[cost] < rows or any(costs[cost] for costs in of_gpus)]
    columns = tuple(known) or COSTS[:1]
    lines = _merge_lines([found.line for found in sums]) + divided.unseen
    lines += _give_costs(hours, divided)
    found = charge(lines, question.by, columns, question.policy, currency)
    remarks += [
        f"{lacking[cost]:,} of {rows:,} lines of the bill do not say {cost}; they add nothing to it"
        for cost in columns
        if lacking[cost]
    ]
    span = question.window.limits if question.window else find_extent(session)
    dated = [*((of.line, CostDays(*of.days)) for of in sums), *divided.dated]
    return _conclude(found, question, lines, span, (BILL, None), remarks, Decimal(0)), lines, dated


def _merge_lines(lines: Iterable[CostLine]) -> list[CostLine]:
    """Lines without hours, those of one owner, pool and kind added up: what they are divided by besides changes nothing."""
    found: dict[tuple[Owner | None, str | None, str], CostLine] = {}
    for line in lines:
        key = line.owner, line.pool, line.kind
        if known := found.get(key):
            line = replace(line, costs={c: EXACT.add(cost, known.costs[c]) for c, cost in line.costs.items()})
        found[key] = line
    return list(found.values())


def _give_costs(hours: Iterable[LedgerHours], divided: DividedCosts) -> Iterator[CostLine]:
    """Hours of the ledger with what bills charge for them: the hours of an owner and state share it, the first of them has it."""
    left: dict[tuple[Owner, str], Costs] = dict(divided.by_state)
    unbilled = {key: read_hours(us / US_PER_S) for key, us in divided.billed_us.items()}
    nothing = dict.fromkeys(COSTS, Decimal(0))
    for held in hours:
        key = held.owner, held.state
        billed = min(unbilled.get(key, Decimal(0)), held.hours)
        unbilled[key] = unbilled.get(key, Decimal(0)) - billed
        yield held.cost_as(left.pop(key, nothing), billed)
    for (owner, state), cost in left.items():  # of seconds too few to be an hour's billionth
        pool = state if state in ("unallocated", "down") else None
        yield CostLine(cost, None if pool else owner, pool)


def _conclude(
    found: Chargeback,
    question: ChargeQuestion,
    lines: Sequence[CostLine],
    span: Span,
    source: tuple[str, str | None],
    remarks: Iterable[str],
    unpriced: Decimal,
) -> FleetChargeback:
    held = [line.hours for line in lines if line.pool is None]
    total, unobserved = (add_exactly(getattr(own, name) for own in held) for name in ("total", "unobserved"))
    column = choose_column(found.totals)
    return FleetChargeback(
        month=question.month,
        start=instant(span[0]).astimezone(question.zone),
        end=instant(span[1]).astimezone(question.zone),
        currency=found.currency,
        policy=question.policy.words,
        by=question.by,
        cost_source=source[0],
        basis=source[1],
        statements=found.statements,
        spreads=found.spreads,
        totals={
            name: replace(of, bill=shorten(of.bill), rounding=shorten(of.rounding)) for name, of in found.totals.items()
        },
        coverage_share=round((total - unobserved) / total, 6) if total else None,
        tag_coverage_share=_round(measure_tag_coverage(lines, column)),
        unpriced_gpu_hours=unpriced,
        remarks=tuple(remarks),
    )


def _round(share: Decimal | None) -> Decimal | None:
    return None if share is None else round(share, 6)


def _say_nothing(session: Session, month: str | None) -> str:
    of = f"of {month}" if month else "yet"
    return (
        f"the books in {session.name} know no bill and no GPU-hours {of}; import a bill (focus, aws-cur, azure-cost,"
        " gcp-billing) or samples and prices"
    )
