"""Chargeback of a fleet: the bill of a month, or without one price × installed time, as statements of owners and pools.

Lines of bills that are GPUs of known nodes, divided over what the ledger says these GPUs did in their charge periods.

What a line costs goes to holders and states by GPU-seconds; GPU-hours billed beyond those of the ledger are unobserved. Parts are
differences of rounded running sums, so those of a line sum to it exactly, however many they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.units import MS_PER_HOUR, S_PER_HOUR, US_PER_S
from loadfactor.books.charging.bill_lines import choose_currency, find_extent, read_month, sum_charges, view_charges
from loadfactor.books.charging.billed_prices import node_rules
from loadfactor.books.charging.instances import SOLD, view_bill_gpus, view_sold
from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.metrics.query.calendar import instant
from loadfactor.money.chargeback import charge
from loadfactor.money.currency import EXACT, add_exactly
from loadfactor.money.lines import (
    Chargeback,
    ChargedHours,
    ColumnTotal,
    CostLine,
    Costs,
    Owner,
    SpreadPool,
    Statement,
    measure_tag_coverage,
    read_hours,
)
from loadfactor.settings.money import ChargebackPolicy
from loadfactor.store.session import Session
from loadfactor.tables.charges import COSTS
from loadfactor.tables.schema import DIMENSIONS, Span

Expr = Any
EFFECTIVE_COST = "EffectiveCost"
"""The one column of cost that books without a bill know."""


@dataclass(frozen=True)
class LedgerHours:
    """GPU-hours of one owner (or nobody) in one state at one price; None where no price is known."""

    owner: Owner
    state: str
    price: Decimal | None
    hours: Decimal
    effective: Decimal

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

    def cost_as(self, costs: dict[str, Decimal]) -> CostLine:
        return CostLine(costs, None if self.pool else self.owner, self.pool, "gpu", self.charged_hours)


def read_ledger_hours(session: Session, by: Sequence[str], basis: str) -> list[LedgerHours]:
    """Sums of `window_ledger` by owner, state and price. GPU-seconds are added up as whole microseconds, in any order alike."""
    sql = recall(
        f"ledger hours {by} {basis}", lambda: {"hours": expressions().write_sql(_sum_hours(tuple(by), basis))}
    )["hours"]
    return [
        LedgerHours(
            tuple(owner),
            state,
            None if price is None else Decimal(str(price)),
            read_hours(held_us / US_PER_S),
            read_hours(effective_us / US_PER_S),
        )
        for *owner, state, price, held_us, effective_us in session.raw.execute(f"{sql} ORDER BY ALL").fetchall()
    ]


def price_hours(hours: Iterable[LedgerHours]) -> Iterator[CostLine]:
    """Price × hours; hours without a price are left out, for their cost is unknown."""
    for held in hours:
        if held.price is not None:
            yield held.cost_as({EFFECTIVE_COST: EXACT.multiply(held.hours, held.price)})


def _sum_hours(by: tuple[str, ...], basis: str) -> Expr:
    import ibis

    from loadfactor.ledger.columns import ACTIVITIES
    from loadfactor.ledger.states import measures
    from loadfactor.ledger.steps import ledger_columns
    from loadfactor.tables.schema import DIMENSIONS

    book = ibis.table(ledger_columns(), name="window_ledger")
    known = measures(book)
    effective = sum(
        (known[f"effective_{kind.basis}_s"] for kind in ACTIVITIES[1:]), known[f"effective_{ACTIVITIES[0].basis}_s"]
    )
    rows = book.select(
        **{name: book[DIMENSIONS[name]] for name in by},
        state=book.state,
        price=book[f"price_per_gpu_hour_{basis}"],
        held_us=(book.gpu_s * US_PER_S).round().cast("int64"),
        effective_us=(effective * US_PER_S).round().cast("int64"),
    )
    return rows.group_by(*by, "state", "price").aggregate(
        held_us=rows.held_us.sum(), effective_us=rows.effective_us.sum()
    )


OF_GPUS, BESIDE_GPUS = "gpu_costs", "other_costs"
"""Relations of rows: costs of GPUs of known nodes; all other costs, what such a row costs beyond its GPUs among them."""
_UNSEEN: Final = "unseen"
_EXACT: Final = "DECIMAL(38, 18)"


@dataclass(frozen=True)
class DividedCosts:
    """Costs by owner and state of the ledger, and lines of what was billed and not seen."""

    by_state: dict[tuple[Owner, str], dict[str, Decimal]]
    unseen: list[CostLine]


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


def divide_charges(session: Session, by: Sequence[str]) -> DividedCosts:
    """The costs of `OF_GPUS` over the rows of `window_ledger`, by GPU-seconds of each node in each charge period."""
    session.materialize("billed_gpus", _sum_billed())
    divided = DividedCosts({}, [])
    for row in session.raw.execute(_write_division(by)).fetchall():
        owner, (state, rate, unseen_us), parts = tuple(row[: len(by)]), row[len(by) : len(by) + 3], row[len(by) + 3 :]
        worth = Decimal(1) if rate is None else Decimal(rate)
        costs = {cost: EXACT.multiply(part or Decimal(0), worth) for cost, part in zip(COSTS, parts, strict=True)}
        if state == _UNSEEN:
            divided.unseen.append(
                CostLine(costs, None, "unobserved", "gpu", ChargedHours(read_hours(unseen_us / US_PER_S)))
            )
        else:
            before = divided.by_state.setdefault((owner, state), dict.fromkeys(COSTS, Decimal(0)))
            divided.by_state[owner, state] = {cost: EXACT.add(before[cost], costs[cost]) for cost in COSTS}
    return divided


def _sum_billed() -> str:
    """SQL: what was billed of a node in a charge period."""
    return f"""
    SELECT row_number() OVER () AS id, * FROM (
      SELECT node, rate, ChargePeriodStart AS start_ms,
        greatest(coalesce(ChargePeriodEnd, 0), ChargePeriodStart + 1) AS end_ms,
        sum(round(coalesce(gpu_hours, 0) * {S_PER_HOUR * US_PER_S})::HUGEINT) AS billed_us,
        {", ".join(f"coalesce(sum({cost}), 0)::{_EXACT} AS {cost}" for cost in COSTS)}
      FROM {OF_GPUS} GROUP BY ALL)"""


def _write_division(by: Sequence[str]) -> str:
    """SQL: costs by owner and state. The order of parts is that of owners and states, so the answer is the same every time."""
    names = [f'"{DIMENSIONS[name]}"' for name in by]
    owner, nobody = ", ".join(names), ", ".join(f"NULL AS {name}" for name in names)
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
    summing AS (SELECT id, {owner}, state, unseen_us, upto, rate, {running} FROM placed JOIN billed_gpus USING (id)),
    parts AS (
      SELECT {owner}, state, rate, unseen_us, {parts} FROM summing WINDOW line AS (PARTITION BY id ORDER BY {owner}, state))
    SELECT {owner}, state, rate, sum(unseen_us), {", ".join(f"sum({cost})" for cost in COSTS)}
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
    it, once closed, and `replaces` the earlier closing of its month.
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
    unpriced_gpu_hours: Decimal
    remarks: tuple[str, ...]
    closing: str | None = None
    replaces: str | None = None


@dataclass(frozen=True)
class ChargeQuestion:
    """A request for statements by which names, of which month (None: all the books know), of which currency's lines."""

    by: tuple[str, ...]
    month: str | None
    currency: str | None
    policy: ChargebackPolicy

    def __post_init__(self) -> None:
        if not self.by:
            raise InputError("statements are by at least one name; write --by team")
        for name in self.by:
            if name not in OWNERS:
                raise no_such("name of owners", name, OWNERS)
        if len(set(self.by)) < len(self.by):
            raise InputError(f"--by {','.join(self.by)} names one of them twice")

    @property
    def span(self) -> Span | None:
        """The month, in instants."""
        return read_month(self.month) if self.month is not None else None


