"""Differences between bills and the books: GPUs billed and never seen, seen and never billed, hours and prices that differ.

Compared is the time that the books, the bills of GPUs and the month requested share. Seen are GPU-hours that are installed in the
books, held or not. Charges that reach beyond that time count in proportion.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.booking import book
from loadfactor.books.charging.bill_lines import read_month
from loadfactor.books.charging.billed_prices import has_bills, view_billed_lines
from loadfactor.books.charging.instances import UNKNOWN
from loadfactor.books.known_span import has_only_bills, say_no_gpus
from loadfactor.settings.config import settings
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import BASES

NEVER_SEEN, NEVER_BILLED, HOURS, PRICE, UNSAID = (
    "billed and never seen",
    "seen and never billed",
    "hours differ",
    "price differs from the contract",
    "GPUs of the bill not known",
)
"""Kinds of differences."""
LEAST_HOURS: Final = 1.0
LEAST_SHARE: Final = 0.01
"""Hours differ where they do by more than both: GPU-hours, and a part of those billed."""
LEAST_PRICE_SHARE: Final = 0.001
"""Prices differ where they do by more than this part: bills round what is agreed."""
DO: Final = {
    NEVER_SEEN: "import what measures or lists it, say in [billing] nodes which node it is, or end it where nobody needs it",
    NEVER_BILLED: "import the bill it is on, say in [billing] nodes which resource it is, or price it with [[owned]]",
    HOURS: "look when it was started and ended; billed and not seen: idle before its exporter starts, or without one",
    PRICE: "ask the provider; or import the price that holds now (basis contracted)",
    UNSAID: "the catalog lacks this type, or the line does not say how long: its cost makes no price of GPU-hours",
}
"""Advice for each kind of difference."""


@dataclass(frozen=True)
class Difference:
    """One thing that a bill and the books say differently of a node or a resource; `amount` in the currency of the comparison.

    The amount is what was billed for GPUs that nobody saw, what GPUs that nobody billed cost by the books' own prices,
    (billed − seen hours) × the effective price, or (contracted − agreed price) × billed hours.
    """

    kind: str
    of: str
    billed_gpu_hours: float | None
    seen_gpu_hours: float | None
    billed_price: float | None
    agreed_price: float | None
    amount: float | None
    do: str

    @property
    def net_amount(self) -> float | None:
        """The amount with its direction: above 0 where more was billed than the books know, below where less was."""
        return None if self.amount is None else -self.amount if self.kind == NEVER_BILLED else self.amount

    @property
    def direction(self) -> str:
        """Which of the two has more."""
        net = self.net_amount
        return "" if not net else "billed more" if net > 0 else "billed less"


@dataclass(frozen=True)
class BillComparison:
    """Bills of GPUs beside the books, from `from_ms` to `to_ms`; differences with the largest amount first."""

    from_ms: int
    to_ms: int
    currency: str
    gpu_share: str
    billed_gpu_hours: float
    seen_gpu_hours: float
    billed_cost: float
    differences: tuple[Difference, ...]

    @property
    def amount(self) -> float:
        """Gross: the amounts of all differences, whichever way they go."""
        return sum(abs(difference.amount or 0.0) for difference in self.differences)

    @property
    def net_amount(self) -> float:
        """Net: what was billed more than the books know, less what was billed less; below 0 where less was billed."""
        return sum(difference.net_amount or 0.0 for difference in self.differences)


@dataclass(frozen=True)
class _Billed:
    name: str
    is_node: bool
    gpu_hours: float
    unsaid: int
    effective: float | None
    contracted: float | None
    listed: float | None


@dataclass(frozen=True)
class _Seen:
    gpu_hours: float
    contracted_price: float | None
    list_price: float | None
    cost: float | None
    is_owned: bool


def compare_bills(session: Session, month: str | None = None, zone: tzinfo = UTC) -> BillComparison:
    """Bills of GPUs beside the books, in a month of a zone, 2026-10, or all of their time.

    Raises InputError where there is no bill of GPUs, or none of that time.
    """
    if not has_bills(session):
        raise InputError("the books hold no bills; import one: loadfactor import focus FILE")
    if has_only_bills(session):
        raise InputError(say_no_gpus(session))
    start, end = session.span() if month is None else read_month(month, zone).limits
    view_billed_lines(session, [(start, end)])
    session.materialize("billed_gpus", "SELECT * FROM billed_lines WHERE sold IS NOT NULL")
    first, last = session.fetch_one(
        "SELECT min(ChargePeriodStart), max(coalesce(ChargePeriodEnd, ChargePeriodStart)) FROM billed_gpus"
    )
    start, end = max(start, session.span()[0], first or 0), min(end, session.span()[1], last or 0)
    if start >= end:
        raise InputError("no bill charges for GPUs in time that the books know; `loadfactor bill compare` needs both")
    currency, billed = _sum_billed(session, start, end)
    seen = _sum_seen(session, start, end)
    comparable = currency == session.currency
    found = sorted(_compare(billed, seen, comparable), key=lambda d: (-abs(d.amount or 0.0), d.kind, d.of))
    return BillComparison(
        start,
        end,
        currency,
        settings().billing.share_words,
        sum(line.gpu_hours for line in billed),
        sum(node.gpu_hours for node in seen.values()),
        sum(line.effective or 0.0 for line in billed),
        tuple(found),
    )


def _compare(billed: list[_Billed], seen: dict[str, _Seen], comparable: bool) -> Iterator[Difference]:
    for line in billed:
        node = seen.get(line.name) if line.is_node else None
        hours = None if node is None else node.gpu_hours
        if line.unsaid:
            yield Difference(UNSAID, line.name, None, hours, None, None, line.effective, DO[UNSAID])
        elif node is None:
            yield Difference(NEVER_SEEN, line.name, line.gpu_hours, 0.0, None, None, line.effective, DO[NEVER_SEEN])
        else:
            yield from _compare_node(line, node, comparable)
    names = {line.name for line in billed}
    for name, node in seen.items():
        if name not in names and not node.is_owned and node.gpu_hours:
            cost = node.cost if comparable else None
            yield Difference(NEVER_BILLED, name, 0.0, node.gpu_hours, None, None, cost, DO[NEVER_BILLED])


def _compare_node(line: _Billed, node: _Seen, comparable: bool) -> Iterator[Difference]:
    missing = line.gpu_hours - node.gpu_hours
    if abs(missing) > max(LEAST_HOURS, LEAST_SHARE * abs(line.gpu_hours)):
        price = line.effective / line.gpu_hours if line.effective is not None and line.gpu_hours > 0 else None
        amount = None if price is None else missing * price
        yield Difference(HOURS, line.name, line.gpu_hours, node.gpu_hours, price, None, amount, DO[HOURS])
    if line.contracted is None or line.gpu_hours <= 0:
        return
    price = line.contracted / line.gpu_hours
    agreed = node.contracted_price if comparable else None
    if agreed is None:  # nothing dearer than public prices was agreed
        public = [
            p for p in (line.listed and line.listed / line.gpu_hours, node.list_price if comparable else None) if p
        ]
        agreed = max(public) if public and price > max(public) else None
    if agreed is not None and abs(price - agreed) > LEAST_PRICE_SHARE * abs(agreed):
        amount = (price - agreed) * line.gpu_hours
        yield Difference(PRICE, line.name, line.gpu_hours, node.gpu_hours, price, agreed, amount, DO[PRICE])


def _sum_billed(session: Session, start: int, end: int) -> tuple[str, list[_Billed]]:
    """The currency in which most lines are, and what was billed in it by node or resource."""
    (currency,) = session.fetch_one(
        f"SELECT coalesce(mode(BillingCurrency), {quote(session.currency)}) FROM billed_gpus"
    )
    until = "coalesce(ChargePeriodEnd, ChargePeriodStart)"
    weight = (
        f"if({until} > ChargePeriodStart, greatest(least({until}, {end}) - greatest(ChargePeriodStart, {start}), 0)"
        f" / ({until} - ChargePeriodStart), (ChargePeriodStart >= {start} AND ChargePeriodStart < {end})::INT)"
    )
    costs = ", ".join(
        f"if(count({cost}) = count(*), sum({cost}::DOUBLE * coalesce(gpu_share, 1)::DOUBLE * weight), NULL)"
        for cost in ("EffectiveCost", "ContractedCost", "ListCost")
    )
    unsaid = f"sold = '{UNKNOWN}' OR gpu_hours IS NULL"
    rows = session.raw.execute(
        f"""SELECT coalesce(resource, billed_type, '(of no resource)'), node IS NOT NULL, coalesce(sum(gpu_hours * weight), 0),
          count(*) FILTER ({unsaid}), {costs}
        FROM (SELECT *, {weight} AS weight FROM billed_gpus WHERE BillingCurrency IS NOT DISTINCT FROM {quote(currency)})
        WHERE weight > 0
        GROUP BY 1, 2 ORDER BY 1, 2"""
    ).fetchall()
    return currency, [_Billed(*row) for row in rows]


def _sum_seen(session: Session, start: int, end: int) -> dict[str, _Seen]:
    """Installed GPU-hours of each node by the books, and prices that bills have no part in."""
    book(session, ((start, end),), until="segments", with_bills=False)
    span = "share * (to_utc - from_utc)"
    any_price = f"coalesce({', '.join(f'price_per_gpu_hour_{basis}' for basis in BASES)})"

    def price(basis: str) -> str:
        column = f"price_per_gpu_hour_{basis}"
        return f"sum({span} * {column}) / sum({span}) FILTER ({column} IS NOT NULL)"

    rows = session.raw.execute(
        f"""SELECT node, sum({span}) / {MS_PER_HOUR}, {price("contracted")}, {price("list")},
          sum({span} * {any_price}) / {MS_PER_HOUR}, bool_and(price_per_gpu_hour_owned IS NOT NULL)
        FROM segments WHERE node IS NOT NULL GROUP BY node ORDER BY node"""
    ).fetchall()
    return {row[0]: _Seen(*row[1:]) for row in rows}
