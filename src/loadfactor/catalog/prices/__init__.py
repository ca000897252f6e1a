"""Prices of a rented GPU-hour: dated ranges of the catalog, and the one place that chooses between them and a typed price."""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from loadfactor.base.errors import InputError
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.facts import read_toml

PriceKind = Literal["on_demand", "one_year_contract"]
NO_PRICE = "no price in the catalog; give --price-per-gpu-hour"
KINDS: dict[str, str] = {"on_demand": "on demand", "one_year_contract": "one-year contract"}


@dataclass(frozen=True)
class GpuHourPrice:
    """A dated price range of one accelerator per GPU-hour; `as_of` is YYYY-MM. A placeholder is listed and never taken."""

    accelerator: str
    kind: str
    typical: float
    as_of: str
    source: str
    status: str
    low: float | None = None
    high: float | None = None
    note: str = ""
    currency: str = "USD"
    is_placeholder: bool = False

    @property
    def age(self) -> str:
        """Its month, and whether it was seen or estimated."""
        return f"{self.as_of}, {self.status}"


@dataclass(frozen=True)
class ChosenPrice:
    """The price of an hour of one GPU, and where it comes from.

    `basis` says what kind of price it is ("h100-sxm on demand"; empty for a typed one); `as_of` how old and sure it is,
    `listed` the catalog's entry where it is one.
    """

    per_gpu_hour: float
    currency: str
    source: str
    basis: str = ""
    as_of: str = ""
    listed: GpuHourPrice | None = None

    @property
    def range(self) -> tuple[float, float]:
        """Factors on it from the lowest to the highest listed; 1 and 1 where no range is."""
        if self.listed is None or self.listed.low is None or self.listed.high is None:
            return 1.0, 1.0
        return self.listed.low / self.per_gpu_hour, self.listed.high / self.per_gpu_hour

    @property
    def is_given(self) -> bool:
        """True for a price the user typed."""
        return not self.basis


@cache
def gpu_hour_prices() -> tuple[GpuHourPrice, ...]:
    """Every dated price of the catalog."""
    return tuple(GpuHourPrice(**row) for row in read_toml(__name__, "gpu_hours.toml")["price"])


def gpu_hour_price(accelerator: str, kind: str = "on_demand") -> GpuHourPrice | None:
    """The newest price of this kind for an accelerator id, or None when the catalog has none that is more than a placeholder.

    >>> gpu_hour_price("h100-sxm").typical, gpu_hour_price("gb200-nvl72")
    (2.95, None)
    """
    rows = [p for p in gpu_hour_prices() if (p.accelerator, p.kind) == (accelerator, kind) and not p.is_placeholder]
    return max(rows, key=lambda p: p.as_of, default=None)


def find_price(
    name: str, given: float | None, option: str = "--price-per-gpu-hour", kind: PriceKind = "on_demand"
) -> ChosenPrice | None:
    """The price of a GPU-hour: the one given, else the catalog's newest of this kind, else its newest on demand.

    `option` is where the user may type a price. None where the catalog knows none.

    >>> find_price("h100-sxm", None).per_gpu_hour, find_price("H100", 2.0).source, find_price("tpu-v3", None)
    (2.95, 'your --price-per-gpu-hour', None)
    """
    if given is not None:
        if given <= 0:
            raise InputError(f"{option} {given:g}: a GPU-hour costs more than nothing; give an amount above 0")
        return ChosenPrice(given, "USD", f"your {option}")
    accelerator_id = accelerator(name).id
    known = gpu_hour_price(accelerator_id, kind) or gpu_hour_price(accelerator_id)
    if known is None:
        return None
    basis = f"{known.accelerator} {KINDS.get(known.kind, known.kind)}"
    return ChosenPrice(known.typical, known.currency, f"catalog: {known.source}", basis, known.age, known)


def choose_price(
    name: str, given: float | None, option: str = "--price-per-gpu-hour", kind: PriceKind = "on_demand"
) -> ChosenPrice:
    """The same for a plan that needs a price. Raises InputError where the catalog knows none, or a placeholder alone."""
    price = find_price(name, given, option, kind)
    if price is None:
        card = accelerator(name).id
        known = "only a placeholder of a" if any(p.accelerator == card for p in gpu_hour_prices()) else "no"
        raise InputError(f"the catalog has {known} price for {card}; give {option}")
    return price