def charge_fleet(
    session: Session, question: ChargeQuestion, basis: str, view_ledger: Callable[[Span | None], bool]
) -> FleetChargeback:
    """Statements that sum to the bill of the month, rounded; without a bill, to price × installed time.

    `view_ledger` names the ledger of a span `window_ledger`, and says whether there is any. Raises InputError where the books know
    nothing of the month, or a rate of exchange is missing.
    """
    hours = read_ledger_hours(session, question.by, basis) if view_ledger(question.span) else []
    if view_charges(session, question.span):
        return _charge_bill(session, question, hours)
    if question.currency not in (None, session.currency):
        raise InputError(f"the books hold no bill, and are kept in {session.currency}; leave --currency out")
    lines = list(price_hours(hours))
    if not hours:
        raise InputError(_say_nothing(session, question.month))
    if not lines:
        raise InputError(
            f"no bill, and no price of these GPUs in the basis {basis}: import one (`loadfactor import prices …`, or focus,"
            " aws-cur, azure-cost, gcp-billing)"
        )
    found = charge(lines, question.by, (EFFECTIVE_COST,), question.policy, session.currency)
    unpriced = add_exactly(held.hours for held in hours if held.price is None)
    remarks = [f"{unpriced:,.1f} GPU-hours have no price and are in no statement"] if unpriced else []
    span = question.span or session.span()
    return _conclude(found, question, lines, span, (PRICES, basis), remarks, unpriced)


