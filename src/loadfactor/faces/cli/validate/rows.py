"""Which rows did the user give? Files and folders of CSV, each row as it is written."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from loadfactor.errors import InputError

Row = Mapping[str, str | None]


def read_files(paths: Sequence[Path]) -> list[tuple[str, list[Row], bool]]:
    """(file name, its rows, was it named by itself rather than found in a folder), in order.

    Raises InputError when a path is missing or holds no CSV.
    """
    found: list[tuple[str, list[Row], bool]] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.csv"))
            if not inside:
                raise InputError(f"{path} holds no .csv file; give the file or the folder of your measurements")
            found += [(p.name, _read(p), False) for p in inside]
        else:
            found.append((path.name, _read(path), True))
    return found


def repeated(rows: Sequence[Row]) -> list[Row]:
    """The rows with a source of "same" spelled out: it repeats the row above."""
    result: list[Row] = []
    for row in rows:
        again = result and (row.get("source") or "").strip().lower() == "same"
        result.append({**row, "source": result[-1].get("source")} if again else row)
    return result


def _read(path: Path) -> list[Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = [{(k or "").strip(): v for k, v in row.items()} for row in csv.DictReader(lines)]
            return repeated(rows)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; give a CSV file or a folder of them") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a CSV file ({error})") from None
