"""Lines of bills, added up by owner, pool and kind in SQL: millions of rows become a few thousand sums, exact to the last digit.

Which month a row belongs to follows from the start of its charge period, so a correction restates the month it corrects. Months and
days are those of a time zone; charges of whole UTC days keep their dates in every zone, for providers bill by these.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.metrics.query.calendar import Window, milliseconds, write_local_day
from loadfactor.money.currency import EXACT
from loadfactor.money.lines import CostLine
from loadfactor.settings.money import POOLS
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.charges import ACTUAL, AMORTIZED, COSTS
from loadfactor.tables.schema import ALWAYS, DIMENSIONS, Span

ONE_CURRENCY, CONVERTED = "charges_of_one_currency", "converted_charges"


def choose_currency(session: Session, requested: str | None) -> tuple[str, str, tuple[str, ...]]:
    """The currency to charge in, the relation of rows to charge (with columns `rate` and `is_gpu`), and remarks on it.

    With a currency requested only its rows. Raises InputError where there are none, or a rate is missing, naming both.
    """
    found = dict(
        session.raw.execute(
            "SELECT BillingCurrency, count(*) FROM chosen_charges WHERE BillingCurrency IS NOT NULL GROUP BY 1 ORDER BY 1"
        ).fetchall()
    )
    if requested is not None or len(found) <= 1:
        currency = requested or next(iter(found), session.currency)
        if requested is not None and requested not in found:
            raise InputError(f"no bill is in {requested}; there are bills in {', '.join(found) or 'no currency'}")
        within = f"WHERE BillingCurrency IS NULL OR BillingCurrency = '{currency}'"
        session.create_view(
            ONE_CURRENCY, f"SELECT *, NULL::VARCHAR AS rate, false AS is_gpu FROM chosen_charges {within}"
        )
        left = {other: rows for other, rows in found.items() if other != currency}
        reported = ", ".join(f"{rows:,} in {other}" for other, rows in left.items())
        return currency, ONE_CURRENCY, (f"lines of bills in other currencies are left out: {reported}",) if left else ()
    _view_converted(session)
    missing = session.raw.execute(
        f"SELECT BillingCurrency, min(ChargePeriodStart) FROM {CONVERTED}"
        f" WHERE rate IS NULL AND BillingCurrency <> '{session.currency}' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    if missing:
        currency, at_ms = missing[0]
        day = datetime.fromtimestamp(at_ms / MS_PER_S, UTC).date()
        raise InputError(
            f"bills are in {', '.join(found)}, and no rate of {currency} in {session.currency} is known for {day}; import"
            f" exchange_rates (`loadfactor tables` says how), or charge one of them with --currency {currency}"
        )
    foreign = ", ".join(other for other in found if other != session.currency)
    return session.currency, CONVERTED, (f"{foreign} converted at the dated rates that the books hold",)


def _view_converted(session: Session) -> None:
    """Rows with the rate of the day their charge period starts; a rate holds until its end, else until the next one."""
    session.view_table("exchange_rates", "exchange_rates")
    session.materialize(
        "dated_rates",
        f"SELECT currency, coalesce(from_utc, {ALWAYS[0]}) AS start_ms, rate::VARCHAR AS rate, least(coalesce(to_utc,"
        f" {ALWAYS[1]}), lead(coalesce(from_utc, {ALWAYS[0]}), 1, {ALWAYS[1]}) OVER (PARTITION BY currency ORDER BY from_utc"
        " NULLS FIRST)) AS end_ms FROM exchange_rates",
    )
    session.create_view(
        CONVERTED,
        "SELECT c.*, r.rate, false AS is_gpu FROM chosen_charges c LEFT JOIN dated_rates r ON r.currency = c.BillingCurrency"
        " AND c.ChargePeriodStart >= r.start_ms AND c.ChargePeriodStart < r.end_ms"
        f" AND c.BillingCurrency <> '{session.currency}'",
    )


def read_month(month: str, zone: tzinfo = UTC) -> Window:
    """A month of a time zone. Raises InputError where it is none.

    >>> [datetime.fromtimestamp(ms / 1000, UTC).date().isoformat() for ms in read_month("2026-12").limits]
    ['2026-12-01', '2027-01-01']
    """
    found = re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", month)
    if found is None or found[1] < "1970":
        raise InputError(f"--month {month!r} is no month; write --month 2026-10")
    year, number = int(found[1]), int(found[2])
    start = datetime(year, number, 1, tzinfo=zone)
    end = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=zone)
    return Window(milliseconds(start), milliseconds(end), zone)


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
"""Patterns of a row's category, service and meter for each kind; of several the first."""
_PERIOD: Final = "concat_ws(chr(31), coalesce(ProviderName, ''), coalesce(BillingAccountId, ''), BillingPeriodStart)"


