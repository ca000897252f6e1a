"""Prices of the catalog, for GPUs of which nobody says another: estimates."""

from typing import TYPE_CHECKING

from loadfactor.catalog.accelerators import accelerators
from loadfactor.catalog.prices import gpu_hour_price
from loadfactor.tables.schema import PRICES

if TYPE_CHECKING:
    import pyarrow as pa


def list_estimates() -> "pa.Table":
    """The catalog's dated prices as rows of the price list."""
    import pyarrow as pa

    return pa.Table.from_pylist(write_estimates(), schema=PRICES.schema)


def write_estimates() -> list[dict[str, object]]:
    """The same as plain values."""
    rows = []
    for item in accelerators():
        price = gpu_hour_price(item)
        if price is not None:
            given: dict[str, object] = {
                "accelerator": item,
                "basis": "estimate",
                "price_per_gpu_hour": float(price.typical),
                "currency": price.currency,
                "source": f"{price.source} ({price.as_of})",
            }
            rows.append({column.name: given.get(column.name) for column in PRICES.columns})
    return rows
