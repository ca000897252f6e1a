"""Lines of bills, added up by owner, pool and kind in SQL: millions of rows become a few thousand sums, exact to the last digit.

Which month a row belongs to follows from the start of its charge period, so a correction restates the month it corrects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from loadfactor.money.currency import EXACT
from loadfactor.money.lines import CostLine
from loadfactor.settings.money import POOLS
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.charges import ACTUAL, AMORTIZED, COSTS
from loadfactor.tables.schema import DIMENSIONS, Span

STATED_POOL: Final = "pool: "
"""How x_ChargeType names the pool of a row that `chargeback --format focus` wrote."""
_SHARED: Final = ("Tax", "Credit", "Adjustment")
"""Categories of charges that serve everybody where no owner is known."""
_FOR_ALL: Final = r"(?i)\bsupport\b|kubernetes|\b(eks|aks|gke)\b"
"""Services that serve everybody: support and control planes."""
_KINDS: Final = {
    "egress": r"(?i)data ?transfer[- ]?out|aws-out-bytes|\begress\b",
    "storage": r"(?i)storage|\bs3\b|amazons3|\befs\b|\bebs\b|\bfsx\b|\bdisks?\b|snapshot|glacier|backup",
    "network": r"(?i)network|bandwidth|load balanc|loadbalanc|cloudfront|\bvpc\b|nat ?gateway|\bdns\b|route 53",
}
"""What tells the kind of a row by its category, service and meter; of several the first."""
_PERIOD: Final = "concat_ws(chr(31), coalesce(ProviderName, ''), coalesce(BillingAccountId, ''), BillingPeriodStart)"


@dataclass(frozen=True)
class ChargeSum:
    """Rows of one owner, pool and kind, in one currency at one exchange rate: how many, and how many of them lack each cost."""

    line: CostLine
    rows: int
    lacking: Mapping[str, int]


def view_charges(session: Session, span: Span | None) -> int:
    """Name the rows of a month (of all time, without a span) `asked_charges`; how many there are.

    Where a period of an account came as actual and as amortized export, BilledCost is that of the first, the other costs those of
    the second.
    """
    session.view_table("charges", "charges")
    within = "true" if span is None else f"ChargePeriodStart >= {span[0]} AND ChargePeriodStart < {span[1]}"
    columns = "*"
    if twofold := _list_twofold_periods(session):
        of_other = {cost: AMORTIZED if cost == "BilledCost" else ACTUAL for cost in COSTS}
        chosen = [
            f"if(x_Dataset = '{other}' AND {_PERIOD} IN ({twofold}), 0, {cost}) AS {cost}"
            for cost, other in of_other.items()
        ]
        columns = f"* REPLACE ({', '.join(chosen)})"
    session.create_view("asked_charges", f"SELECT {columns} FROM charges WHERE {within}")
    return int(session.fetch_one("SELECT count(*) FROM asked_charges")[0])


def _list_twofold_periods(session: Session) -> str:
    """Billing periods of accounts of which there are both exports, as a list in SQL."""
    found = session.raw.execute(
        f"SELECT {_PERIOD} AS period FROM charges WHERE x_Dataset IS NOT NULL GROUP BY 1 HAVING count(DISTINCT x_Dataset) > 1"
    ).fetchall()
    return ", ".join(quote(period) for (period,) in found)


def find_extent(session: Session) -> Span:
    """From the first to the last instant that `asked_charges` charge for."""
    first, last = session.fetch_one(
        "SELECT min(ChargePeriodStart), max(greatest(ChargePeriodStart, coalesce(ChargePeriodEnd, ChargePeriodStart)))"
        " FROM asked_charges"
    )
    return first, last


def sum_charges(session: Session, by: Sequence[str], relation: str) -> list[ChargeSum]:
    """Rows of a relation like `asked_charges` with `rate` and `is_gpu`, by owner, pool and kind; costs × rate, if any."""
    sums = []
    for row in session.raw.execute(_write_sums(by, relation)).fetchall():
        owner, (pool, kind, rate, rows), numbers = tuple(row[: len(by)]), row[len(by) : len(by) + 4], row[len(by) + 4 :]
        worth = Decimal(1) if rate is None else Decimal(rate)
        costs = {
            cost: EXACT.multiply(amount, worth) if amount else Decimal(0)
            for cost, amount in zip(COSTS, numbers[: len(COSTS)], strict=True)
        }
        lacking = {cost: rows - said for cost, said in zip(COSTS, numbers[len(COSTS) :], strict=True)}
        sums.append(ChargeSum(CostLine(costs, None if pool else owner, pool, kind), rows, lacking))
    return sums


def _write_sums(by: Sequence[str], relation: str) -> str:
    """SQL: sums by owner, pool and kind. Rows are added up first by what tells pool and kind, which is then looked at once."""
    names = [f'"{DIMENSIONS[name]}"' for name in by]
    tells = ("ServiceCategory", "ServiceName", "SkuMeter", "ChargeCategory")
    stated = f"if(starts_with(x_ChargeType, '{STATED_POOL}'), substr(x_ChargeType, {len(STATED_POOL) + 1}), NULL)"
    sums = ", ".join(f"sum({cost}) AS {cost}, count({cost}) AS said_{cost}" for cost in COSTS)
    first = f"""
    SELECT {", ".join(names)}, {", ".join(tells)}, rate, is_gpu, {stated} AS stated,
      coalesce(CommitmentDiscountStatus = 'Unused', false) OR coalesce(CapacityReservationStatus = 'Unused', false) AS unused,
      ResourceId IS NULL AND Tags IS NULL AS bare, count(*) AS rows, {sums}
    FROM {relation} GROUP BY ALL"""
    nobody = " AND ".join(f"{name} IS NULL" for name in names)
    told = "concat_ws(' ', ServiceCategory, ServiceName, SkuMeter)"
    kinds = " ".join(f"WHEN regexp_matches({told}, {quote(rule)}) THEN '{kind}'" for kind, rule in _KINDS.items())
    shared = ", ".join(f"'{category}'" for category in _SHARED)
    pool = f"""CASE WHEN stated IN ({", ".join(map(quote, POOLS))}) THEN stated WHEN unused THEN 'unused commitment'
      WHEN NOT ({nobody}) THEN NULL
      WHEN bare OR ChargeCategory IN ({shared}) OR regexp_matches(ServiceName, {quote(_FOR_ALL)}) THEN 'shared'
      ELSE 'untagged' END"""
    keys = f"{', '.join(names)}, {pool} AS pool, CASE WHEN is_gpu THEN 'gpu' {kinds} ELSE 'other' END AS kind, rate"
    totals = ", ".join([*(f"sum({cost})" for cost in COSTS), *(f"sum(said_{cost})" for cost in COSTS)])
    return f"SELECT {keys}, sum(rows), {totals} FROM ({first}) GROUP BY ALL ORDER BY ALL"
