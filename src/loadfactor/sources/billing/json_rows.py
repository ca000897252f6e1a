"""Lines of JSON objects, as BigQuery exports tables, in batches of cells: numbers as they are written, objects taken apart."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.csv_text import BATCH_ROWS, TextBatch
from loadfactor.sources.parsing.text_blocks import split_blocks

_ROWS_AT_ONCE: Final = BATCH_ROWS // 4  # a line is an object of Python before it is cells


def split_json(source: Input) -> Iterator[TextBatch]:
    """The objects of a file, a line each, in batches; `usage.amount` is a cell, a list is its JSON. Empty lines are read over.

    Raises SourceError naming input and line: not text, no JSON object.
    """
    lines = (line for block in split_blocks(source) for line in block.data.splitlines())
    first = 1
    while batch := list(islice(lines, _ROWS_AT_ONCE)):
        rows = [_read(source.label, number, line) for number, line in enumerate(batch, first) if line.strip()]
        first += len(batch)
        try:
            cells = make_batch(rows)
        except UnicodeEncodeError:
            last = first - 1
            raise SourceError(f"{source.label}, lines {first - len(batch)} to {last}: a text is not Unicode") from None
        if rows:
            yield TextBatch(cells, first - len(batch))


def make_batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Objects as cells of text; a key that one lacks is null there."""
    flat = [dict(_flatten("", row)) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    return pa.RecordBatch.from_arrays([pa.array([row.get(n) for row in flat], pa.string()) for n in names], list(names))


def _read(label: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SourceError(f"{label}, line {number}: is no JSON object; export the table as JSON, one object a line")
    return found


def _flatten(prefix: str, value: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    for name, cell in value.items():
        if isinstance(cell, dict):
            yield from _flatten(f"{prefix}{name}.", cell)
        elif isinstance(cell, list):
            yield f"{prefix}{name}", json.dumps(cell, ensure_ascii=False)
        else:
            yield f"{prefix}{name}", None if cell is None else cell if isinstance(cell, str) else json.dumps(cell)
