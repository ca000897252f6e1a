"""Cells of a row of measurements: the first column, of several names for one thing, that says something."""

from collections.abc import Mapping
from math import isfinite

Row = Mapping[str, str | None]


class RowRefused(Exception):  # noqa: N818  # not an error: the row is skipped with this reason
    """Why a row cannot be used."""


def read_text(row: Row, *names: str) -> str | None:
    """The first of these columns that holds something; words for "unknown" hold nothing."""
    for name in names:
        value = (row.get(name) or "").strip()
        if value and value.lower() not in ("not given", "not in table", "n/a", "na", "none", "-", "unknown", "nan"):
            return value
    return None


def read_number(row: Row, *names: str) -> float | None:
    """The first of these columns that holds a positive, finite number."""
    value = read_text(row, *names)
    try:
        number = float((value or "").replace(",", ""))
    except ValueError:
        return None
    return number if isfinite(number) and number > 0 else None


def read_whole(row: Row, *names: str, default: int | None = None) -> int:
    """The first of these columns as a whole number; refused where it is none, or missing without a default."""
    said, value = read_text(row, *names), read_number(row, *names)
    if said is None and default is not None:
        return default
    if value is None or value != int(value):
        raise RowRefused(
            f"no {names[0]} in the row" if said is None else f"{names[0]} is {said}, not a whole number from 1 on"
        )
    return int(value)
