"""Validation of rows: every batch of every source passes here, and a row that cannot be true stops the import.

What comes out has the table's full schema: missing columns are null, empty texts are null, accelerators carry their catalog id.
"""

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.errors import SourceError
from loadfactor.sources.base import Rows
from loadfactor.tables import CURRENCY, Column, Table, table
from loadfactor.units import MS_PER_S, S_PER_DAY

LATEST_MS = 200 * 366 * S_PER_DAY * MS_PER_S  # year 2170: anything later is a unit mistake
ROUNDING = 1e-6  # a share may exceed one by as much as a decimal print loses


def validate_rows(rows: Rows, first_row: int) -> pa.Table:
    """The batch with the table's schema and every value checked; `first_row` is the number of its first row, for messages.

    Raises SourceError naming file, row, column and value of the first one that cannot be true.
    """
    kept = table(rows.table)
    where = rows.where or rows.table
    known = {c.name for c in kept.columns}
    for name in rows.data.column_names:
        if name not in known:
            raise SourceError(f"{where}: {kept.name} has no column {name!r}; see `loadfactor tables`")
    columns = []
    for column in kept.columns:
        if column.name in rows.data.column_names:
            values = rows.data.column(column.name).combine_chunks()
        else:
            values = pa.nulls(rows.data.num_rows)
        columns.append(_checked(values, column, kept, where, first_row))
    out = pa.table(columns, schema=kept.schema)
    _check_order(out, kept, where, first_row)
    if "accelerator" in known:
        out = out.set_column(out.column_names.index("accelerator"), "accelerator", _catalog_ids(out["accelerator"]))
    return out


def _checked(values: pa.Array, column: Column, kept: Table, where: str, first_row: int) -> pa.Array:
    """One column, cast to its type, with the rules of its kind."""
    target = kept.schema.field(column.name).type

    def refuse(wrong: pa.Array, why: str) -> None:
        index = pc.index(wrong, value=True).as_py()
        if index >= 0:
            value = values[index].as_py()
            shown = "" if value is None else f" {value!r}"
            raise SourceError(f"{where}: row {first_row + index + 1}: {kept.name}.{column.name}{shown} {why}")

    try:
        values = values.cast(target) if values.type != target else values
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        why = " ".join(str(error).split())
        raise SourceError(f"{where}: {kept.name}.{column.name} is not {column.kind}: {why}") from error
    if column.kind == "text":
        values = pc.if_else(pc.equal(pc.utf8_trim_whitespace(values), ""), pa.scalar(None, pa.string()), values)
    if column.kind in ("share", "amount", "count"):
        refuse(
            pc.fill_null(pc.invert(pc.is_finite(values)), False),
            "is not a finite number; leave what was not measured empty",
        )
        refuse(pc.fill_null(pc.less(values, 0), False), "is negative")
    if column.above_zero:
        refuse(pc.fill_null(pc.equal(values, 0), False), "is not above 0")
    if column.kind == "share":
        refuse(
            pc.fill_null(pc.greater(values, 1 + ROUNDING), False),
            "is more than the whole: a share lies between 0 and 1",
        )
        values = pc.min_element_wise(values, pa.scalar(1.0), skip_nulls=False)
    if column.kind == "instant":
        wrong = pc.or_(pc.less(values, 0), pc.greater(values, LATEST_MS))
        refuse(pc.fill_null(wrong, False), "is no instant in milliseconds since 1970")
    if column.one_of:
        wrong = pc.invert(pc.is_in(values, pa.array(column.one_of)))
        refuse(pc.and_(wrong, pc.is_valid(values)), f"is none of {', '.join(column.one_of)}")
    if column.is_currency:
        wrong = pc.invert(pc.match_substring_regex(values, CURRENCY))
        refuse(pc.fill_null(wrong, False), "is no currency; write three capital letters, like EUR")
    if column.required:
        refuse(pc.is_null(values), "is empty and may not be")
    return values


def _check_order(rows: pa.Table, kept: Table, where: str, first_row: int) -> None:
    """An interval may not end before it begins, and a wait may not begin after its job."""
    pairs = [
        ("from_utc", "to_utc"),
        ("submitted_utc", "eligible_utc"),
        ("eligible_utc", "from_utc"),
        ("submitted_utc", "from_utc"),
    ]
    for earlier, later in pairs:
        if earlier in rows.column_names and later in rows.column_names:
            wrong = pc.fill_null(pc.greater(rows[earlier], rows[later]), False)
            index = pc.index(wrong, value=True).as_py()
            if index >= 0:
                raise SourceError(
                    f"{where}: row {first_row + index + 1}: {kept.name}.{later} lies before {earlier}: a reversed interval"
                )


def _catalog_ids(names: pa.ChunkedArray) -> pa.Array:
    """Drivers' names of accelerators as catalog ids, where the catalog knows them."""
    encoded = names.combine_chunks().dictionary_encode()
    ids = [
        (found.id if (found := find_accelerator(n)) else n) if n is not None else None
        for n in encoded.dictionary.to_pylist()
    ]
    return pa.array(ids, pa.string()).take(encoded.indices)
