"""Totals of the ledger: every sum that the metrics of a question are made of, for all groups, in one aggregate."""

from dataclasses import dataclass

import ibis
import numpy as np
from numpy.typing import NDArray

from loadfactor.ledger.activity import ACTIVITIES
from loadfactor.ledger.columns import STATES
from loadfactor.ledger.states import measures
from loadfactor.metrics.metric import COST, EFFECTIVE_COST, UNDERUSED_COST, UNDERUSED_S, Part, Quantile
from loadfactor.metrics.query.question import Expr, Fetch, Key, Question
from loadfactor.tables import DIMENSIONS
from loadfactor.units import S_PER_HOUR

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Totals:
    """What the ledger adds up to in each group: an array of groups × columns for each part, and the peaks."""

    keys: list[Key]
    sums: dict[Part, Floats]
    peaks: dict[str, list[float | None]]


ACTIVE = tuple(Part((f"observed_{kind.basis}_s",)) for kind in ACTIVITIES)
"""The seconds that each activity signal speaks for, best first: the basis of a number that rests on activity."""


def add_up(question: Question, booked: Expr, fetch: Fetch) -> Totals:
    """All the parts of all the metrics in one aggregate."""
    parts = list(dict.fromkeys([p for m in question.metrics for p in m.parts] + list(ACTIVE)))
    peaks = {m.kind.of for m in question.metrics if isinstance(m.kind, Quantile) and m.kind.of != "wait_s"}
    named = _columns(booked, question.basis)
    columns: dict[str, Expr] = {"rows": booked.count()}
    for number, part in enumerate(parts):
        where = booked.state.isin(part.states) if set(part.states) < set(STATES) else ibis.literal(True)
        if part.holder:
            where = where & (booked.holder == part.holder)
        if part.priced:
            where = where & named[COST].notnull()
        for place, name in enumerate(part.columns):
            # a sum of zeros elsewhere: engines do that several times faster than FILTER
            columns[f"p{number}_{place}"] = ibis.coalesce(ibis.ifelse(where, named[name], 0.0).sum(), 0.0)
    for name in peaks:
        columns[name] = booked[name].max()
    keys = [DIMENSIONS[d] for d in question.by]
    rows = booked.group_by(keys).aggregate(**columns).order_by(keys) if keys else booked.aggregate(**columns)
    table = fetch(rows)
    table = table.filter(table["rows"].to_numpy() > 0)  # an aggregate over nothing is a row, too
    return Totals(
        list(zip(*(table[k].to_pylist() for k in keys), strict=True)) if keys else [()] * table.num_rows,
        {
            part: np.column_stack([table[f"p{number}_{place}"].to_numpy() for place in range(len(part.columns))])
            for number, part in enumerate(parts)
        },
        {name: table[name].to_pylist() for name in peaks},
    )


def _columns(booked: Expr, basis: str) -> dict[str, Expr]:
    """Everything a metric may add up, by name: ledger columns, what follows from them, and the stand-ins of `metric`."""
    columns = {c: booked[c] for c in booked.columns} | measures(booked)
    active_s = sum(columns[f"effective_{kind.basis}_s"] for kind in ACTIVITIES)
    under_s = ibis.ifelse(booked.state == "busy", booked.gpu_s, 0.0) - active_s
    cost_per_s = booked[f"price_per_gpu_hour_{basis}"] / S_PER_HOUR
    return columns | {
        COST: columns[f"cost_{basis}"],
        UNDERUSED_S: under_s,
        UNDERUSED_COST: cost_per_s * under_s,
        EFFECTIVE_COST: cost_per_s * active_s,
    }
