"""Samples of one device and source taken at the same instant, several rows of them: what each import says, and all together."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.store.sample_columns import AS_TAKEN
from loadfactor.tables.schema import MEASUREMENTS

_SAID: Final = ("began_utc", *MEASUREMENTS)
"""Columns in which two rows of one import can contradict each other."""

Numbers = npt.NDArray[np.int64]


class SamplesDifferError(SourceError):
    """Two rows of one import say different things of one device, source and instant. `seqs` are their numbers in the import."""

    def __init__(self, seqs: tuple[int, int], column: str, rows: pa.Table) -> None:
        self.seqs, self.column = seqs, column
        self.device, self.source = rows["device_id"][0].as_py(), rows["source"][0].as_py()
        self.sampled_ms: int = rows["sampled_utc"][0].as_py()
        self.values = tuple(rows[column].to_pylist())
        super().__init__(
            f"two samples of device {self.device!r} at the same time differ in {column}"
            f" ({self.values[0]} and {self.values[1]}): rows {seqs[0] + 1} and {seqs[1] + 1} of the import; keep one of them"
        )


@dataclass(frozen=True)
class Folded:
    """Rows with one for each sample. Where several imports speak of one, `met` has what each of them says."""

    rows: pa.Table  # AS_TAKEN; import_no is null where several imports speak of the sample
    met: pa.Table | None
    merged: int  # rows of one import that went into another row of it
    replaced: int  # of these, how many said something else than the later row


def fold_rows(rows: pa.Table, sample: Numbers, refuse: bool) -> Folded:
    """One row for each sample, column by column the value of the latest row that has one: of one import, then over imports.

    `rows` is AS_TAKEN in order of `sample` (a number for each row: the same for the same device, source and instant), of
    import_no and of seq. With `refuse`, rows of one import that differ in a column both have raise SamplesDifferError.
    """
    imported = _integers(rows, "import_no")
    starts = np.flatnonzero(np.append(True, (sample[1:] != sample[:-1]) | (imported[1:] != imported[:-1])))
    merged = replaced = 0
    if len(starts) < rows.num_rows:
        replaced = _count_differing(rows, starts, refuse)
        merged = rows.num_rows - len(starts)
        rows, sample = _fold(rows, starts), sample[starts]
    starts = np.flatnonzero(np.append(True, sample[1:] != sample[:-1]))
    if len(starts) == rows.num_rows:
        return Folded(rows, None, merged, replaced)
    sizes = np.diff(np.append(starts, rows.num_rows))
    met = rows.filter(pa.array(np.repeat(sizes > 1, sizes)))
    rows = _fold(rows, starts)
    of_one = pc.if_else(pa.array(sizes > 1), pa.scalar(None, pa.int32()), rows["import_no"])
    return Folded(rows.set_column(AS_TAKEN.get_field_index("import_no"), "import_no", of_one), met, merged, replaced)


def _fold(rows: pa.Table, starts: Numbers) -> pa.Table:
    """One row for each group of rows; groups begin at `starts`. The mask says what the row has."""
    numbers = np.arange(rows.num_rows)
    columns = {}
    for name in AS_TAKEN.names:
        column = rows[name]
        if name == "measured_mask":
            columns[name] = pa.array(np.bitwise_or.reduceat(column.to_numpy(), starts))
            continue
        valid = np.asarray(column.is_valid())
        last = np.maximum.reduceat(np.where(valid, numbers, -1), starts)
        columns[name] = column.take(pa.array(last, mask=last < 0))
    return pa.table(columns, schema=AS_TAKEN)


def _count_differing(rows: pa.Table, starts: Numbers, refuse: bool) -> int:
    """How many rows differ from another of their group in a column both have. With `refuse` they raise SamplesDifferError."""
    ends = np.append(starts[1:], rows.num_rows)
    differ = np.zeros(len(starts), dtype=np.bool_)
    for name in _SAID:
        if rows[name].null_count == rows.num_rows:
            continue
        values = rows[name].combine_chunks()
        big = np.inf if pa.types.is_floating(values.type) else np.iinfo(np.int64).max
        low = np.minimum.reduceat(pc.fill_null(values, big).to_numpy(zero_copy_only=False), starts)
        high = np.maximum.reduceat(pc.fill_null(values, -big).to_numpy(zero_copy_only=False), starts)
        wrong = low < high
        if refuse and wrong.any():
            group = int(wrong.argmax())
            raise _differ(rows.slice(starts[group], ends[group] - starts[group]), name)
        differ |= wrong
    return int((ends - starts - 1)[differ].sum())


def _differ(group: pa.Table, column: str) -> SamplesDifferError:
    """The error of a group of rows: it names the first row that has the column, and the first that contradicts it."""
    said = group.filter(pc.is_valid(group[column]))
    other = pc.index(pc.not_equal(said[column], said[column][0]), value=True).as_py()
    pair = said.take([0, other])
    first, second = pair["seq"].to_pylist()
    return SamplesDifferError((first, second), column, pair)


def _integers(rows: pa.Table, name: str) -> Numbers:
    """A column of whole numbers, -1 where it is null."""
    filled: Numbers = pc.fill_null(rows[name].cast(pa.int64()), -1).to_numpy()
    return filled
