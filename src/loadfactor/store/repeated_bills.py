"""Files of one import that are two deliveries of one bill rather than parts of it: most rows of one are in the other, too."""

from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.store.sample_files import quote
from loadfactor.store.writer import Writer
from loadfactor.tables.charges import CHARGES

MOST_SHARED: Final = 0.5
"""Of the rows of the smaller of two files. Parts of a bill share hardly any: lines name resource, meter, time and amount."""
FEWEST_SHARED: Final = 2
_ROWS_COMPARED: Final = 1_000_000
"""About so many; of a larger import those whose hash says so."""
_OF_WHO_PAYS: Final = ("team", "project", "experiment_id", "purpose", "user", "original_holder")


def refuse_repeated(writer: Writer, rows: str, files: list[tuple[int, str]]) -> None:
    """SourceError where two files hold the same rows; `files`: the first number of a row (`seq`) of each, and its name."""
    if len({name for _, name in files}) < FEWEST_SHARED:
        return
    ranges = ", ".join(f"({first}, {quote(name)})" for first, name in files)
    cells = ", ".join(c.name for c in CHARGES.columns if c.name not in _OF_WHO_PAYS)
    (total,) = writer.fetch_one(f"SELECT count(*) FROM {rows}")
    writer.materialize(
        "bill_lines",
        f"SELECT DISTINCT line, name FROM (SELECT hash({cells}) AS line, seq FROM {rows})"
        f" ASOF JOIN (VALUES {ranges}) AS file(first, name) ON seq >= first WHERE line % {1 + total // _ROWS_COMPARED} = 0",
    )
    found = writer.fetch_one(
        "WITH sizes AS (SELECT name, count(*) AS lines FROM bill_lines GROUP BY name),"
        " shared AS (SELECT a.name AS one, b.name AS other, count(*) AS lines FROM bill_lines a JOIN bill_lines b"
        " ON a.line = b.line AND a.name < b.name GROUP BY ALL)"
        " SELECT one, other FROM shared JOIN sizes a ON one = a.name JOIN sizes b ON other = b.name"
        f" WHERE shared.lines >= greatest({FEWEST_SHARED}, {MOST_SHARED} * least(a.lines, b.lines)) ORDER BY one, other LIMIT 1"
    )
    writer.raw.execute("DROP TABLE bill_lines")
    if found:
        raise SourceError(
            f"{found[0]} and {found[1]} hold mostly the same rows, which would count twice: import them one after the other,"
            " the later delivery last"
        )
