"""What energy is worked out of besides the ledger: the table [energy] and the file of the grid, as tables of a session."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from loadfactor.base.errors import InputError, say_why
from loadfactor.base.units import MS_PER_HOUR, PERCENT
from loadfactor.catalog.accelerators import accelerators
from loadfactor.metrics.query.calendar import Window
from loadfactor.metrics.query.grid import GPU_POWER, GRID, POOL_REGIONS
from loadfactor.settings.config import Signature, sign_file
from loadfactor.settings.energy import EnergySettings
from loadfactor.store.session import Session
from loadfactor.tables.tagging_rules import read_limit

HEADER: Final = ("region", "hour", "kgco2e_per_kwh")
PUE: Final = "pue"


@dataclass(frozen=True)
class GridHour:
    """What a region says of an hour; None is unknown."""

    kgco2e_per_kwh: float | None = None
    pue: float | None = None


Grid = Mapping[tuple[str, int | None], GridHour]
"""By region and hour (ms); of all other hours of a region under None."""


def put_energy(session: Session, found: EnergySettings, window: Window) -> None:
    """Put the tables of `query.grid` for the hours of a window. Raises InputError for a grid that cannot be read."""
    grid = _read_file(found.grid, sign_file(found.grid)) if found.grid is not None else {}
    powers = {item.id: item.get("tdp_w") for item in accelerators().values()} | found.gpu_w
    key = (repr(found), window.start_ms, window.end_ms, id(grid))
    session.put_once("gpu_power", GPU_POWER, lambda: list(_list_powers(powers, found)), key)
    named = [{"in_pool": pool, "region": region} for pool, region in found.regions.items()]
    session.put_once("pool_regions", POOL_REGIONS, lambda: named, key)
    session.put_once("grid", GRID, lambda: list(_list_hours(grid, found, window)), key)


def _list_powers(powers: Mapping[str, float | None], found: EnergySettings) -> Iterator[Mapping[str, object]]:
    """The estimated power of each accelerator, held and free."""

    def share(watts: float, percent: float | None) -> float | None:
        return None if percent is None else watts * percent / PERCENT

    for name, watts in powers.items():
        if watts is not None:
            yield {
                "powered": name,
                "held_w": share(watts, found.held_percent),
                "free_w": share(watts, found.free_percent),
            }


def _list_hours(grid: Grid, found: EnergySettings, window: Window) -> Iterator[Mapping[str, object]]:
    """PUE and intensity of each hour of a window, by region; of the region of all other pools under an empty name."""
    nothing = GridHour()
    for name, region in {"": found.region, **{region: region for region in found.regions.values()}}.items():
        always = grid.get((region, None), nothing)
        for hour in range(window.start_ms - window.start_ms % MS_PER_HOUR, window.end_ms, MS_PER_HOUR):
            of = grid.get((region, hour), always)
            pue = found.pue if of.pue is None else of.pue
            yield {"in_region": name, "in_hour": hour, "pue": pue, "kgco2e_per_kwh": of.kgco2e_per_kwh}


@lru_cache(maxsize=4)
def _read_file(path: Path, _seen: Signature) -> Grid:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = say_why(error) if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"the grid {path} cannot be read ({why}); see [energy] grid") from error
    return read_grid(text, str(path))


def read_grid(text: str, label: str) -> Grid:
    """Rows of region, hour, kgco2e_per_kwh and perhaps pue; an empty hour is every hour without a row of its own.

    Raises InputError with `label` and the line of what is wrong.

    >>> read_grid("region,hour,kgco2e_per_kwh\\nde,1970-01-01T01:00Z,0.4\\nse,,0.02", "grid.csv")[("de", 3600000)]
    GridHour(kgco2e_per_kwh=0.4, pue=None)
    """
    lines = csv.DictReader(text.removeprefix("\ufeff").splitlines(), skipinitialspace=True)
    names = [name.strip() for name in lines.fieldnames or ()]
    lines.fieldnames = names
    if not set(HEADER) <= set(names) or not set(names) <= {*HEADER, PUE} or len(set(names)) < len(names):
        raise InputError(f"{label}: the header is {','.join(names) or 'missing'}; write {','.join((*HEADER, PUE))}")
    grid: dict[tuple[str, int | None], GridHour] = {}
    for row in lines:
        where = f"{label}: line {lines.line_num}"
        cells = {name: (row.get(name) or "").strip() for name in names}
        if None in row or not cells["region"]:
            raise InputError(f"{where}: it has more cells than the header, or no region")
        hour = read_limit(cells["hour"] or None, where, "hour")
        if hour is not None and hour % MS_PER_HOUR:
            raise InputError(f"{where}: hour {cells['hour']!r} is no whole hour of UTC; write 2026-10-01T13:00Z")
        key = cells["region"], hour
        if key in grid:
            raise InputError(f"{where}: {cells['region']} {cells['hour'] or 'in every hour'} stands twice; keep one")
        grid[key] = GridHour(*(_read_number(cells.get(name, ""), where, name, least) for name, least in _LEAST))
    return grid


_LEAST: Final = ((HEADER[2], 0.0), (PUE, 1.0))


def _read_number(text: str, where: str, name: str, least: float) -> float | None:
    """A number of at least so much; None where it is empty."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not least <= number < float("inf"):
        raise InputError(f"{where}: {name} is {text!r}; write a number of at least {least:g}, or leave it empty")
    return number
