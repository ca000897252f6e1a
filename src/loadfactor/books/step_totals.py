"""The ledger of a short interval of time, row by row, cut at the end of every step: what sums that roll are made of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.metrics.metric import Part
from loadfactor.metrics.query.question import Question
from loadfactor.store.session import Session

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NOBODY = -1
"""The code of a name that is null."""


@dataclass(frozen=True)
class StepRows:
    """`count` rows of the ledger of one step. `codes`: by dimension, which of `names` each row has.

    `sums`: what they add to each part, columns × rows.
    """

    start_ms: int
    end_ms: int
    count: int
    codes: Mapping[str, Ints]
    names: Mapping[str, list[str]]
    sums: Mapping[Part, Floats]


@dataclass(frozen=True)
class CutRows:
    """The rows of several steps, in order: `step` is the number of each one's step since `start_ms`; else as `StepRows`."""

    start_ms: int
    step_ms: int
    steps: int
    step: Ints
    codes: Mapping[str, Ints]
    names: Mapping[str, list[str]]
    sums: Mapping[Part, Floats]

    def of(self, dimension: str, name: str) -> "CutRows":
        """The rows that have this name in a dimension."""
        known = self.names[dimension]
        rows = np.flatnonzero(self.codes[dimension] == (known.index(name) if name in known else len(known)))
        return replace(
            self,
            step=self.step[rows],
            codes={by: of[rows] for by, of in self.codes.items()},
            sums={part: of[:, rows] for part, of in self.sums.items()},
        )

    def split(self) -> Iterator[StepRows]:
        """The rows step by step, also of steps without a row."""
        limits = np.searchsorted(self.step, np.arange(self.steps + 1))
        for n, (first, after) in enumerate(pairwise(limits)):
            rows = slice(first, after)
            yield StepRows(
                self.start_ms + n * self.step_ms,
                self.start_ms + (n + 1) * self.step_ms,
                int(after - first),
                {name: of[rows] for name, of in self.codes.items()},
                self.names,
                {part: of[:, rows] for part, of in self.sums.items()},
            )


def read_cut_rows(session: Session, question: Question, step_ms: int) -> CutRows:
    """The rows of the table `window_ledger`; the window is one of whole steps, and no row spans one."""
    found = session.fetch(recall(f"steps of {question.shape}", lambda: expressions().write_step_rows(question))["rows"])
    start, end = question.window.limits
    number = (found["from_utc"].to_numpy() - start) // step_ms
    order = np.argsort(number, kind="stable")
    codes, names = {}, {}
    for name, column in zip(question.by, question.keys, strict=True):
        encoded = found[column].combine_chunks().dictionary_encode()
        codes[name] = pc.fill_null(encoded.indices, NOBODY).to_numpy().astype(np.int64)[order]
        names[name] = encoded.dictionary.to_pylist()
    sums = {
        part: np.stack([_read_amounts(found[f"p{n}_{place}"])[order] for place in range(len(part.columns))])
        for n, part in enumerate(question.parts)
    }
    return CutRows(start, step_ms, (end - start) // step_ms, number[order], codes, names, sums)


def _read_amounts(column: pa.ChunkedArray) -> Floats:
    """The amounts of a part: a row whose samples do not measure it adds nothing, as in every other sum of the ledger."""
    amounts: Floats = pc.fill_null(column, 0.0).to_numpy()
    return amounts
