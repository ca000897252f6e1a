"""Prices of owned GPUs: the tables [[owned]] as rows of the price list, by the equations of `plan own`, and the load measured.

A price is per installed GPU-hour, so that the hours of a year cost what the year costs, hours in which a server is down among
them. Where a table asks for it, the load of each UTC month that is complete is the measured one, in whole percents, so that a few
late samples change no price; months to come have that of the last one. What was measured is kept with the books' ledger, so that
readers price as the writer did.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Final

from loadfactor.base.errors import InputError
from loadfactor.base.units import J_PER_KWH, MS_PER_S, PERCENT, S_PER_HOUR
from loadfactor.books.ledger_inputs import OwnedPrice, OwnedPrices, read_inputs, select_ledger
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.planner.economics.ownership import OwnedCost, OwnedServer, compute_owned_cost
from loadfactor.settings.config import settings
from loadfactor.settings.money import OwnedPool
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import ALWAYS, Span, measured_bit

if TYPE_CHECKING:
    from loadfactor.planner.economics.ownership import OwnedServer
    from loadfactor.store.session import Session


_POWER: Final = measured_bit("power_w")


def find_owned_prices(session: "Session") -> OwnedPrices:
    """The prices that hold now: those kept where the settings are as they were, else new ones. Raises InputError."""
    pools = settings().owned
    written, kept = _digest(pools), read_inputs(session.manifest.sources_key).owned
    return kept if kept.written == written else price_pools(pools, measure_loads(session, pools))


def has_owned(session: "Session") -> bool:
    """True where the books know of a GPU that the settings say is owned."""
    some = [select_gpus(pool) for pool in settings().owned]
    if not some:
        return False
    session.view_table("devices", "devices")
    (found,) = session.fetch_one(f"SELECT count(*) FROM devices WHERE {' OR '.join(some)}")
    return "(true)" in some or found > 0


def price_pools(pools: Iterable[OwnedPool], loads: Mapping[str, Mapping[Span, float]]) -> OwnedPrices:
    """Prices of owned GPUs. `loads`: of each pool by its label, the load in months that are complete, as a share of full power.

    Raises InputError where a server cannot be, or two tables are of the same GPUs under two names of their model.
    """
    pools = tuple(pools)
    seen: dict[tuple[str | None, str | None], OwnedPool] = {}
    for pool in pools:
        known = find_accelerator(pool.accelerator or "")
        other = seen.setdefault((pool.pool, known.id if known else pool.accelerator), pool)
        if other is not pool:
            raise InputError(f"[[owned]] of {other.label} and of {pool.label} are of the same GPUs; keep one")
    rows = tuple(row for pool in pools for row in _price_pool(pool, loads.get(pool.label, {})))
    return OwnedPrices(_digest(pools), rows)


def measure_loads(session: "Session", pools: Iterable[OwnedPool]) -> dict[str, dict[Span, float]]:
    """The load of pools that ask for it in each complete UTC month of the ledger, in whole percents of full power, as shares."""
    pools = tuple(pools)
    measured = [pool for pool in pools if pool.measured_load]
    files = session.manifest.of("ledger")
    if not measured or not files:
        return {}
    session.create_view("kept_ledger", select_ledger(session, files))
    end = session.span()[1]
    found: dict[str, dict[Span, float]] = {}
    for pool in measured:
        sql = f"""SELECT year(began) AS year, month(began) AS month, sum(energy_j) / sum(gpu_s) FROM (
                    SELECT epoch_ms(hour_utc) AS began, energy_j, gpu_s FROM kept_ledger
                    WHERE {select_priced(pool, pools)} AND measured_mask & {_POWER} > 0)
                  GROUP BY ALL HAVING sum(gpu_s) > 0 ORDER BY ALL"""
        for year, month, power_w in session.raw.execute(sql).fetchall():
            span = _month(year, month)
            if span[1] <= end:
                share = min(1.0, power_w / full_power_w(pool))
                found.setdefault(pool.label, {})[span] = round(share * PERCENT) / PERCENT
    return found


def find_changed_hours(session: "Session", before: OwnedPrices, now: OwnedPrices) -> list[int]:
    """The booked hours (starts) of GPUs whose price of being owned is another than before."""
    changed = set(before.rows) ^ set(now.rows)
    files = session.manifest.of("ledger")
    if not changed or not files:
        return []
    session.create_view("kept_ledger", select_ledger(session, files))
    some = " OR ".join(
        f"({_select(row.pool, row.accelerator)} AND to_utc > {row.from_ms or ALWAYS[0]}"
        f" AND from_utc < {ALWAYS[1] if row.to_ms is None else row.to_ms})"
        for row in sorted(changed, key=str)
    )
    rows = session.raw.execute(f"SELECT DISTINCT hour_utc FROM kept_ledger WHERE {some} ORDER BY 1").fetchall()
    return [hour for (hour,) in rows]


def make_owned_server(pool: OwnedPool, load_share: float | None = None) -> "OwnedServer":
    """A server of a pool, as `plan own` describes it; `load_share` in place of the assumed one. Raises InputError."""
    from loadfactor.planner.economics.own_plan import make_server
    from loadfactor.planner.economics.request import OwnRequest

    terms = dict(pool.terms)
    if pool.accelerator is not None and find_accelerator(pool.accelerator) is None:
        missing = [name for name in ("gpus_per_server", "server_kw") if name not in terms]
        if missing:
            raise InputError(
                f"[[owned]] of {pool.label}: the catalog does not know {pool.accelerator}; give {' and '.join(missing)}"
            )
        del terms["accelerator"]
    try:
        server = make_server(OwnRequest(**terms))
    except InputError as error:
        raise InputError(f"[[owned]] of {pool.label}: {error}") from error
    return server if load_share is None else replace(server, load_share=load_share)


def full_power_w(pool: OwnedPool) -> float:
    """Power of a GPU at full load, W. Raises InputError where nobody says it."""
    if pool.gpu_w is not None:
        return pool.gpu_w
    known = find_accelerator(pool.accelerator or "")
    power_w = known.get("tdp_w") if known else None
    if power_w is None:
        raise InputError(f"[[owned]] of {pool.label}: the catalog does not know the full power of a GPU; give gpu_w")
    return power_w


def select_gpus(pool: OwnedPool) -> str:
    """SQL: the rows of the ledger that are of a pool's GPUs."""
    known = find_accelerator(pool.accelerator or "")
    names = {name for name in (pool.accelerator, known.id if known else None) if name}
    return f"({' OR '.join(_select(pool.pool, name) for name in sorted(names)) or _select(pool.pool, None)})"


