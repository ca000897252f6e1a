"""Templates of the tables: an empty CSV for each, its header line in place, and a note of what belongs in it."""

from typing import Final

from loadfactor.tables.columns import Column
from loadfactor.tables.schema import GIVEN

_README: Final = "README.md"
_KINDS: Final = {
    "text": "text",
    "instant": "time with its zone",
    "share": "0 to 1",
    "amount": "number",
    "count": "number",
    "mask": "whole number",
    "flag": "true or false",
    "exact": "number, kept exactly",
}


def describe_kind(column: Column) -> str:
    """How a value of the column is written.

    >>> from loadfactor.tables.schema import PRICES
    >>> describe_kind(PRICES.column("basis"))
    'effective, contracted, owned, list or estimate'
    """
    if column.one_of:
        return f"{', '.join(column.one_of[:-1])} or {column.one_of[-1]}"
    return _KINDS[column.kind]


def make_templates() -> dict[str, str]:
    """The files to fill in, by name: `<table>.csv` with its header line for every table, and a README."""
    headings = {f"{table.name}.csv": ",".join(c.name for c in table.columns) + "\n" for table in GIVEN}
    return headings | {_README: _write_readme()}


def _write_readme() -> str:
    lines = [
        "# Tables to fill in",
        "",
        "Fill in what you know, leave out tables and columns you have nothing for, then `loadfactor import tables` this folder.",
        "A time is ISO 8601 with its zone (2026-05-01T12:00:00Z, …+02:00) or epoch milliseconds. A number is in the unit its",
        "column's name ends with. An empty cell is null: not known. Parquet files with these columns are read too.",
        "Where devices is left empty, GPUs are taken to be there from the first to the last time they are mentioned.",
    ]
    for table in GIVEN:
        lines += [
            "",
            f"## {table.name}: {table.says}",
            "",
            "| column | written as | meaning | empty means |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {c.name} | {describe_kind(c)} | {c.meaning} | {c.empty or 'not allowed'} |" for c in table.columns
        ]
    return "\n".join(lines) + "\n"
