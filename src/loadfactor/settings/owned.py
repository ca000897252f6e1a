"""What `loadfactor.toml` says of fleets that are owned: the tables [[owned]]."""

from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, Field, model_validator

from loadfactor.base.limits import MOST_YEARS
from loadfactor.settings.table import SettingsTable
from loadfactor.tables.schema import CURRENCY

_WHICH: Final = ("pool", "accelerator")
_OF_MONEY: Final = ("currency", "measured_load", "gpu_w")
_MOST_COST: Final = 1e12


class OwnedPool(SettingsTable):
    """GPUs that are owned, and what a server of them costs. Names and defaults are those of `loadfactor plan own`."""

    pool: str | None = Field(default=None, min_length=1, description="Pool of the GPUs. By default, any.")
    accelerator: str | None = Field(default=None, min_length=1, description="Their model. By default, any.")
    server_price: float = Field(gt=0, le=_MOST_COST, description="Capital: one server with all its GPUs.")
    gpus_per_server: int | None = Field(default=None, ge=1, description="GPUs of one; the catalog's by default.")
    life_years: float | None = Field(default=None, gt=0, le=MOST_YEARS, description="Years until it is sold.")
    discount_rate_percent: float | None = Field(default=None, ge=0, description="Cost of capital a year.")
    residual_percent: float | None = Field(default=None, ge=0, le=100, description="What it is sold for, of its price.")
    server_kw: float | None = Field(default=None, ge=0, description="Power at full load; the catalog's by default.")
    load_percent: float | None = Field(default=None, ge=0, le=100, description="Mean power, of full power.")
    pue: float | None = Field(default=None, ge=1, description="Power into the building over power into the servers.")
    price_per_kwh: float | None = Field(default=None, ge=0, description="Price of a kilowatt-hour.")
    colocation_price_per_kw_month: float | None = Field(
        default=None, gt=0, description="All-in colocation in place of energy and PUE."
    )
    network_percent: float | None = Field(
        default=None, ge=0, description="Network, storage and CPU hosts, of its price."
    )
    support_percent: float | None = Field(default=None, ge=0, description="Support and repair a year, of its price.")
    staff_cost: float | None = Field(default=None, ge=0, le=_MOST_COST, description="Staff a year for one server.")
    availability_percent: float | None = Field(default=None, gt=0, le=100, description="Time it is up.")
    currency: str | None = Field(default=None, pattern=CURRENCY, description="By default, that of the books.")
    measured_load: bool = Field(default=False, description="Measured energy in place of `load_percent`.")
    gpu_w: float | None = Field(
        default=None,
        gt=0,
        description="Full power of a GPU, W, that measured power is compared with; the catalog's by default.",
    )

    @property
    def label(self) -> str:
        """Which GPUs it is of."""
        return " / ".join(name for name in (self.pool, self.accelerator) if name) or "all GPUs"

    @property
    def terms(self) -> dict[str, Any]:
        """What is said of a server, under the names of `plan own`."""
        left_out = {*_OF_MONEY, "pool"}
        return {
            name: value
            for name in type(self).model_fields
            if name not in left_out and (value := getattr(self, name)) is not None
        }

    @model_validator(mode="after")
    def _complete(self) -> Self:
        missing = [name for name in ("gpus_per_server", "server_kw") if getattr(self, name) is None]
        if self.accelerator is None and missing:
            raise ValueError(f"owned GPUs of any model need {' and '.join(missing)}; or name their accelerator")
        if self.measured_load and self.colocation_price_per_kw_month is not None:
            raise ValueError(
                "colocation is paid for all power, so there is no load to measure; leave one of the two out"
            )
        if self.measured_load and self.accelerator is None and self.gpu_w is None:
            raise ValueError(
                "measured load of GPUs of any model needs gpu_w, their full power; or name their accelerator"
            )
        return self


def _differ(pools: tuple[OwnedPool, ...]) -> tuple[OwnedPool, ...]:
    seen = set()
    for pool in pools:
        if (which := tuple(getattr(pool, name) for name in _WHICH)) in seen:
            raise ValueError(f"two tables are of {pool.label}; keep one")
        seen.add(which)
    return pools


OwnedPools = Annotated[tuple[OwnedPool, ...], AfterValidator(_differ)]
"""Owned GPUs, each table of others."""
