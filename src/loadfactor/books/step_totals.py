"""The ledger of a short interval of time, row by row, cut at the end of every step: what sums that roll are made of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadfactor.base.units import MS_PER_HOUR, MS_PER_S
from loadfactor.books.booking import list_facts
from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.metrics.metric import Part
from loadfactor.metrics.query.question import Question
from loadfactor.store.session import Session
from loadfactor.tables.schema import Span

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NOBODY = -1
"""The code of a name that is null."""


@dataclass(frozen=True)
class CutRows:
    """Rows of the ledger, each in one step, in the order of steps: `step` is the number of each one's since `start_ms`.

    `codes`: by dimension, which of `names` each row has; the same in all of them in rows of one `holding`.
    `sums`: what they add to each part, columns × rows.
    """

    start_ms: int
    step_ms: int
    steps: int
    step: Ints
    holding: Ints
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
            holding=self.holding[rows],
            codes={by: of[rows] for by, of in self.codes.items()},
            sums={part: of[:, rows] for part, of in self.sums.items()},
        )

    def part(self, span: Span) -> "CutRows":
        """The rows of some of the steps."""
        first, after = ((at - self.start_ms) // self.step_ms for at in span)
        rows = slice(*np.searchsorted(self.step, (first, after)).tolist())
        return replace(
            self,
            start_ms=span[0],
            steps=after - first,
            step=self.step[rows] - first,
            holding=self.holding[rows],
            codes={by: of[rows] for by, of in self.codes.items()},
            sums={part: of[:, rows] for part, of in self.sums.items()},
        )


def read_cut_rows(session: Session, question: Question, step_ms: int) -> CutRows:
    """The rows of the table `window_ledger`; the window is one of whole steps, and no row spans one."""
    found = session.fetch(recall(f"steps of {question.shape}", lambda: expressions().write_step_rows(question))["rows"])
    start, end = question.window.limits
    number = (found["from_utc"].to_numpy() - start) // step_ms
    order = np.argsort(number, kind="stable")
    codes, names = _encode(found, question)
    codes = {name: of[order] for name, of in codes.items()}
    sums = {
        part: _stack([_read_amounts(found[f"p{n}_{place}"])[order] for place in range(len(part.columns))])
        for n, part in enumerate(question.parts)
    }
    return CutRows(start, step_ms, (end - start) // step_ms, number[order], order, codes, names, sums)


def _read_amounts(column: pa.ChunkedArray) -> Floats:
    """The amounts of a part: a row whose samples do not measure it adds nothing, as in every other sum of the ledger."""
    amounts: Floats = (pc.fill_null(column, 0.0) if column.null_count else column).to_numpy()
    return amounts


def _stack(columns: Sequence[Floats]) -> Floats:
    """Columns × rows: one column, as most parts have, is not copied."""
    return np.stack(columns) if len(columns) > 1 else columns[0][np.newaxis]


@dataclass(frozen=True)
class Rates:
    """The ledger as it is booked by sample (`booking.book_held`): what each second of a sample adds, row by row.

    A second of a sample adds the same wherever it lies: to cut samples here costs a part of what it costs in the tables. `held` are
    the holdings: from, to and `codes` of each. A row is of the holding `holding`; of those that are `rest`, one a holding, the time
    is what its samples leave.
    """

    held: tuple[Ints, Ints]
    codes: Mapping[str, Ints]
    names: Mapping[str, list[str]]
    holding: Ints
    row: tuple[Ints, Ints]
    is_rest: NDArray[np.bool_]
    rates: Mapping[Part, tuple[Floats, ...]]

    def of(self, dimension: str, name: str) -> "Rates":
        """Those of the holdings that have this name in a dimension."""
        known = self.names[dimension]
        chosen = self.codes[dimension] == (known.index(name) if name in known else len(known))
        number = np.cumsum(chosen) - 1
        rows = np.flatnonzero(chosen[self.holding])
        from_ms, to_ms = self.held
        return replace(
            self,
            held=(from_ms[chosen], to_ms[chosen]),
            codes={by: of[chosen] for by, of in self.codes.items()},
            holding=number[self.holding[rows]],
            row=(self.row[0][rows], self.row[1][rows]),
            is_rest=self.is_rest[rows],
            rates={part: tuple(of[rows] for of in columns) for part, columns in self.rates.items()},
        )

    def cut(self, span: Span, step_ms: int) -> CutRows:
        """Cut what lies in a span of whole steps at the end of every step: a row a holding and step."""
        start, end = span
        held_from, held_to, from_ms, to_ms = (np.clip(at, start, end) - start for at in (*self.held, *self.row))
        cells = Cells(held_from, held_to, step_ms)
        to_ms = np.where(self.is_rest, from_ms, to_ms)  # what is left of the rest follows from the samples
        order = np.argsort(cells.step, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        pieces = [(rows, place[at], of_ms) for rows, at, of_ms in cells.cut(self.holding, from_ms, to_ms)]
        left_ms = cells.length_ms[order]
        for _, at, of_ms in pieces:
            left_ms -= np.bincount(at, of_ms, len(order))
        is_left = np.flatnonzero(left_ms)  # mostly samples fill what is held
        left_s = left_ms[is_left] / MS_PER_S
        pieces = [(rows, at, of_ms / MS_PER_S) for rows, at, of_ms in pieces]
        rest_of = np.empty(len(held_from), dtype=np.int64)
        rest_of[self.holding[self.is_rest]] = np.flatnonzero(self.is_rest)
        own = cells.holding[order]
        rest = rest_of[own[is_left]]
        known: dict[float, list[tuple[Floats, Floats]]] = {}

        def add_up(rates: Floats) -> Floats:
            """The amounts of a column by cell: once for columns that are equal, as most that count seconds are."""
            equal = known.setdefault(float(rates.sum()), [])
            for other, total in equal:
                if np.array_equal(rates, other):
                    return total
            total = np.zeros(len(order))
            if rates.any():
                for number, (rows, at, of_s) in enumerate(pieces):
                    amounts: Floats = np.bincount(at, rates[rows] * of_s, len(order)).astype(np.float64, copy=False)
                    total = total + amounts if number else amounts
                total[is_left] += rates[rest] * left_s
            equal.append((rates, total))
            return total

        return CutRows(
            start,
            step_ms,
            (end - start) // step_ms,
            cells.step[order],
            own,
            {name: of[own] for name, of in self.codes.items()},
            self.names,
            {part: _stack([add_up(of) for of in columns]) for part, columns in self.rates.items()},
        )


def read_rates(session: Session, question: Question) -> Rates:
    """The rates of the table `book`, of `numbered_holdings`."""
    columns = ", ".join(question.keys)
    held = session.fetch(f"SELECT from_utc, to_utc{columns and ', '}{columns} FROM numbered_holdings ORDER BY holding")
    codes, names = _encode(held, question)
    found = session.fetch(recall(f"rates of {question.shape}", lambda: expressions().write_rates(question))["rows"])
    held_from, held_to, from_ms, to_ms = (
        rows[at].to_numpy() for rows in (held, found) for at in ("from_utc", "to_utc")
    )
    return Rates(
        (held_from, held_to),
        codes,
        names,
        found["holding"].to_numpy(),
        (from_ms, to_ms),
        found["is_rest"].to_numpy(zero_copy_only=False).astype(np.bool_),
        {
            part: tuple(_read_amounts(found[f"p{n}_{k}"]) for k in range(len(part.columns)))
            for n, part in enumerate(question.parts)
        },
    )


def estimate_rates(session: Session, spans: Sequence[Span]) -> float:
    """About how many rates the holding of a GPU has in an hour of these spans: one a sample, and that of the rest."""
    files = session.covering("samples", *spans)
    covered_ms = sum((f.to_ms or 0) - (f.from_ms or 0) for f in files)
    gpu_hours = list_facts(session).gpus * covered_ms / MS_PER_HOUR
    return 1 + sum(f.rows for f in files) / max(1.0, gpu_hours)


class Cells:
    """The parts of holdings in single steps, holding after holding: of each its `holding`, its `step` and its length."""

    def __init__(self, from_ms: Ints, to_ms: Ints, step_ms: int) -> None:
        self._step_ms = step_ms
        self._first, last = from_ms // step_ms, (to_ms - 1) // step_ms
        count = np.where(to_ms > from_ms, last - self._first + 1, 0)
        self._at = np.cumsum(count) - count
        self.holding = np.repeat(np.arange(len(count)), count)
        self.step = np.arange(count.sum()) - (self._at - self._first)[self.holding]
        begins, ends = (self.step + after for after in (0, 1))
        length = np.minimum(to_ms[self.holding], ends * step_ms) - np.maximum(from_ms[self.holding], begins * step_ms)
        self.length_ms = length.astype(np.float64)

    def cut(self, holding: Ints, from_ms: Ints, to_ms: Ints) -> Iterator[tuple[Ints, Ints, Floats]]:
        """Cut intervals in holdings: which of them a piece is of, its cell, and its milliseconds."""
        rows = np.flatnonzero(to_ms > from_ms)
        holding, from_ms, to_ms = holding[rows], from_ms[rows], to_ms[rows]
        step = from_ms // self._step_ms
        while len(holding):
            ends = (step + 1) * self._step_ms
            of_ms: Floats = (np.minimum(to_ms, ends) - from_ms).astype(np.float64)
            yield rows, self._at[holding] + step - self._first[holding], of_ms
            goes_on = np.flatnonzero(to_ms > ends)
            rows = rows[goes_on]
            holding, from_ms, to_ms, step = holding[goes_on], ends[goes_on], to_ms[goes_on], step[goes_on] + 1


def _encode(rows: pa.Table, question: Question) -> tuple[dict[str, Ints], dict[str, list[str]]]:
    """Of each row which name it has, by dimension; and the names."""
    codes, names = {}, {}
    for name, column in zip(question.by, question.keys, strict=True):
        encoded = rows[column].combine_chunks().dictionary_encode()
        codes[name] = pc.fill_null(encoded.indices, NOBODY).to_numpy().astype(np.int64)
        names[name] = encoded.dictionary.to_pylist()
    return codes, names