def _charge_bill(session: Session, question: ChargeQuestion, hours: Sequence[LedgerHours]) -> FleetChargeback:
    currency, relation, reported = choose_currency(session, question.currency)
    remarks = list(reported)
    divided = DividedCosts({}, [])
    has_gpus = view_sold(session, relation)
    if has_gpus and (session.manifest.of("devices") or "devices" in session.live):
        rules = node_rules()
        view_bill_gpus(session, rules)
        if of_nodes := part_charges(session, "bill_gpus"):
            divided = divide_charges(session, question.by)
            share = "all" if rules.gpu_share == 1 else f"{rules.gpu_share:f}"
            remarks.append(
                f"{of_nodes:,} lines of GPUs of known nodes are divided by the ledger's GPU-seconds; of each of them {share} is the"
                " GPUs' cost ([billing] gpu_share)"
            )
        relation = BESIDE_GPUS
    elif has_gpus:  # of no node that the ledger knows
        session.create_view(GPU_KINDS, f"SELECT * REPLACE (sold IS NOT NULL AS is_gpu) FROM {SOLD}")
        relation = GPU_KINDS
    sums = sum_charges(session, question.by, relation)
    rows = sum(found.rows for found in sums)
    lacking = {cost: sum(found.lacking[cost] for found in sums) for cost in COSTS}
    of_gpus = (*divided.by_state.values(), *(line.costs for line in divided.unseen))
    known = [cost for cost in COSTS if lacking[cost] < rows or any(costs[cost] for costs in of_gpus)]
    columns = tuple(known) or COSTS[:1]
    lines = [found.line for found in sums] + divided.unseen
    lines += _give_costs(hours, divided.by_state)
    found = charge(lines, question.by, columns, question.policy, currency)
    remarks += [
        f"{lacking[cost]:,} of {rows:,} lines of the bill do not say {cost}; they add nothing to it"
        for cost in columns
        if lacking[cost]
    ]
    span = question.span or find_extent(session)
    return _conclude(found, question, lines, span, (BILL, None), remarks, Decimal(0))


def _give_costs(hours: Iterable[LedgerHours], costs: Mapping[tuple[Owner, str], Costs]) -> Iterator[CostLine]:
    """Hours of the ledger with what bills charge for them: the hours of an owner and state share it, the first of them has it."""
    left = dict(costs)
    nothing = dict.fromkeys(COSTS, Decimal(0))
    for held in hours:
        yield held.cost_as(left.pop((held.owner, held.state), nothing))
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
    column = next(iter(found.totals))
    return FleetChargeback(
        month=question.month,
        start=instant(span[0]),
        end=instant(span[1]),
        currency=found.currency,
        policy=question.policy.words,
        by=question.by,
        cost_source=source[0],
        basis=source[1],
        statements=found.statements,
        spreads=found.spreads,
        totals={
            name: replace(of, bill=_shorten(of.bill), rounding=_shorten(of.rounding))
            for name, of in found.totals.items()
        },
        coverage_share=round((total - unobserved) / total, 6) if total else None,
        tag_coverage_share=_round(measure_tag_coverage(lines, column)),
        unpriced_gpu_hours=unpriced,
        remarks=tuple(remarks),
    )


def _round(share: Decimal | None) -> Decimal | None:
    return None if share is None else round(share, 6)


def _shorten(amount: Decimal) -> Decimal:
    """The same amount without zeros at its end.

    >>> _shorten(Decimal("12.500000000000000000")), _shorten(Decimal("0E-18"))
    (Decimal('12.5'), Decimal('0'))
    """
    text = f"{amount:f}"
    return Decimal(text.rstrip("0").rstrip(".") or "0") if "." in text else Decimal(text)


def _say_nothing(session: Session, month: str | None) -> str:
    of = f"of {month}" if month else "yet"
    return (
        f"the books in {session.folder} know no bill and no GPU-hours {of}; import a bill (focus, aws-cur, azure-cost,"
        " gcp-billing) or samples and prices"
    )
