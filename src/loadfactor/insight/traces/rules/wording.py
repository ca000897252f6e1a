"""Words and bounds that the rules share."""

from collections.abc import Sequence
from typing import Final, TypedDict

from loadfactor.base.units import PERCENT, US_PER_MS, US_PER_S
from loadfactor.insight.traces.owners import Owner
from loadfactor.insight.traces.report import Sureness

LEAST_SHARE: Final = 0.05
"""A part of the span below this is not named."""
_NAME: Final = 70


class Saved(TypedDict):
    """What a fix would have saved, as shares of the span."""

    saved_share_low: float
    saved_share_high: float


def saved(share: float, sureness: Sureness) -> Saved:
    """The bounds of what could be saved: all of a part that is sure, from half of one that is likely, from nothing of another."""
    low = {"high": share, "medium": share / 2, "low": 0.0}[sureness]
    return {"saved_share_low": low, "saved_share_high": share}


def say_us(value: float) -> str:
    """A time as people read it.

    >>> say_us(9_934_052), say_us(1234.5), say_us(16)
    ('9.93 s', '1.23 ms', '16 µs')
    """
    if value >= US_PER_S:
        return f"{value / US_PER_S:,.3g} s"
    return f"{value / US_PER_MS:,.3g} ms" if value >= US_PER_MS else f"{value:,.3g} µs"


def say_share(value: float) -> str:
    """A share in percent."""
    return f"{PERCENT * value:.1f} %"


def shorten(name: str) -> str:
    """A name that fits a line."""
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def name_owners(owners: Sequence[Owner], most: int = 3) -> str:
    """The largest owners of idle time with their times."""
    said = []
    for owner in owners[:most]:
        inside = f" (in {shorten(owner.call)})" if owner.call else ""
        said.append(f"{shorten(owner.name)}{inside} {say_us(owner.idle_us)}")
    return ", ".join(said) if said else "nothing that was recorded"
