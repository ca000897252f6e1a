"""Amounts of bills whose columns semicolons separate: many countries write a comma before decimals there, others a point."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.csv_text import TextBatch

_AMOUNTS: Final = re.compile("cost|price|quantity|rate|amount|credit|fee|discount|upfront", re.IGNORECASE)


def _shape(number: str) -> str:
    """The pattern of a whole cell with such a number: a sign, a currency before or behind it, an exponent."""
    return rf"^\s*(?:[A-Z]{{3}}|[$€£¥])?\s*[-+(]?(?:{number})(?:[eE][-+]?[0-9]+)?\)?\s*(?:[A-Z]{{3}}|[$€£¥])?\s*$"


_COMMA: Final = _shape(r"[0-9]+,[0-9]{1,2}|[0-9]+,[0-9]{4,}|[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+|0,[0-9]+")
_POINT: Final = _shape(r"[0-9]+\.[0-9]{1,2}|[0-9]+\.[0-9]{4,}|[0-9]{1,3}(?:,[0-9]{3})+\.[0-9]+|0\.[0-9]+")
_EITHER: Final = _shape(r"[0-9]{1,3}[.,][0-9]{3}")
_WITH_COMMA: Final = _shape(r"(?:[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]+)(?:,[0-9]+)?")


def learn_decimals(label: str, batches: Iterable[TextBatch]) -> bool:
    """True where the amounts of this file have a comma before decimals, False where they have a point, or no decimals.

    Raises SourceError where they have both, or nothing shows which: 1,234 and 1.234 are each two amounts.
    """
    found: dict[str, str] = {}
    for batch in batches:
        for _, cells in _list_amounts(batch):
            for kind, pattern in (("comma", _COMMA), ("point", _POINT), ("either", _EITHER)):
                if kind not in found:
                    text = next(
                        iter(cells.filter(pc.match_substring_regex(cells, pattern)).slice(0, 1).to_pylist()), None
                    )
                    found |= {} if text is None else {kind: text}
    if "comma" in found and "point" in found:
        raise SourceError(
            f"{label}: amounts with a comma before their decimals ({quote(found['comma'])}) and with a point "
            f"({quote(found['point'])}); export it with one of them"
        )
    if "either" in found and not ("comma" in found or "point" in found):
        raise SourceError(
            f"{label}: {quote(found['either'])} could be thousands or decimals, and nothing in the file shows which; "
            "export it with a point before decimals"
        )
    return "comma" in found


def write_points(batch: TextBatch) -> TextBatch:
    """The same rows, with a point before the decimals of amounts and nothing between thousands."""
    columns = dict(zip(batch.cells.schema.names, batch.cells.columns, strict=True))
    for name, cells in _list_amounts(batch):
        is_number = pc.match_substring_regex(cells, _WITH_COMMA)
        plain = pc.replace_substring(pc.replace_substring(cells, ".", ""), ",", ".")
        columns[name] = pc.if_else(pc.fill_null(is_number, False), plain, cells)
    return TextBatch(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), batch.first_row)


def _list_amounts(batch: TextBatch) -> Iterator[tuple[str, pa.Array]]:
    for name, cells in zip(batch.cells.schema.names, batch.cells.columns, strict=True):
        if _AMOUNTS.search(name) and pa.types.is_string(cells.type):
            yield name, cells