@dataclass(frozen=True)
class ChargeSum:
    """Rows of one owner, pool and kind, in one currency at one exchange rate: how many, and how many of them lack each cost.

    `days` are the values of the columns of days that were requested.
    """

    line: CostLine
    rows: int
    lacking: Mapping[str, int]
    days: tuple[int, int, bool, bool]


EPOCH: Final = date(1970, 1, 1)
_END: Final = "greatest(coalesce(ChargePeriodEnd, ChargePeriodStart + 1), ChargePeriodStart + 1)"
_OF_DATES: Final = (
    f"(ChargePeriodStart % {MS_PER_DAY} = 0 AND (ChargePeriodEnd IS NULL OR ChargePeriodEnd % {MS_PER_DAY} = 0))"
)
"""SQL: a charge of whole UTC days."""


def write_charge_days(window: Window) -> tuple[str, str]:
    """SQL: the first and the last day that a charge is for, in days since 1970-01-01."""
    first, last = "ChargePeriodStart", f"({_END} - 1)"
    if window.zone is UTC or str(window.zone) == "UTC":
        return f"{first} // {MS_PER_DAY}", f"{last} // {MS_PER_DAY}"
    return tuple(  # type: ignore[return-value]
        f"if({_OF_DATES}, {at} // {MS_PER_DAY}, {write_local_day(at, window)})" for at in (first, last)
    )


def view_charges(session: Session, window: Window | None) -> int:
    """Name the rows of a month (of all time, without a window) `chosen_charges`; how many there are.

    Where a period of an account came as actual and as amortized export, BilledCost is that of the first, the other costs those of
    the second.
    """
    session.view_table("charges", "charges")
    within = "true"
    if window is not None:
        days = [name for name, first, _ in window.days() if first >= window.start_ms]
        first, last = ((date.fromisoformat(day) - EPOCH).days for day in (days[0], days[-1]))
        near = (
            f"ChargePeriodStart >= {window.start_ms - MS_PER_DAY} AND ChargePeriodStart < {window.end_ms + MS_PER_DAY}"
        )
        within = f"{near} AND {write_charge_days(window)[0]} BETWEEN {first} AND {last}"
    columns = "*"
    if twofold := _list_twofold_periods(session):
        of_other = {cost: AMORTIZED if cost == "BilledCost" else ACTUAL for cost in COSTS}
        chosen = [
            f"if(x_Dataset = '{other}' AND {_PERIOD} IN ({twofold}), 0, {cost}) AS {cost}"
            for cost, other in of_other.items()
        ]
        columns = f"* REPLACE ({', '.join(chosen)})"
    session.create_view("chosen_charges", f"SELECT {columns} FROM charges WHERE {within}")
    return int(session.fetch_one("SELECT count(*) FROM chosen_charges")[0])


def _list_twofold_periods(session: Session) -> str:
    """Billing periods of accounts of which there are both exports, as a list in SQL."""
    found = session.raw.execute(
        f"SELECT {_PERIOD} AS period FROM charges WHERE x_Dataset IS NOT NULL GROUP BY 1 HAVING count(DISTINCT x_Dataset) > 1"
    ).fetchall()
    return ", ".join(quote(period) for (period,) in found)


def find_extent(session: Session) -> Span:
    """From the first to the last instant that `chosen_charges` charge for."""
    first, last = session.fetch_one(
        "SELECT min(ChargePeriodStart), max(greatest(ChargePeriodStart, coalesce(ChargePeriodEnd, ChargePeriodStart)))"
        " FROM chosen_charges"
    )
    return first, last


