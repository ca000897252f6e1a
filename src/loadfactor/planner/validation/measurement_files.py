"""Files of measurements that a user names: CSV files and folders of them, each row as it is written."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Final

from loadfactor.base.errors import InputError
from loadfactor.base.limits import Limits, shorten
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.files import read_file

MEASURED: Final = Limits(at_least=0.000_001, at_most=1e15)
COUNTED: Final = Limits(at_least=1, at_most=10_000_000)
Row = Mapping[str, str | None]


class RowRefused(Exception):  # noqa: N818  # not an error: the row is skipped with this reason
    """Why a row cannot be used."""


def read_text(row: Row, *names: str) -> str | None:
    """The first of these columns that holds something; words for "unknown" hold nothing."""
    return _find_cell(row, names)[1]


def _find_cell(row: Row, names: Sequence[str]) -> tuple[str, str | None]:
    for name in names:
        value = (row.get(name) or "").strip()
        if value and value.lower() not in (
            "not given",
            "not in table",
            "n/a",
            "na",
            "none",
            "-",
            "unknown",
            "nan",
            "null",
        ):
            return name, value
    return names[0], None


def read_number(row: Row, *names: str, limits: Limits = MEASURED, kind: str = "number") -> float | None:
    """The first of these columns that holds something, as a number; refused where it is none inside the limits."""
    name, text = _find_cell(row, names)
    if text is None:
        return None
    try:
        number = float(text.replace(",", ""))  # between thousands
    except ValueError:
        number = nan
    if not limits.admit(number) or (kind == "whole number" and number != int(number)):
        raise RowRefused(f"{name} must be a {kind} {limits.words}, got {shorten(text)}")
    return number


def read_whole(row: Row, *names: str, default: int | None = None, limits: Limits = COUNTED) -> int:
    """The first of these columns as a whole number; refused where it is none, or missing without a default."""
    number = read_number(row, *names, limits=limits, kind="whole number")
    if number is None and default is None:
        raise RowRefused(f"no {names[0]} in the row")
    return int(default or 0) if number is None else int(number)


LIMIT_BYTES: Final = 64 * BYTES_PER_MIB  # far above any list of measurements


@dataclass(frozen=True)
class MeasurementFile:
    """The rows of one file; `named` where the user named it, rather than the folder it lies in."""

    name: str
    rows: Sequence[Row]
    named: bool = True


def read_measurement_files(paths: Sequence[Path]) -> list[MeasurementFile]:
    """The files in order, those of a folder by name.

    Raises InputError when a path is missing or holds no CSV.
    """
    found: list[MeasurementFile] = []
    for path in paths:
        if not path.is_dir():
            found.append(MeasurementFile(path.name, _read_rows(path)))
            continue
        inside = sorted(path.glob("*.csv"))
        if not inside:
            raise InputError(f"{path} holds no .csv file; give the file or the folder of your measurements")
        found += [MeasurementFile(p.name, _read_rows(p), named=False) for p in inside]
    return found


def fill_sources(rows: Sequence[Row]) -> list[Row]:
    """The rows with what they say of the row above written out: a source of "same", techniques that begin with "and".

    >>> rows = fill_sources([{"techniques": "packed", "source": "a"}, {"techniques": "and offloading", "source": "same"}])
    >>> rows[1]
    {'techniques': 'packed, and offloading', 'source': 'a'}
    """
    result: list[Row] = []
    for row in rows:
        one = dict(row)
        above = result[-1] if result else {}
        if above and (row.get("source") or "").strip().lower() == "same":
            one["source"] = above.get("source")
        text = (row.get("techniques") or "").strip()
        if above.get("techniques") and (text.lower().startswith("and ") or "on the above" in text.lower()):
            one["techniques"] = f"{above['techniques']}, {text}"
        result.append(one)
    return result


def _read_rows(path: Path) -> list[Row]:
    try:
        lines = io.StringIO(read_file(path, LIMIT_BYTES).decode("utf-8-sig"), newline="")
        return fill_sources([{(k or "").strip(): v for k, v in row.items()} for row in csv.DictReader(lines)])
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file ({error})") from None
