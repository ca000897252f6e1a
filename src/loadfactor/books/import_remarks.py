"""What an import is checked by: the control total of a bill, prices that match no GPU, and what work says was made."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from loadfactor.money.currency import shorten
from loadfactor.store.sample_files import read
from loadfactor.store.session import Session
from loadfactor.store.store import Store
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.work import PROGRESS

_TOTALED = ("BilledCost", "EffectiveCost")


@dataclass(frozen=True)
class ControlTotal:
    """Lines of a bill in one month (UTC) of one account in one currency, and their costs; None: no line says that cost."""

    month: str
    account: str | None
    currency: str | None
    lines: int
    billed_cost: Decimal | None
    effective_cost: Decimal | None


@dataclass(frozen=True)
class UnmatchedPrice:
    """A price that no GPU of the books has: whose it is, in the words of its row."""

    of: str
    basis: str
    price_per_gpu_hour: float
    currency: str | None


@dataclass(frozen=True)
class MadeByImport:
    """What an import says that was made of a unit: kept, and lost. `is_estimate`: some of it is a rate × time."""

    unit: str
    kept: float
    lost: float
    is_estimate: bool


@dataclass(frozen=True)
class ImportRemarks:
    """Control totals of an import, by month, account and currency, its prices that match no GPU, and what it says was made."""

    control_totals: Sequence[ControlTotal] = ()
    unmatched_prices: Sequence[UnmatchedPrice] = ()
    made: Sequence[MadeByImport] = ()


def find_remarks(store: Store, number: int) -> ImportRemarks:
    """Read what an import brought of bills and prices."""
    with store.read() as session:
        return ImportRemarks(_add_up(session, number), _list_unmatched(session, number), _list_made(session, number))


def _read_rows(session: Session, table: str, number: int) -> str | None:
    """SQL: the rows of a table that an import has just brought; None where there are none."""
    own = [file for file in session.manifest.files if file.table == table and file.holds_import(number)]
    if logs := [file for file in own if file.is_log]:
        return f"(SELECT * FROM {read(session.paths(logs))} WHERE import_no = {number})"
    files = [file for file in own if file.imports == (number, number)]
    return f"(SELECT * FROM {read(session.paths(files))})" if files else None


def _add_up(session: Session, number: int) -> list[ControlTotal]:
    rows = _read_rows(session, CHARGES.name, number)
    if rows is None:
        return []
    month = "strftime(make_timestamp(ChargePeriodStart * 1000), '%Y-%m')"
    sums = ", ".join(f"sum({column})" for column in _TOTALED)
    sql = (
        f"SELECT {month}, BillingAccountId, BillingCurrency, count(*), {sums} FROM {rows} GROUP BY 1, 2, 3 ORDER BY ALL"
    )
    return [
        ControlTotal(*row, *(None if cost is None else shorten(Decimal(cost)) for cost in costs))
        for *row, costs in ((*found[:4], found[4:]) for found in session.raw.execute(sql).fetchall())
    ]


def _list_made(session: Session, number: int) -> list[MadeByImport]:
    rows = _read_rows(session, PROGRESS.name, number)
    if rows is None:
        return []
    sums = ", ".join(f"coalesce(sum(amount) FILTER ({which} coalesce(kept, true)), 0)" for which in ("", "NOT"))
    sql = f"SELECT unit, {sums}, bool_or(known_from IS NOT NULL) FROM {rows} GROUP BY unit ORDER BY unit"
    return [MadeByImport(*row) for row in session.raw.execute(sql).fetchall()]


def _list_unmatched(session: Session, number: int) -> list[UnmatchedPrice]:
    """Prices of an import that apply to no GPU that the books know; nothing where they know none yet."""
    rows = _read_rows(session, "prices", number)
    if rows is None or not session.has_rows("devices"):
        return []
    session.view_table("priced_devices", "devices")
    same = " AND ".join(f"(p.{name} IS NULL OR p.{name} = d.{name})" for name in ("accelerator", "pool", "device_id"))
    meet = "coalesce(p.from_utc < d.to_utc, true) AND coalesce(p.to_utc > d.from_utc, true)"
    sql = f"""SELECT concat_ws(', ', accelerator, pool, device_id), basis, price_per_gpu_hour, currency FROM {rows} p
      WHERE NOT EXISTS (SELECT 1 FROM priced_devices d WHERE {same} AND {meet}) ORDER BY ALL"""
    return [UnmatchedPrice(of or "any GPU", *rest) for of, *rest in session.raw.execute(sql).fetchall()]
