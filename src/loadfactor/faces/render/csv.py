"""A document as CSV: its data where that is a list of records, else its main table; values unrounded."""

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from loadfactor.errors import InputError
from loadfactor.faces.document import Document
from loadfactor.faces.render.json import to_plain


def render_csv(document: Document) -> str:
    """A heading and a line a row; an empty cell was not measured. InputError where the page has no table."""
    records = _records(document)
    tables = [table for section in document.sections for table in section.tables]
    if records:
        heads = list(dict.fromkeys(name for record in records for name in record))
        rows = [[record.get(name) for name in heads] for record in records]
    elif tables:
        heads = [column.title for column in tables[0].columns]
        rows = [list(row) for row in tables[0].rows]
    else:
        raise InputError("this answer has no table to write as CSV; take --format json")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    return out.getvalue()


def _records(document: Document) -> list[dict[str, Any]]:
    """The records of the data; the values of an object inside one are columns of their own, lists are JSON."""
    plain = to_plain(document.data)
    if not isinstance(plain, list) or not all(isinstance(item, dict) for item in plain):
        return []
    return [_flatten(item) for item in plain]


def _flatten(record: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(value))
        else:
            flat[name] = json.dumps(value) if isinstance(value, list) else value
    return flat
