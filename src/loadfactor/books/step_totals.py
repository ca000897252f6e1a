"""The ledger of a short interval of time, row by row, cut at the end of every step: what sums that roll are made of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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


def read_steps(session: Session, question: Question, step_ms: int) -> Iterator[StepRows]:
    """The rows of the table `window_ledger`, step by step, also of steps without a row; the window is one of whole steps."""
    found = session.fetch(recall(f"steps of {question.shape}", lambda: expressions().write_step_rows(question))["rows"])
    start, end = question.window.limits
    number = (found["from_utc"].to_numpy() - start) // step_ms
    order = np.argsort(number, kind="stable")
    limits = np.searchsorted(number[order], np.arange((end - start) // step_ms + 1))
    codes, names = {}, {}
    for name, column in zip(question.by, question.keys, strict=True):
        encoded = found[column].combine_chunks().dictionary_encode()
        codes[name] = pc.fill_null(encoded.indices, NOBODY).to_numpy().astype(np.int64)[order]
        names[name] = encoded.dictionary.to_pylist()
    sums = {
        part: np.stack([_read_amounts(found[f"p{n}_{place}"])[order] for place in range(len(part.columns))])
        for n, part in enumerate(question.parts)
    }
    for n, (first, after) in enumerate(pairwise(limits)):
        rows = slice(first, after)
        yield StepRows(
            start + n * step_ms,
            start + (n + 1) * step_ms,
            int(after - first),
            {name: of[rows] for name, of in codes.items()},
            names,
            {part: of[:, rows] for part, of in sums.items()},
        )


def _read_amounts(column: pa.ChunkedArray) -> Floats:
    """The amounts of a part: a row whose samples do not measure it adds nothing, as in every other sum of the ledger."""
    amounts: Floats = pc.fill_null(column, 0.0).to_numpy()
    return amounts
