"""A document as CSV: its data where that is a list of records, else its main table; values unrounded.

A text that a spreadsheet would run as a formula has an apostrophe before it, which spreadsheets do not show.
"""

import csv
import io
import json
import re
from collections.abc import Mapping
from typing import Any

from loadfactor.base.errors import InputError
from loadfactor.base.spelling import spell_out
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.render.json import to_plain

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What begins a formula; the wide signs do in some languages."""
NUMBER = re.compile(r"[+-]?(\d[\d,]*\.?\d*|\.\d+)([eE][+-]?\d+)?( ?%)?")


def render_csv(document: Document) -> str:
    """A heading and a line a row; an empty cell was not measured. InputError where the page has no table."""
    records = _records(document)
    tables = [table for section in document.sections for table in section.tables]
    if records:
        heads = list(dict.fromkeys(name for record in records for name in record))
        rows: list[list[Any]] = [[record.get(name) for name in heads] for record in records]
    elif tables:
        heads = [column.title for column in tables[0].columns]
        rows = [list(row) for row in tables[0].rows]
    else:
        raise InputError("this answer has no table to write as CSV; take --format json")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_write, heads))
    writer.writerows(map(_write, row) for row in rows)
    return out.getvalue()


def _write(cell: Any) -> Any:
    """A cell as CSV holds it: nothing for None, hidden characters spelled out, no formula.

    >>> _write("=1+1"), _write("-12.5"), _write(-12.5), _write(None)
    ("'=1+1", '-12.5', -12.5, '')
    """
    if not isinstance(cell, str):
        return "" if cell is None else cell
    is_formula = cell.lstrip(" ").startswith(FORMULA_STARTS) and not NUMBER.fullmatch(cell)
    return "'" * is_formula + spell_out(cell)


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
