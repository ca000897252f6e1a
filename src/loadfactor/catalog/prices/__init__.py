"""Prices of rented GPU-hours where the user gives none: dated ranges, always shown with their date."""

from dataclasses import dataclass
from functools import cache

from loadfactor.catalog.facts import read_toml


@dataclass(frozen=True)
class GpuHourPrice:
    """A dated price range of one accelerator, USD per GPU-hour; `as_of` is YYYY-MM."""

    accelerator: str
    kind: str
    typical: float
    as_of: str
    source: str
    status: str
    low: float | None = None
    high: float | None = None
    note: str = ""

    @property
    def origin(self) -> str:
        """Where it comes from: kind, range and source."""
        span = f"${self.low:.2f}–{self.high:.2f}" if self.low and self.high else ""
        return f"catalog, {self.kind.replace('_', ' ')} {span}: {self.source}"

    @property
    def age(self) -> str:
        """Its month, and whether it was seen or estimated."""
        return f"{self.as_of}, {self.status}"


@cache
def gpu_hour_prices() -> tuple[GpuHourPrice, ...]:
    """Every dated price of the catalog."""
    return tuple(GpuHourPrice(**row) for row in read_toml(__name__, "gpu_hours.toml")["price"])


def gpu_hour_price(accelerator: str, kind: str = "on_demand") -> GpuHourPrice | None:
    """The newest price of this kind for an accelerator id, or None when the catalog has none.

    >>> gpu_hour_price("h100-sxm").typical
    2.95
    """
    rows = [p for p in gpu_hour_prices() if p.accelerator == accelerator and p.kind == kind]
    return max(rows, key=lambda p: p.as_of, default=None)