def select_priced(pool: OwnedPool, pools: Iterable[OwnedPool]) -> str:
    """SQL: the rows of the ledger that a table prices: of its GPUs those that no more specific table is of, as in the ledger."""
    closer = [select_gpus(other) for other in pools if _rank(other) > _rank(pool)]
    return " AND ".join([select_gpus(pool), *(f"{gpus} IS NOT TRUE" for gpus in closer)])


def find_priced_pool(pool: str | None, accelerator: str | None, pools: Iterable[OwnedPool]) -> OwnedPool | None:
    """The table that prices the GPUs of a model in a pool, the most specific one; None where none is of them."""
    known = find_accelerator(accelerator or "")

    def is_of(table: OwnedPool) -> bool:
        named = find_accelerator(table.accelerator or "")
        same = table.accelerator in (None, accelerator) or (known is not None and named is known)
        return same and table.pool in (None, pool)

    return max((table for table in pools if is_of(table)), key=_rank, default=None)


def _rank(pool: OwnedPool) -> tuple[bool, bool]:
    """How specific a table is: a pool says more than a model."""
    return pool.pool is not None, pool.accelerator is not None


def _select(pool: str | None, accelerator: str | None) -> str:
    named = (("pool", pool), ("accelerator", accelerator))
    return " AND ".join(f"{column} = {quote(value)}" for column, value in named if value is not None) or "true"


def _price_pool(pool: OwnedPool, loads: Mapping[Span, float]) -> Iterator[OwnedPrice]:
    """Rows of the price list: one of always, or of the time before the first load was measured and of every load since."""
    known = find_accelerator(pool.accelerator or "")
    names: list[str | None] = [*sorted({name for name in (pool.accelerator, known and known.id) if name})] or [None]
    for (start, end), load in _list_loads(loads):
        price = _price(make_owned_server(pool, load))
        for name in names:
            yield OwnedPrice(pool.pool, name, start, end, price, pool.currency)