NO_DAYS: Final = "0 AS first, 0 AS last, false AS is_fixed, false AS recurs"
"""SQL for the columns of days where none are requested."""
IS_FIXED: Final = """(ChargeCategory = 'Purchase' OR ChargeFrequency IN ('Recurring', 'One-Time')
    OR CommitmentDiscountId IS NOT NULL OR CapacityReservationStatus = 'Unused')"""
"""SQL: a charge that was bound to come, whatever anybody does."""


def sum_charges(session: Session, by: Sequence[str], relation: str, days: str = NO_DAYS) -> list[ChargeSum]:
    """Rows of a relation like `chosen_charges` with `rate` and `is_gpu`, by owner, pool, kind and days; costs × rate, if any."""
    sums = []
    for row in session.raw.execute(_write_sums(by, relation, days)).fetchall():
        owner, rest = tuple(row[: len(by)]), row[len(by) :]
        (pool, kind, rate), of_days, rows, numbers = rest[:3], rest[3:7], rest[7], rest[8:]
        worth = Decimal(1) if rate is None else Decimal(rate)
        costs = {
            cost: EXACT.multiply(amount, worth) if amount else Decimal(0)
            for cost, amount in zip(COSTS, numbers[: len(COSTS)], strict=True)
        }
        lacking = {cost: rows - reported for cost, reported in zip(COSTS, numbers[len(COSTS) :], strict=True)}
        sums.append(ChargeSum(CostLine(costs, None if pool else owner, pool, kind), rows, lacking, of_days))
    return sums


def _write_sums(by: Sequence[str], relation: str, days: str) -> str:
    """SQL: sums by owner, pool and kind. Rows are added up first by what tells pool and kind, which is then looked at once."""
    names = [f'"{DIMENSIONS[name]}"' for name in by]
    tells = ("ServiceCategory", "ServiceName", "SkuMeter", "ChargeCategory")
    stated = f"if(starts_with(x_ChargeType, '{STATED_POOL}'), substr(x_ChargeType, {len(STATED_POOL) + 1}), NULL)"
    sums = ", ".join(f"sum({cost}) AS {cost}, count({cost}) AS reported_{cost}" for cost in COSTS)
    first = f"""
    SELECT {", ".join(names)}, {", ".join(tells)}, rate, {days}, is_gpu, {stated} AS stated,
      coalesce(CommitmentDiscountStatus = 'Unused', false) OR coalesce(CapacityReservationStatus = 'Unused', false) AS unused,
      ResourceId IS NULL AND Tags IS NULL AS bare, count(*) AS rows, {sums}
    FROM {relation} GROUP BY ALL"""
    nobody = " AND ".join(f"{name} IS NULL" for name in names)
    stated = "concat_ws(' ', ServiceCategory, ServiceName, SkuMeter)"
    kinds = " ".join(f"WHEN regexp_matches({stated}, {quote(rule)}) THEN '{kind}'" for kind, rule in _KINDS.items())
    shared = ", ".join(f"'{category}'" for category in _SHARED)
    pool = f"""CASE WHEN stated IN ({", ".join(map(quote, POOLS))}) THEN stated WHEN unused THEN 'unused commitment'
      WHEN NOT ({nobody}) THEN NULL
      WHEN bare OR ChargeCategory IN ({shared}) OR regexp_matches(ServiceName, {quote(_FOR_ALL)}) THEN 'shared'
      ELSE 'untagged' END"""
    kind = f"CASE WHEN is_gpu THEN 'gpu' {kinds} ELSE 'other' END AS kind"
    keys = f"{', '.join(names)}, {pool} AS pool, {kind}, rate, first, last, is_fixed, recurs"
    totals = ", ".join([*(f"sum({cost})" for cost in COSTS), *(f"sum(reported_{cost})" for cost in COSTS)])
    return f"SELECT {keys}, sum(rows), {totals} FROM ({first}) GROUP BY ALL ORDER BY ALL"
