"""Units of work made in a window, by the groups of a question, and what the jobs that worked on them held and cost."""

from collections.abc import Mapping
from itertools import chain
from math import fsum
from types import MappingProxyType
from typing import NamedTuple

from loadfactor.metrics.metric import Made, PerUnit, Speed, UnitShare
from loadfactor.metrics.query.question import Fetch, Key, Question, list_rows
from loadfactor.metrics.work import LOST_TO, OTHER_CAUSE

Units = Mapping[str, Mapping[Key, "UnitTotals"]]
"""By unit and group."""
OfWork = PerUnit | UnitShare | Made | Speed


class UnitTotals(NamedTuple):
    """How much of a unit was made, and kept of it; what the jobs that worked on it cost, and the GPU-seconds they held.

    `priced_s` are the GPU-seconds whose price is known; `lost_to` what was lost by cause, as far as it is known.
    """

    made: float
    kept: float
    cost: float
    held_s: float
    priced_s: float
    lost_to: Mapping[str, float] = MappingProxyType({})


def sum_units(question: Question, fetch: Fetch) -> Units:
    """The totals of every unit that the question asks for, where any of it was made."""
    out: dict[str, dict[Key, UnitTotals]] = {unit: {} for unit in question.units}
    if not out:
        return out
    keys = ["unit", *question.keys]
    kept: dict[Key, list[float]] = {}
    lost: dict[Key, dict[str | None, list[float]]] = {}
    for row in list_rows(fetch("unit_amounts")):  # in any order: added up exactly
        key, cause = tuple(row[k] for k in keys), row["cause"]
        if row["kept"]:
            kept.setdefault(key, []).extend(row["amounts"])
        else:
            named = cause if cause is None or cause in LOST_TO else OTHER_CAUSE
            lost.setdefault(key, {}).setdefault(named, []).extend(row["amounts"])
    for row in list_rows(fetch("unit_costs")):
        unit, *group = key = tuple(row[k] for k in keys)
        if key in kept or key in lost:
            gone = lost.get(key, {})
            stayed, went = fsum(kept.get(key, ())), fsum(chain.from_iterable(gone.values()))
            lost_to = {cause: fsum(of) for cause, of in gone.items() if cause is not None}
            cost, held_s, priced_s = (fsum(row[name]) for name in ("cost", "needed_s", "priced_s"))
            out[unit][tuple(group)] = UnitTotals(stayed + went, stayed, cost, held_s, priced_s, lost_to)
    return out


def answer_work(
    kind: OfWork, units: Units, held_s: Mapping[Key, float]
) -> dict[Key, tuple[float | None, float | None]]:
    """Value and coverage by group. `held_s`: the GPU-seconds that anybody held, of which jobs whose work is known are a part."""
    totals = units.get(kind.unit, {})
    if isinstance(kind, PerUnit):
        return {key: _cost_of(kind.per / of.kept, of) for key, of in totals.items() if of.kept}
    out: dict[Key, tuple[float | None, float | None]] = {}
    for key, of in totals.items():
        if isinstance(kind, UnitShare):
            whole = units[kind.of].get(key)
            out[key] = (of.kept / whole.kept if whole and whole.kept else None), None
            continue
        coverage = min(1.0, of.held_s / held_s[key]) if held_s.get(key) else None
        if isinstance(kind, Made):
            made = of.kept if kind.is_kept else of.made
            out[key] = (made if kind.lost_to is None else of.lost_to.get(kind.lost_to, 0.0)), coverage
        elif of.held_s:
            out[key] = of.made / of.held_s, coverage
    return out


def _cost_of(part: float, of: UnitTotals) -> tuple[float | None, float | None]:
    """That part of what the jobs cost, and which share of their hours has a price."""
    coverage = of.priced_s / of.held_s if of.held_s else None
    return None if coverage == 0 else of.cost * part, coverage
