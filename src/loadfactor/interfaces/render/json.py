"""A document's data as JSON, derived from its dataclasses: their fields, then their public properties."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any

from loadfactor.base.errors import InputError
from loadfactor.base.spelling import HIDDEN, spell_out
from loadfactor.interfaces.document import Document

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Beginnings of a formula; the wide signs do in some languages."""
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
    writer.writerow(map(_write_cell, heads))
    writer.writerows(map(_write_cell, row) for row in rows)
    return out.getvalue()


def _write_cell(cell: Any) -> Any:
    """A cell as CSV holds it: nothing for None, hidden characters spelled out, no formula.

    >>> _write_cell("=1+1"), _write_cell("-12.5"), _write_cell(-12.5), _write_cell(None)
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


def render_json(document: Document) -> str:
    """The data of a document as JSON text, a list one item a line; numbers that are not finite become null."""
    plain = to_plain(document.data)
    if not isinstance(plain, list):
        text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False)
    else:
        lines = ",\n ".join(json.dumps(item, ensure_ascii=False, allow_nan=False) for item in plain)
        text = f"[\n {lines}\n]" if lines else "[]"
    return HIDDEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    """A hidden character as JSON writes it, so that the value is the same and a terminal obeys nothing; line ends stay."""
    return "\n" if found[0] == "\n" else json.dumps(found[0])[1:-1]


def to_plain(value: Any) -> Any:
    """Plain JSON values: dataclasses become objects of their fields and public properties, infinities and NaN null.

    A class that has `as_json` says itself what it is in JSON. A name that Python keeps for itself (`from_`) loses its
    underscore. Instants are ISO 8601 in UTC, decimals texts with every digit.

    >>> to_plain({"when": date(2026, 3, 1), "never": float("inf"), "sizes": (1, 2)})
    {'when': '2026-03-01', 'never': None, 'sizes': [1, 2]}
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float):
        return value if isfinite(value) else None
    if hasattr(value, "as_json"):
        return to_plain(value.as_json())
    if is_dataclass(value) and not isinstance(value, type):
        return {name.rstrip("_"): to_plain(getattr(value, name)) for name in names_of(type(value))}
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, (Sequence, set, frozenset)):
        return [to_plain(v) for v in value]
    if isinstance(value, Enum):
        return to_plain(value.value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "tolist"):  # a numpy array or scalar
        return to_plain(value.tolist())
    return str(value)


def names_of(kind: type) -> list[str]:
    """Names in the JSON of a dataclass: its fields, then its properties, in the order they were written."""
    own = [item.name for item in fields(kind) if item.repr]
    derived = [
        name
        for base in reversed(kind.__mro__)
        for name, member in vars(base).items()
        if isinstance(member, property) and not name.startswith("_")
    ]
    return list(dict.fromkeys(own + derived))
