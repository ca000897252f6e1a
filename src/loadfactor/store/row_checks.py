"""Validation of rows: every batch of every source passes here. A row that cannot be true stops the import; of what exporters and
logs measure, a reading that cannot be true is left out, counted, and the others of its row are kept.

What comes out has the table's full schema: missing columns are null, empty texts are null, accelerators carry their catalog id.
A batch in which every least and greatest value can be true is right; only another one is looked at row by row.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS, MOST_JOB_GPU_HOURS, MOST_NODE_GPUS
from loadfactor.base.units import H_PER_YEAR, MS_PER_DAY, MS_PER_HOUR
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.sources.base import Gap, Rows
from loadfactor.tables.columns import Column, Table, arrow_type
from loadfactor.tables.schema import ALLOCATIONS, CURRENCY, DEVICES, NODE_SAMPLES, OUTAGES, SAMPLES, WITHIN, table
from loadfactor.tables.work import JOB_SECTIONS, PROGRESS, SERVED_REQUESTS

LONGEST_SAMPLE_MS: Final = 31 * MS_PER_DAY
"""Nothing measures a mean over more than a month."""
LONGEST_STAY_MS: Final = 50 * H_PER_YEAR * MS_PER_HOUR
"""Nothing stands, is held or works longer; what has no end yet leaves it empty."""
ROUNDING: Final = 1e-6  # a share may exceed one by as much as a decimal print loses

_LONGEST: Final = {
    **{t.name: LONGEST_SAMPLE_MS for t in (SAMPLES, NODE_SAMPLES)},
    **{t.name: LONGEST_STAY_MS for t in (DEVICES, ALLOCATIONS, OUTAGES, PROGRESS, JOB_SECTIONS, SERVED_REQUESTS)},
}
"""How long an interval of a table may be; prices may be valid for ever."""
_ORDERED: Final = (
    ("from_utc", "to_utc"),
    ("submitted_utc", "eligible_utc"),
    ("eligible_utc", "from_utc"),
    ("submitted_utc", "from_utc"),
)
"""An interval may not end before it begins, and a wait may not begin after its job."""
_NUMBERS: Final = ("share", "amount", "count")
_LONGEST_NUMBERS: Final = 6_000  # characters: a thousand numbers of GPUs
_HARMLESS: Final = 0.5  # stands for null: neither negative, nor 0, nor more than the whole


LeaveOut = Callable[[Gap], None]


def validate_rows(rows: Rows, first_row: int, leave_out: LeaveOut | None = None) -> pa.Table:
    """The batch with the table's schema and every value checked; `first_row` is the number of its first row, for messages.

    With `leave_out` measurements that cannot be true become empty, and are given to it as gaps. Raises SourceError naming file,
    row, column and value of the first other one that cannot be true.
    """
    kept = table(rows.table)
    where = rows.where or rows.table
    known = {c.name for c in kept.columns}
    for name in rows.data.column_names:
        if name not in known:
            raise SourceError(f"{where}: {kept.name} has no column {name!r}; see `loadfactor tables`")
    out = pa.table([_cast(rows.data, column, kept, where) for column in kept.columns], schema=kept.schema)
    if out.num_rows and not (_looks_right(out, kept) and _fits_nodes(out) and _fits_hours(out, kept)):
        check = _RowCheck(kept, out, where, first_row, leave_out)
        out = pa.table([check.column(c) for c in kept.columns], schema=kept.schema)
        _check_intervals(out, kept, where, first_row)
        _check_nodes(out, kept, where, first_row)
        for part, whole in WITHIN:
            if {part, whole} <= known:
                out = check.within(out, part, whole)
    if "accelerator" in known:
        # Drivers' names of accelerators as catalog ids, where the catalog knows them.
        names = out["accelerator"]
        encoded = names.combine_chunks().dictionary_encode()
        ids = [
            (found.id if (found := find_accelerator(n)) else n) if n is not None else None
            for n in encoded.dictionary.to_pylist()
        ]
        out = out.set_column(
            out.column_names.index("accelerator"), "accelerator", pa.array(ids, pa.string()).take(encoded.indices)
        )
    return out


def _cast(rows: pa.Table, column: Column, kept: Table, where: str) -> pa.Array:
    target = arrow_type(column.kind)
    if column.name not in rows.column_names:
        return pa.nulls(rows.num_rows, target)
    values = rows.column(column.name).combine_chunks()
    try:
        return values if values.type == target else values.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        why = " ".join(str(error).split())
        raise SourceError(f"{where}: {kept.name}.{column.name} is not {column.kind}: {why}") from error


def _looks_right(rows: pa.Table, kept: Table) -> bool:
    """Whether every value is right as it stands, by the least and the greatest of each column. False: look closely."""
    for column in kept.columns:
        values = rows[column.name]
        if column.required and values.null_count:
            return False
        if values.null_count < rows.num_rows and not _column_looks_right(values, column):
            return False
    for part, whole in WITHIN:
        if {part, whole} <= set(rows.column_names) and pc.any(_exceeds(rows[part], rows[whole])).as_py():
            return False
    longest = _LONGEST.get(kept.name)
    for earlier, later in _ORDERED:
        if not {earlier, later} <= set(rows.column_names) or rows.num_rows in (
            rows[earlier].null_count,
            rows[later].null_count,
        ):
            continue
        apart = pc.min_max(pc.subtract(rows[later], rows[earlier])).as_py()
        if (apart["min"] or 0) < 0 or (later == "to_utc" and longest is not None and (apart["max"] or 0) > longest):
            return False
    return True


def _column_looks_right(values: pa.ChunkedArray, column: Column) -> bool:
    if column.kind in _NUMBERS:
        numbers = (pc.fill_null(values, _HARMLESS) if values.null_count else values).to_numpy()
        low, high = numbers.min(), numbers.max()  # NaN where one of them is NaN: then no comparison holds
        return bool((low > 0 if column.above_zero else low >= 0) and high <= column.most)
    if column.kind == "mask":
        return bool(pc.min(values).as_py() >= 0)
    if column.kind == "instant":
        found = pc.min_max(values).as_py()
        return bool(found["min"] >= EARLIEST_MS and found["max"] <= LATEST_MS)
    if column.kind == "text":
        texts = pc.unique(values).drop_null()
        right = pc.not_equal(pc.utf8_trim_whitespace(texts), "")
        if column.one_of:
            right = pc.and_(right, pc.is_in(texts, pa.array(column.one_of)))
        if column.is_currency:
            right = pc.and_(right, pc.match_substring_regex(texts, CURRENCY))
        if column.is_numbers:
            right = pc.and_(right, _are_numbers(texts))
        return bool(pc.all(right).as_py())
    return True


def _exceeds(part: pa.ChunkedArray, whole: pa.ChunkedArray) -> pa.ChunkedArray:
    """Where a part is more than its whole; 0 as a whole says that nobody asked for it."""
    return pc.and_(pc.greater(whole, 0), pc.greater(part, pc.multiply(whole, 1 + ROUNDING)))


def _fits_nodes(rows: pa.Table) -> bool:
    """Whether no row has more GPUs on a node than a node can have."""
    if not {"gpus", "node"} <= set(rows.column_names):
        return True
    return not (pc.max(rows["gpus"]).as_py() or 0) > MOST_NODE_GPUS or not pc.any(_pass_nodes(rows)).as_py()


def _pass_nodes(rows: pa.Table) -> pa.ChunkedArray:
    return pc.and_(pc.is_valid(rows["node"]), pc.fill_null(pc.greater(rows["gpus"], MOST_NODE_GPUS), False))


def _check_nodes(rows: pa.Table, kept: Table, where: str, first_row: int) -> None:
    """GPUs of one node. Raises SourceError naming the first row with more than there can be."""
    index = -1 if _fits_nodes(rows) else pc.index(_pass_nodes(rows), value=True).as_py()
    if index >= 0:
        raise SourceError(
            f"{where}: row {first_row + index + 1}: {kept.name}.gpus {rows['gpus'][index].as_py()!r} of one node are more than "
            f"{MOST_NODE_GPUS:,}, the most there can be; leave node empty where it is no single one"
        )


def _fits_hours(rows: pa.Table, kept: Table) -> bool:
    """Whether no row holds more GPU-hours than a job can."""
    if kept.name != ALLOCATIONS.name or rows["gpus"].null_count == rows.num_rows:
        return True
    return not pc.any(_pass_hours(rows)).as_py()


def _pass_hours(rows: pa.Table) -> pa.ChunkedArray:
    gpu_ms = pc.multiply(rows["gpus"], pc.cast(pc.subtract(rows["to_utc"], rows["from_utc"]), pa.float64(), safe=False))
    return pc.greater(gpu_ms, MOST_JOB_GPU_HOURS * MS_PER_HOUR)


def _are_numbers(texts: pa.Array) -> pa.Array:
    short = pc.less_equal(pc.utf8_length(texts), _LONGEST_NUMBERS)
    return pc.and_(short, pc.match_substring_regex(texts, r"^\d+(,\d+)*$"))


class _RowCheck:
    """The rules of one batch, value by value."""

    def __init__(self, kept: Table, rows: pa.Table, where: str, first_row: int, leave_out: LeaveOut | None) -> None:
        self._kept, self._rows, self._where, self._first_row = kept, rows, where, first_row
        self._leave_out = leave_out

    def column(self, column: Column) -> pa.Array:
        """One column with the rules of its kind. Raises SourceError naming the first value that cannot be true."""
        values = self._rows[column.name].combine_chunks()
        if column.kind == "text":
            values = pc.if_else(pc.equal(pc.utf8_trim_whitespace(values), ""), pa.scalar(None, pa.string()), values)
        if column.kind in _NUMBERS:
            unreal = pc.invert(pc.is_finite(values))
            values = self._refuse(column, values, unreal, "is not a finite number; leave what was not measured empty")
        if column.kind in (*_NUMBERS, "mask"):
            values = self._refuse(column, values, pc.less(values, 0), "is negative")
        if column.above_zero:
            values = self._refuse(column, values, pc.equal(values, 0), "is not above 0")
        if column.kind in ("amount", "count"):
            values = self._refuse(
                column,
                values,
                pc.greater(values, column.most),
                f"is more than {column.most:,.15g}, the most there can be",
            )
        if column.kind == "share":
            more = "is more than the whole: a share lies between 0 and 1"
            values = self._refuse(column, values, pc.greater(values, 1 + ROUNDING), more)
            values = pc.min_element_wise(values, pa.scalar(1.0), skip_nulls=False)
        if column.kind == "instant":
            wrong = pc.or_(pc.less(values, EARLIEST_MS), pc.greater(values, LATEST_MS))
            never = "is no instant of the years 2000 to 2100 in milliseconds since 1970; leave what is not known empty"
            values = self._refuse(column, values, wrong, never)
        if column.one_of:
            wrong = pc.and_(pc.invert(pc.is_in(values, pa.array(column.one_of))), pc.is_valid(values))
            values = self._refuse(column, values, wrong, f"is none of {', '.join(column.one_of)}")
        if column.is_currency:
            wrong = pc.invert(pc.match_substring_regex(values, CURRENCY))
            values = self._refuse(column, values, wrong, "is no currency; write three capital letters, like EUR")
        if column.is_numbers:
            wrong = pc.invert(_are_numbers(values))
            values = self._refuse(column, values, wrong, "is no list of at most 1,000 numbers of GPUs; write 0,1,5")
        if column.required:
            values = self._refuse(column, values, pc.is_null(values), "is empty and may not be")
        return values

    def within(self, rows: pa.Table, part: str, whole: str) -> pa.Table:
        """The rows, checked that one measurement is no more than another one that it is a part of. Raises SourceError."""
        values = rows[part].combine_chunks()
        wrong = _exceeds(values, rows[whole].combine_chunks())
        checked = self._refuse(self._kept.column(part), values, wrong, f"is more than {whole}")
        return rows.set_column(rows.column_names.index(part), rows.schema.field(part), checked)

    def _refuse(self, column: Column, values: pa.Array, wrong: pa.Array, why: str) -> pa.Array:
        """The values, without the wrong ones where those may be left out. Raises SourceError naming the first of them."""
        wrong = pc.fill_null(wrong, False)
        index = pc.index(wrong, value=True).as_py()
        if index < 0:
            return values
        value = values[index].as_py()
        shown = "" if value is None else f" {value!r}"
        if self._leave_out is None or not column.is_measured:
            raise SourceError(
                f"{self._where}: row {self._first_row + index + 1}: {self._kept.name}.{column.name}{shown} {why}"
            )
        of = self._rows[self._kept.key[0]][index].as_py()
        what = f"{column.name} left out: it {why.partition(';')[0].partition(':')[0]}"
        self._leave_out(Gap(self._where, what, pc.sum(wrong).as_py(), "impossible", f"{column.name}{shown} of {of}"))
        return pc.if_else(wrong, pa.scalar(None, values.type), values)


def _check_intervals(rows: pa.Table, kept: Table, where: str, first_row: int) -> None:
    """The order of instants, and the length of intervals. Raises SourceError naming the first row that cannot be true."""

    def refuse(wrong: pa.ChunkedArray, what: str) -> None:
        index = pc.index(pc.fill_null(wrong, False), value=True).as_py()
        if index >= 0:
            raise SourceError(f"{where}: row {first_row + index + 1}: {kept.name}.{what}")

    for earlier, later in _ORDERED:
        if earlier in rows.column_names and later in rows.column_names:
            refuse(pc.greater(rows[earlier], rows[later]), f"{later} lies before {earlier}: a reversed interval")
    longest = _LONGEST.get(kept.name)
    if longest is not None:
        length = pc.subtract(rows["to_utc"], rows["from_utc"])
        days = longest // MS_PER_DAY
        refuse(
            pc.greater(length, longest), f"from_utc lies more than {days:,} days before to_utc; one of them is wrong"
        )
    if not _fits_hours(rows, kept):
        refuse(
            _pass_hours(rows),
            f"gpus from from_utc to to_utc are more than {MOST_JOB_GPU_HOURS:,.0f} GPU-hours; check them",
        )
