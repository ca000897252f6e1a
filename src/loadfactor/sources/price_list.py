"""What does an hour cost, and since when? A dated price list in the columns of the prices table: CSV, TOML, JSON or Parquet.

TOML holds `[[price]]` tables, JSON a list of objects (or that list under "prices"). A day such as 2026-05-01 is its midnight UTC.
"""

import json
import tomllib
from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from loadfactor.errors import SourceError
from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.sources.own_tables.csv_rows import csv_rows, typed_rows
from loadfactor.sources.own_tables.headings import check_headings
from loadfactor.sources.own_tables.parquet_rows import parquet_rows
from loadfactor.sources.parsing.csv_text import BATCH_ROWS, TextBatch, shown
from loadfactor.sources.parsing.lines import blocks, expand
from loadfactor.tables import PRICES
from loadfactor.units import BYTES_PER_MIB

_ENDINGS: Final = (".csv", ".toml", ".json", ".parquet")
_LIMIT_BYTES: Final = 16 * BYTES_PER_MIB  # some 100,000 prices; these two formats are read whole
_LISTS: Final = ("price", "prices")


def _files(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    found = expand(paths, _ENDINGS, "price list")
    for path in found:
        if not path.name.removesuffix(".gz").endswith(_ENDINGS):
            raise SourceError(f"{path}: a price list is a file ending in {', '.join(_ENDINGS)}")
    return found


def _read(paths: tuple[Path, ...], options: ReadOptions) -> Iterator[Rows | Gap]:
    for path in paths:
        name = path.name.removesuffix(".gz")
        if name.endswith(".parquet"):
            yield from parquet_rows(path, PRICES, options.timezone)
        elif name.endswith(".csv"):
            yield from csv_rows(path, PRICES, options.timezone)
        else:
            batches = _batches(path, _entries(path, _parsed(path, toml=name.endswith(".toml"))))
            yield from typed_rows(path, PRICES, batches, options.timezone)


def _parsed(path: Path, toml: bool) -> Any:
    text = bytearray()
    for block in blocks(path):
        text += block.data
        if len(text) > _LIMIT_BYTES:
            raise SourceError(f"{path} is larger than 16 MiB; write a list this long as CSV or Parquet")
    try:
        return tomllib.loads(text.decode()) if toml else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path} is not {'TOML' if toml else 'JSON'}: {str(error).splitlines()[0]}") from None


def _entries(path: Path, parsed: Any) -> list[dict[str, Any]]:
    """The prices as plain dictionaries, their names checked."""
    if isinstance(parsed, dict) and len(parsed) == 1 and next(iter(parsed)) in _LISTS:
        parsed = next(iter(parsed.values()))
    if not isinstance(parsed, list) or not parsed or not all(isinstance(p, dict) for p in parsed):
        raise SourceError(f"{path} holds no list of prices; write [[price]] tables (TOML) or a list of objects (JSON)")
    check_headings(path, list(dict.fromkeys(name for price in parsed for name in price)), PRICES)
    return parsed


def _batches(path: Path, prices: list[dict[str, Any]]) -> Iterator[TextBatch]:
    """The prices as text cells, so that they pass the same reading as a CSV."""
    names = [c.name for c in PRICES.columns if any(c.name in price for price in prices)]
    for i in range(0, len(prices), BATCH_ROWS):
        rows = prices[i : i + BATCH_ROWS]
        cells = {name: [_cell(path, i + j + 1, name, row.get(name)) for j, row in enumerate(rows)] for name in names}
        yield TextBatch(pa.RecordBatch.from_pydict({k: pa.array(v, pa.string()) for k, v in cells.items()}), i + 1)


def _cell(path: Path, row: int, name: str, value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bool | list | dict | time):
        raise SourceError(f"{path}, row {row}: {name} {shown(value)} is not one number, text or date")
    return str(value)


SOURCE = Source(
    "prices", "dated price list: CSV, TOML, JSON or Parquet in the columns of the prices table", _files, _read
)
