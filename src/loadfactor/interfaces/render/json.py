"""A document's data as JSON, derived from its dataclasses: their fields, then their public properties."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any

from loadfactor.base.spelling import HIDDEN
from loadfactor.interfaces.document import Document


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
        return {name.rstrip("_"): to_plain(getattr(value, name)) for name in _names_of(type(value))}
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


def _names_of(kind: type) -> list[str]:
    """What a dataclass says of itself: its fields, then its properties, in the order they were written."""
    own = [item.name for item in fields(kind) if item.repr]
    derived = [
        name
        for base in reversed(kind.__mro__)
        for name, member in vars(base).items()
        if isinstance(member, property) and not name.startswith("_")
    ]
    return list(dict.fromkeys(own + derived))
