"""Units of work made in a window, by the groups of a question, and what the jobs that worked on them cost."""

from math import fsum
from typing import NamedTuple

from loadfactor.metrics.query.question import Fetch, Key, Question, list_rows


class UnitTotals(NamedTuple):
    """How much of a unit was made and kept, what the jobs that worked on it cost, and which share of their hours has a price."""

    amount: float
    cost: float
    coverage: float | None


def sum_units(question: Question, fetch: Fetch) -> dict[str, dict[Key, UnitTotals]]:
    """By unit and group, where any of the unit was made and kept."""
    out: dict[str, dict[Key, UnitTotals]] = {unit: {} for unit in question.units}
    if not out:
        return out
    keys = ["unit", *question.keys]
    # joined rows come in any order: added up exactly
    amounts = {tuple(r[k] for k in keys): fsum(r["amounts"]) for r in list_rows(fetch("unit_amounts"))}
    for row in list_rows(fetch("unit_costs")):
        unit, *group = key = tuple(row[k] for k in keys)
        if amounts.get(key):
            coverage = row["priced_s"] / row["needed_s"] if row["needed_s"] else None
            out[unit][tuple(group)] = UnitTotals(amounts[key], row["cost"], coverage)
    return out
