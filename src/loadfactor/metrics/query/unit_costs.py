"""Units of work made in a window, by the groups of a question, and what the jobs that worked on them held and cost."""

from collections.abc import Mapping
from math import fsum
from typing import NamedTuple

from loadfactor.metrics.metric import Made, PerUnit, Speed, UnitShare
from loadfactor.metrics.query.question import Fetch, Key, Question, list_rows

Units = Mapping[str, Mapping[Key, "UnitTotals"]]
"""By unit and group."""
OfWork = PerUnit | UnitShare | Made | Speed


class UnitTotals(NamedTuple):
    """How much of a unit was made, and kept of it; what the jobs that worked on it cost, and the GPU-seconds they held.

    `priced_s` are the GPU-seconds whose price is known.
    """

    made: float
    kept: float
    cost: float
    held_s: float
    priced_s: float


def sum_units(question: Question, fetch: Fetch) -> Units:
    """The totals of every unit that the question asks for, where any of it was made."""
    out: dict[str, dict[Key, UnitTotals]] = {unit: {} for unit in question.units}
    if not out:
        return out
    keys = ["unit", *question.keys]
    amounts: dict[Key, dict[bool, float]] = {}
    for row in list_rows(fetch("unit_amounts")):  # in any order: added up exactly
        amounts.setdefault(tuple(row[k] for k in keys), {})[bool(row["kept"])] = fsum(row["amounts"])
    for row in list_rows(fetch("unit_costs")):
        unit, *group = key = tuple(row[k] for k in keys)
        if key in amounts:
            kept, lost = (amounts[key].get(is_kept, 0.0) for is_kept in (True, False))
            spent = (fsum(row[name]) for name in ("cost", "needed_s", "priced_s"))
            out[unit][tuple(group)] = UnitTotals(kept + lost, kept, *spent)
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
            out[key] = (of.kept if kind.is_kept else of.made), coverage
        elif of.held_s:
            out[key] = of.made / of.held_s, coverage
    return out


def _cost_of(part: float, of: UnitTotals) -> tuple[float | None, float | None]:
    """That part of what the jobs cost, and which share of their hours has a price."""
    coverage = of.priced_s / of.held_s if of.held_s else None
    return None if coverage == 0 else of.cost * part, coverage
