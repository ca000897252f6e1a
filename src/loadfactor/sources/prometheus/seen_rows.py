"""Rows of devices and allocations that come again and again with a later end: what is fixed of them is made once."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_ABSENT = -1


class SeenRows:
    """The fixed columns of one row for each key, a number."""

    def __init__(self, schema: pa.Schema) -> None:
        """`schema`: of all columns but the end."""
        self._schema = schema
        self._rows = schema.empty_table()
        self._new: list[tuple[Any, ...]] = []
        self._at = np.empty(0, np.int64)  # the row of each key

    def put(self, key: int, row: tuple[Any, ...]) -> None:
        """The fixed columns of a key, instead of those it had."""
        if key >= len(self._at):
            self._at = np.append(self._at, np.full(key + 1, _ABSENT))
        self._at[key] = self._rows.num_rows + len(self._new)
        self._new.append(row)

    def forget(self, key: int) -> None:
        """Nothing is known of a key any more."""
        if key < len(self._at):
            self._at[key] = _ABSENT

    def take(self, keys: NDArray[np.int32], to_ms: NDArray[np.int64]) -> pa.Table:
        """The rows of those of these keys that have one, each with its end."""
        if self._new:
            self._add_new()
        keys, to_ms = keys[keys < len(self._at)], to_ms[keys < len(self._at)]
        at = self._at[keys]
        has = at != _ABSENT
        return self._rows.take(pa.array(at[has])).append_column("to_utc", pa.array(to_ms[has]))

    def _add_new(self) -> None:
        columns = zip(*self._new, strict=True)
        new = pa.table([pa.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)], schema=self._schema)
        used = np.flatnonzero(self._at != _ABSENT)
        rows = pa.concat_tables([self._rows, new])
        if rows.num_rows > 2 * len(used) + 1000:  # most are of keys that have another by now
            rows, self._at[used] = rows.take(pa.array(self._at[used])), np.arange(len(used))
        self._rows, self._new = rows.combine_chunks(), []
