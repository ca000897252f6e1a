"""Published effects of power caps: shares of the energy saved and of the time lost, each with its source."""

from dataclasses import dataclass
from functools import cache

from loadfactor.catalog.facts import Fact, fact, read_toml


@dataclass(frozen=True)
class PowerCaps:
    """Shares of energy saved at least, and at most by what bounds a job; `time_lost`: of the runs that saved the least."""

    least: Fact
    time_lost: Fact
    most: dict[str, Fact]


@cache
def read_power_caps() -> PowerCaps:
    """The published shares.

    >>> read_power_caps().least.value, read_power_caps().most["hbm_bound"].value
    (0.137, 0.32)
    """
    found = read_toml(__package__, "published.toml")

    def read(name: str, column: str) -> Fact:
        return fact({"value": found[name][column]}, found[name], f"power_caps/published.toml [{name}]")

    saved = "energy_saved_share"
    most = {name: read(name, saved) for name in found if name != "trained"}
    return PowerCaps(read("trained", saved), read("trained", "time_lost_share"), most)
