"""Who pays for a fleet: the bill of a month, or without one price × installed time, as statements of owners and pools."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Final

from loadfactor.base.errors import InputError, no_such
from loadfactor.books.charging.bill_lines import find_extent, sum_charges, view_charges
from loadfactor.books.charging.billed_prices import node_rules
from loadfactor.books.charging.currencies import choose_currency
from loadfactor.books.charging.instances import SOLD, view_bill_gpus, view_sold
from loadfactor.books.charging.ledger_lines import EFFECTIVE_COST, LedgerHours, price_hours, read_ledger_hours
from loadfactor.books.charging.months import read_month
from loadfactor.books.charging.node_division import BESIDE_GPUS, DividedCosts, divide_charges, part_charges
from loadfactor.metrics.query.calendar import instant
from loadfactor.money.chargeback import charge
from loadfactor.money.currency import add_exactly
from loadfactor.money.lines import CostLine, Costs, Owner
from loadfactor.money.statements import Chargeback, ColumnTotal, SpreadPool, Statement
from loadfactor.money.tag_coverage import measure_tag_coverage
from loadfactor.settings.money import ChargebackPolicy
from loadfactor.store.session import Session
from loadfactor.tables.charges import COSTS
from loadfactor.tables.schema import Span

OWNERS: Final = ("team", "project", "experiment", "user", "purpose")
"""What statements can be by."""
GPU_KINDS: Final = "charges_with_kinds"
BILL, PRICES = "bill", "price × installed time"


@dataclass(frozen=True)
class FleetChargeback:
    """Who pays, and what that stands on. `totals` of each cost column: the bill exactly, charged, rounding, and the difference, 0.

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
    """What is asked for: statements by which names, of which month (None: all the books know), of which currency's lines."""

    by: tuple[str, ...]
    month: str | None
    currency: str | None
    policy: ChargebackPolicy

    def __post_init__(self) -> None:
        """Refuse names that nothing is by."""
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

    `view_ledger` names the ledger of a span `asked_ledger`, and says whether there is any. Raises InputError where the books know
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
    currency, relation, said = choose_currency(session, question.currency)
    remarks = list(said)
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
