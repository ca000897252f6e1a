"""A part of a log as numbers: what is between reading its text and knowing what it says of which GPU."""

from collections.abc import Mapping
from dataclasses import dataclass

from loadfactor.sources.nvidia_smi.cells import Cells, Numbers, parse_numbers
from loadfactor.sources.nvidia_smi.columns import UNITS
from loadfactor.sources.nvidia_smi.timestamps import WrittenTimes, parse_times

TIMESTAMP = "timestamp"


@dataclass(frozen=True)
class ParsedRows:
    """`count` rows. Columns are named as in `columns.QUERY_NAMES`: measured ones are numbers, the time apart, all others texts."""

    count: int
    times: WrittenTimes | None
    texts: Mapping[str, Cells]
    numbers: Mapping[str, Numbers]


def parse_columns(columns: Mapping[str, Cells]) -> ParsedRows:
    """The rows of these columns of text, all of one length."""
    return ParsedRows(
        len(next(iter(columns.values())).codes),
        parse_times(columns[TIMESTAMP]) if TIMESTAMP in columns else None,
        {name: cells for name, cells in columns.items() if name not in UNITS and name != TIMESTAMP},
        {name: parse_numbers(cells, UNITS[name]) for name, cells in columns.items() if name in UNITS},
    )
