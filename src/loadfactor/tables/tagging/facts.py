"""What rows say of their jobs, value by value: columns and tags as numbered distinct values, so that each is compared once."""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.tables.tagging.rules import BILL_TAGS, CHARGE_COLUMNS, GIVES, MATCHED_COLUMNS

Places = npt.NDArray[np.int64]
"""Numbers of rows."""


class FactColumn:
    """One value a row: `values[codes[row]]`, distinct; the last of the values is None, for rows that have none."""

    def __init__(self, values: Sequence[str | None], codes: Places) -> None:
        self.values: npt.NDArray[np.object_] = np.array([*values, None], dtype=object)
        self.codes = codes

    @classmethod
    def of_column(cls, column: pa.ChunkedArray) -> "FactColumn":
        """The values of a text column."""
        encoded = column.combine_chunks().dictionary_encode()
        values = encoded.dictionary.to_pylist()
        return cls(values, encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64))

    @classmethod
    def of_documents(cls, texts: "FactColumn", found: Sequence[str | None]) -> "FactColumn":
        """What the documents of a field say: `found` of each of its values but None."""
        known = dict.fromkeys(value for value in found if value is not None)
        distinct: dict[str | None, int] = {value: code for code, value in enumerate(known)}
        codes = np.array([distinct.get(value, len(distinct)) for value in (*found, None)], np.int64)
        return cls(list(known), codes[texts.codes])

    @classmethod
    def empty(cls, rows: int) -> "FactColumn":
        """A field that no row has."""
        return cls((), np.zeros(rows, np.int64))

    @cached_property
    def _codes_by_value(self) -> dict[str | None, int]:
        return {value: code for code, value in enumerate(self.values)}

    @cached_property
    def _order(self) -> tuple[Places, Places]:
        order = np.argsort(self.codes, kind="stable")
        return order, np.searchsorted(self.codes[order], np.arange(len(self.values) + 1))

    def find_rows(self, value: str) -> Places:
        """The rows with this value, in order."""
        code = self._codes_by_value.get(value)
        if code is None:
            return np.empty(0, np.int64)
        order, starts = self._order
        return order[starts[code] : starts[code + 1]]

    def take(self, rows: Places) -> npt.NDArray[np.object_]:
        """The values of some rows."""
        taken: npt.NDArray[np.object_] = self.values[self.codes[rows]]
        return taken


class Facts:
    """The fields of a batch of rows, each worked out when it is first asked for."""

    def __init__(self, rows: pa.Table) -> None:
        """`rows` with their columns as the source said them."""
        self._rows = rows
        self._fields: dict[str, FactColumn] = {}

    def field(self, name: str) -> FactColumn:
        """A field by its name in rules."""
        if name not in self._fields:
            self._fields[name] = self._read(name)
        return self._fields[name]

    def _read(self, name: str) -> FactColumn:
        column = MATCHED_COLUMNS.get(name)
        if column is None:
            texts, documents = self._tags
            return FactColumn.of_documents(texts, [_read_text(document.get(name)) for document in documents])
        if column in self._rows.column_names:
            return FactColumn.of_column(self._rows[column])
        return FactColumn.empty(self._rows.num_rows)

    @cached_property
    def _tags(self) -> tuple[FactColumn, list[dict[str, Any]]]:
        texts = FactColumn.of_column(self._rows["tags"])
        return texts, [read_object(text) for text in texts.values[:-1]]


class ChargeFacts(Facts):
    """The fields of rows of charges: `tag.KEY` is a tag of the bill, `account` the sub account's id, or its name without one."""

    def _read(self, name: str) -> FactColumn:
        if name.startswith(BILL_TAGS):
            texts, documents = self._tags
            key = name.partition(".")[2]
            return FactColumn.of_documents(texts, [_read_text(document.get(key)) for document in documents])
        if name in CHARGE_COLUMNS:
            columns = [self._rows[column] for column in CHARGE_COLUMNS[name]]
            return FactColumn.of_column(pc.coalesce(*columns))
        return super()._read(name) if name in MATCHED_COLUMNS else FactColumn.empty(self._rows.num_rows)

    @cached_property
    def _tags(self) -> tuple[FactColumn, list[dict[str, Any]]]:
        texts = FactColumn.of_column(pc.coalesce(self._rows["AllocatedTags"], self._rows["Tags"]))
        return texts, [read_object(text) for text in texts.values[:-1]]


def read_object(text: str | None) -> dict[str, Any]:
    """A JSON object; an empty one where the text is none."""
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _read_text(value: Any) -> str | None:
    """A value of a tag as text; None where there is nothing in it."""
    if value is None:
        return None
    text = (value if isinstance(value, str) else json.dumps(value)).strip()
    return text or None


def _read_said(value: Any) -> str | None:
    """A text as it was said; None for the empty one, which stands for nothing."""
    return value if isinstance(value, str) and value else None


ORIGINAL = "original_holder"
"""The column with what the source said, as a JSON object by column, where rules say otherwise; "" where it said nothing."""


def restore_said(rows: pa.Table) -> pa.Table:
    """The rows as their source said them, before any rule."""
    if rows[ORIGINAL].null_count == rows.num_rows:
        return rows
    texts = FactColumn.of_column(rows[ORIGINAL])
    documents = [read_object(text) for text in texts.values]  # the last is that of none
    for column in GIVES.values():
        replaced = np.array([column in document for document in documents])[texts.codes]
        if replaced.any():
            said = FactColumn.of_documents(texts, [_read_said(document.get(column)) for document in documents[:-1]])
            values = FactColumn.of_column(rows[column])
            everywhere = np.arange(rows.num_rows)
            merged = np.where(replaced, said.take(everywhere), values.take(everywhere))
            rows = rows.set_column(rows.column_names.index(column), column, pa.array(merged, pa.string()))
    return rows.set_column(rows.column_names.index(ORIGINAL), ORIGINAL, pa.nulls(rows.num_rows, pa.string()))
