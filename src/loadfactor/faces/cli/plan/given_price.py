"""Which price is meant? The one typed in, or the catalog's newest for that accelerator; always with where it comes from."""

from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.prices import gpu_hour_price
from loadfactor.errors import InputError
from loadfactor.faces.answer import Assumption
from loadfactor.faces.formats import usd

KINDS = {"on_demand": "on demand", "one_year_contract": "one-year contract"}


def gpu_hour_usd(
    name: str, typed_usd: float | None, option: str, gpu: str, kind: str = "on_demand"
) -> tuple[float, Assumption]:
    """Dollars per GPU-hour and the line about them; `option` is where the user may type a price."""
    if typed_usd is not None:
        if typed_usd <= 0:
            raise InputError(f"{option} {typed_usd:g}: a GPU-hour costs more than nothing; give dollars above 0")
        return typed_usd, Assumption(name, f"{usd(typed_usd)} per GPU-hour", f"your {option}")
    known = gpu_hour_price(accelerator(gpu).id, kind) or gpu_hour_price(accelerator(gpu).id)
    if known is None:
        raise InputError(f"the catalog has no price for {accelerator(gpu).id}; give {option}")
    spread = (
        "" if known.low_usd is None or known.high_usd is None else f" ({usd(known.low_usd)} to {usd(known.high_usd)})"
    )
    words = f"{usd(known.typical_usd)} per GPU-hour{spread}, {known.accelerator} {KINDS.get(known.kind, known.kind)}"
    return known.typical_usd, Assumption(name, words, f"catalog: {known.source}", f"{known.as_of}, {known.status}")