def _list_loads(loads: Mapping[Span, float]) -> Iterator[tuple[tuple[int | None, int | None], float | None]]:
    """Spans that follow each other and their loads; None where the assumed one holds. The last load holds on."""
    ends = sorted(loads)
    at: int | None = None
    for number, (start, end) in enumerate(ends):
        if at is None or at < start:
            yield (at, start), None
        is_last = number == len(ends) - 1
        yield (start, None if is_last else end), loads[start, end]
        at = end
    if not ends:
        yield (None, None), None


def _price(server: "OwnedServer") -> float:
    from loadfactor.planner.economics.ownership import compute_owned_cost

    return compute_owned_cost(server).price_per_gpu_hour


@cache
def _digest(pools: tuple[OwnedPool, ...]) -> str:
    if not pools:
        return ""
    text = json.dumps([pool.model_dump(mode="json") for pool in pools])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _month(year: int, month: int) -> Span:
    first, after = datetime(year, month, 1, tzinfo=UTC), datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    return int(first.timestamp()) * MS_PER_S, int(after.timestamp()) * MS_PER_S


@dataclass(frozen=True)
class OwnedUse:
    """GPUs that one table [[owned]] prices, over the span of the books. Costs are in `currency`; None where nothing was measured.

    `assumed` is a year of one server with the load that is assumed, `measured` with the one that was measured. `cost` is what the
    ledger says that all installed hours cost, down ones included.
    """

    label: str
    currency: str
    server: OwnedServer
    assumed: OwnedCost
    measured: OwnedCost | None
    measured_load_share: float | None
    uses_measured_load: bool
    installed_gpu_hours: float
    down_gpu_hours: float
    gpu_energy_kwh: float | None
    cost: float | None

    @property
    def up_share(self) -> float | None:
        """How much of the installed time was not down; None where nothing was installed."""
        return 1 - self.down_gpu_hours / self.installed_gpu_hours if self.installed_gpu_hours else None

    @property
    def energy_difference_cost(self) -> float | None:
        """Cost of the energy of installed hours by measured load less that by assumed load."""
        if self.measured is None:
            return None
        per_hour = (self.measured.energy_cost - self.assumed.energy_cost) / self.assumed.gpu_hours
        return per_hour * self.installed_gpu_hours


def list_owned(session: Session, pools: tuple[OwnedPool, ...]) -> tuple[OwnedUse, ...]:
    """Every table [[owned]], in its order. The ledger is called `ledger`. Raises InputError where a server cannot be."""
    return tuple(_look_at(session, pool, pools) for pool in pools)


def _look_at(session: Session, pool: OwnedPool, pools: tuple[OwnedPool, ...]) -> OwnedUse:
    power = f"measured_mask & {measured_bit('power_w')} > 0"
    hours, down, energy_j, measured_s, cost = session.fetch_one(
        f"""SELECT coalesce(sum(gpu_s), 0) / {S_PER_HOUR}, coalesce(sum(gpu_s) FILTER (state = 'down'), 0) / {S_PER_HOUR},
              sum(energy_j) FILTER ({power}), sum(gpu_s) FILTER ({power}),
              sum(price_per_gpu_hour_owned * gpu_s) / {S_PER_HOUR}
            FROM ledger WHERE {select_priced(pool, pools)}"""
    )
    server = make_owned_server(pool)
    load = _find_load(pool, energy_j, measured_s)
    return OwnedUse(
        label=pool.label,
        currency=pool.currency or session.currency,
        server=server,
        assumed=compute_owned_cost(server),
        measured=None if load is None else compute_owned_cost(make_owned_server(pool, load)),
        measured_load_share=load,
        uses_measured_load=pool.measured_load,
        installed_gpu_hours=hours,
        down_gpu_hours=down,
        gpu_energy_kwh=None if energy_j is None else energy_j / J_PER_KWH,
        cost=cost,
    )


def _find_load(pool: OwnedPool, energy_j: float | None, measured_s: float | None) -> float | None:
    """Mean power over full power of the GPUs; None where either is not known, or colocation is paid for all power."""
    if not energy_j or not measured_s or pool.colocation_price_per_kw_month is not None:
        return None
    try:
        return min(1.0, energy_j / measured_s / full_power_w(pool))
    except InputError:
        if pool.measured_load:
            raise
        return None
