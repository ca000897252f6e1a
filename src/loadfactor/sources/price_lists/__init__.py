"""Dated price lists: in the columns of the prices table (CSV, TOML, JSON, Parquet, by the file's ending), and Azure's price sheets.

TOML holds `[[price]]` tables, JSON a list of objects (or that list under "prices"). A day such as 2026-05-01 is its midnight UTC.
"""

import json
import tomllib
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from typing import Any, Final

import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows, Source
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.own_tables.parquet_rows import check_headings, convert_cells, decode_csv, decode_parquet
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.csv_text import BATCH_ROWS, TextBatch
from loadfactor.sources.parsing.text_blocks import join_pieces, split_blocks
from loadfactor.sources.price_lists.azure_sheet import decode_price_sheet, is_price_sheet
from loadfactor.tables.schema import PRICES

_ENDINGS: Final = (".csv", ".toml", ".json", ".parquet")
_LIMIT_BYTES: Final = 16 * BYTES_PER_MIB  # some 100,000 prices; all but CSV is read whole
_WRITE_CSV: Final = "write a list this long as CSV"
_LISTS: Final = ("price", "prices")


def decode_price_lists(lists: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The prices of these lists. Raises SourceError naming list, row, column and value of what is no price."""
    for source in lists:
        if not source.name.removesuffix(".gz").endswith(_ENDINGS):
            raise SourceError(f"{source.label}: a price list is a file ending in {', '.join(_ENDINGS)}")
    for source in lists:
        name, label = source.name.removesuffix(".gz"), source.label
        if name.endswith(".csv") and is_price_sheet(source):
            yield from decode_price_sheet(source, options)
            continue
        if options.region or options.instance_type or options.pool:
            raise SourceError(
                f"{label}: --region, --instance-type and --pool choose from price sheets of clouds; this list says in its columns"
                " accelerator and pool what its prices are for"
            )
        if name.endswith(".parquet"):
            file = pa.BufferReader(join_pieces(label, source.chunks, _LIMIT_BYTES, _WRITE_CSV))
            yield from decode_parquet(file, label, PRICES, options.timezone)
        elif name.endswith(".csv"):
            yield from decode_csv(source, PRICES, options.timezone)
        else:
            prices = _check_prices(label, _parse(source, toml=name.endswith(".toml")))
            yield from convert_cells(label, PRICES, _split_prices(label, prices), options.timezone)


def _parse(source: Input, toml: bool) -> Any:
    text = join_pieces(source.label, (block.data for block in split_blocks(source)), _LIMIT_BYTES, _WRITE_CSV)
    try:
        return tomllib.loads(text.decode()) if toml else json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise SourceError(f"{source.label} is not {'TOML' if toml else 'JSON'}: {reason}") from None


def _check_prices(label: str, parsed: Any) -> list[dict[str, Any]]:
    if isinstance(parsed, dict) and len(parsed) == 1 and next(iter(parsed)) in _LISTS:
        parsed = next(iter(parsed.values()))
    if not isinstance(parsed, list) or not parsed or not all(isinstance(p, dict) for p in parsed):
        raise SourceError(f"{label} holds no list of prices; write [[price]] tables (TOML) or a list of objects (JSON)")
    check_headings(label, list(dict.fromkeys(name for price in parsed for name in price)), PRICES)
    return parsed


def _split_prices(label: str, prices: list[dict[str, Any]]) -> Iterator[TextBatch]:
    """The prices as text cells, so that they pass the same reading as a CSV."""
    names = [c.name for c in PRICES.columns if any(c.name in price for price in prices)]
    for i in range(0, len(prices), BATCH_ROWS):
        rows = prices[i : i + BATCH_ROWS]
        cells = {
            name: [_write_cell(label, i + j + 1, name, row.get(name)) for j, row in enumerate(rows)] for name in names
        }
        yield TextBatch(pa.RecordBatch.from_pydict({k: pa.array(v, pa.string()) for k, v in cells.items()}), i + 1)


def _write_cell(label: str, row: int, name: str, value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bool | list | dict | time):
        raise SourceError(f"{label}, row {row}: {name} {quote(value)} is not one number, text or date")
    return str(value)


SOURCE = Source(
    "prices",
    find_with(_ENDINGS, "price list"),
    read_with(decode_price_lists),
    uses=("timezone", "pool", "region", "instance_type"),
)
