"""Cells of a row of measurements: the first column, of several names for one thing, that says something."""

from collections.abc import Mapping
from math import nan
from typing import Final

from loadfactor.base.limits import Limits, shorten

MEASURED: Final = Limits(at_least=0.000_001, at_most=1e15)
COUNTED: Final = Limits(at_least=1, at_most=10_000_000)
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


def read_number(row: Row, *names: str, limits: Limits = MEASURED) -> float | None:
    """The first of these columns that holds something, as a number; refused where it is none inside the limits."""
    for name in names:
        said = read_text(row, name)
        if said is not None:
            number = _parse(said)
            if not limits.admit(number):
                raise RowRefused(f"{name} must be a number {limits.words}, got {shorten(said)}")
            return number
    return None


def read_whole(row: Row, *names: str, default: int | None = None, limits: Limits = COUNTED) -> int:
    """The first of these columns as a whole number; refused where it is none, or missing without a default."""
    for name in names:
        said = read_text(row, name)
        if said is not None:
            number = _parse(said)
            if not limits.admit(number) or number != int(number):
                raise RowRefused(f"{name} must be a whole number {limits.words}, got {shorten(said)}")
            return int(number)
    if default is None:
        raise RowRefused(f"no {names[0]} in the row")
    return default


def _parse(text: str) -> float:
    """The number that is written, with commas between thousands or not; NaN where it is none."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return nan
