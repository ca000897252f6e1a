"""Totals of the ledger: every sum that the metrics of a question are made of, for all groups."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadfactor.metrics.metric import Part
from loadfactor.metrics.query.question import Fetch, Key, Question

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Totals:
    """What the ledger adds up to in each group: an array of groups × columns for each part, and the peaks."""

    keys: list[Key]
    sums: dict[Part, Floats]
    peaks: dict[str, list[float | None]]


def add_up(question: Question, fetch: Fetch) -> Totals:
    """The totals of a question, its groups in order."""
    found = fetch("sums")
    some = found["rows"] > 0  # an aggregate over nothing is a row, too
    table, keys = {name: column[some] for name, column in found.items()}, question.keys
    return Totals(
        list(zip(*(table[k].tolist() for k in keys), strict=True)) if keys else [()] * len(table["rows"]),
        {
            part: np.column_stack([np.asarray(table[f"p{number}_{place}"]) for place in range(len(part.columns))])
            for number, part in enumerate(question.parts)
        },
        {name: table[name].tolist() for name in question.peaks},
    )
