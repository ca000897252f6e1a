"""Which price is meant? The one typed in, or the catalog's newest for that accelerator; always with where it comes from."""

from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.prices import gpu_hour_price
from loadfactor.errors import InputError
from loadfactor.faces.answer import Assumption
from loadfactor.faces.formats import money

KINDS = {"on_demand": "on demand", "one_year_contract": "one-year contract"}


def price_with_source(
    name: str, typed_price: float | None, option: str, gpu: str, kind: str = "on_demand"
) -> tuple[float, Assumption]:
    """Dollars per GPU-hour and the line about them; `option` is where the user may type a price."""
    if typed_price is not None:
        if typed_price <= 0:
            raise InputError(f"{option} {typed_price:g}: a GPU-hour costs more than nothing; give dollars above 0")
        return typed_price, Assumption(name, f"{money(typed_price)} per GPU-hour", f"your {option}")
    known = gpu_hour_price(accelerator(gpu).id, kind) or gpu_hour_price(accelerator(gpu).id)
    if known is None:
        raise InputError(f"the catalog has no price for {accelerator(gpu).id}; give {option}")
    spread = "" if known.low is None or known.high is None else f" ({money(known.low)} to {money(known.high)})"
    words = f"{money(known.typical)} per GPU-hour{spread}, {known.accelerator} {KINDS.get(known.kind, known.kind)}"
    return known.typical, Assumption(name, words, f"catalog: {known.source}", f"{known.as_of}, {known.status}")
