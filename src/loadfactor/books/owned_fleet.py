"""Owned GPUs as the books saw them: their price by assumed and by measured load, what their hours cost, how long they were up."""

from dataclasses import dataclass

from loadfactor.base.errors import InputError
from loadfactor.base.units import J_PER_KWH, S_PER_HOUR
from loadfactor.books.owned_prices import full_power_w, make_owned_server, select_priced
from loadfactor.planner.economics.ownership import OwnedCost, OwnedServer, compute_owned_cost
from loadfactor.settings.owned import OwnedPool
from loadfactor.store.session import Session
from loadfactor.tables.schema import measured_bit


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
        """What the energy of the installed hours costs more by measured than by assumed load; negative where it costs less."""
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
