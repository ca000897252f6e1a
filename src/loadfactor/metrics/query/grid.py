"""What rows of the ledger drew at the meter and emitted: measured or estimated energy × PUE × intensity of the grid.

The tables `gpu_power` (W of a GPU whose power nobody measured, by accelerator), `pool_regions` (region by pool) and `grid` (PUE and
kgCO2e a kWh by region and hour; those of all other pools under the region '') are put beside the ledger (`books.energy_inputs`).
"""

from typing import Any, Final

import ibis

from loadfactor.base.units import J_PER_KWH
from loadfactor.ledger.columns import HELD
from loadfactor.metrics.metric import (
    CARBON_KG,
    CARBON_KNOWN_S,
    DRAWN_KNOWN_S,
    ESTIMATED_J,
    METERED_J,
    METERED_KNOWN_S,
)
from loadfactor.tables.schema import measured_bit

Expr = Any
GPU_POWER: Final = {"powered": "string", "held_w": "float64", "free_w": "float64"}
POOL_REGIONS: Final = {"in_pool": "string", "region": "string"}
GRID: Final = {"in_region": "string", "in_hour": "int64", "pue": "float64", "kgco2e_per_kwh": "float64"}
"""Columns of those tables."""
READ_BY_GRID: Final = {"hour_utc", "state", "pool", "accelerator", "measured_mask", "gpu_s", "energy_j"}
"""Columns of the ledger that it reads, the hour among them."""


def add_energy(booked: Expr) -> Expr:
    """Rows with the columns `metric.OF_GRID`, all of which can be added up."""
    power, regions, grid = (
        ibis.table(columns, name=name)
        for name, columns in (("gpu_power", GPU_POWER), ("pool_regions", POOL_REGIONS), ("grid", GRID))
    )
    rows = booked.left_join(power, booked.accelerator == power.powered)
    rows = rows.left_join(regions, rows.pool == regions.in_pool)
    rows = rows.mutate(at_region=ibis.coalesce(rows.region, ""))
    rows = rows.left_join(grid, [rows.at_region == grid.in_region, rows.hour_utc == grid.in_hour])
    is_measured = (rows.measured_mask & measured_bit("power_w")) > 0
    watts = ibis.cases((rows.state.isin(HELD), rows.held_w), (rows.state == "unallocated", rows.free_w), else_=None)
    drawn = ibis.ifelse(is_measured, rows.energy_j, watts * rows.gpu_s)
    metered = drawn * rows.pue
    carbon = metered / J_PER_KWH * rows.kgco2e_per_kwh

    def known_s(amount: Expr) -> Expr:
        return ibis.ifelse(amount.notnull(), rows.gpu_s, 0.0)

    return rows.select(
        *(rows[name] for name in booked.columns),
        **{
            ESTIMATED_J: ibis.ifelse(is_measured, 0.0, ibis.coalesce(drawn, 0.0)),
            METERED_J: ibis.coalesce(metered, 0.0),
            CARBON_KG: ibis.coalesce(carbon, 0.0),
            DRAWN_KNOWN_S: known_s(drawn),
            METERED_KNOWN_S: known_s(metered),
            CARBON_KNOWN_S: known_s(carbon),
        },
    )
