"""The page of `loadfactor import`: what was added, what could not be read, and what the books now cover."""

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from loadfactor.interfaces.document import DataTable, Document, Section, Suggestion, TableColumn
from loadfactor.interfaces.formats import instant
from loadfactor.metrics.query.calendar import instant as read_ms
from loadfactor.tables.charges import CHARGES

if TYPE_CHECKING:
    from loadfactor.books.books import Books
    from loadfactor.store.importing import Receipt

SHOWN_GAPS = 12
COLUMNS = (TableColumn("file"), TableColumn("what"), TableColumn("times", "number", digits=9))
REPLACED = (TableColumn("what"), TableColumn("number", "number", digits=9))


def build_document(receipt: "Receipt", books: "Books") -> Document:
    """The receipt of an import, in the books it went into."""
    rows = name_rows(receipt.rows)
    if receipt.already:
        return Document(f"Already in the books, nothing added: {rows}.", data=receipt)
    numbers = ", ".join(map(str, receipt.replaced))
    place = f" in place of import {numbers}, of the same log when it was shorter" if numbers else ""
    return Document(f"Imported {rows}{place}.", tuple(_sections(receipt, books)), data=receipt)


def name_rows(rows: dict[str, int]) -> str:
    """How many rows of which tables."""
    return ", ".join(f"{count:,} {_name_rows(name, count)}" for name, count in rows.items()) or "nothing"


def _name_rows(table: str, count: int) -> str:
    """What the rows of a table are called: one outage, two outages, progress either way."""
    words = table.replace("_", " ")
    return words.removesuffix("s") if count == 1 and table != "progress" else words


def _sections(receipt: "Receipt", books: "Books") -> Iterator[Section]:
    replaced = [gap for gap in receipt.gaps if gap.where == CHARGES.name]
    if unread := [gap for gap in receipt.gaps if gap.where != CHARGES.name]:
        rows = [(Path(gap.where).name, gap.what, gap.count) for gap in unread[:SHOWN_GAPS]]
        title = "About this bill" if CHARGES.name in receipt.rows else "Not measured"
        yield Section(title, tables=(DataTable(COLUMNS, rows, note=_say_more(len(unread))),))
    if replaced:
        counts = [(gap.what, gap.count) for gap in replaced[:SHOWN_GAPS]]
        yield Section("Replaced by this delivery", tables=(DataTable(REPLACED, counts, note=_say_more(len(replaced))),))
    if "samples" in receipt.rows and not books.store.manifest.of("allocations"):
        yield Section(
            lead="No allocations say who held these GPUs: their hours have an unknown holder and count as unattributed."
            " Import allocations, use an exporter with job labels, or import the log with --job JOB."
        )
    start, end = books.store.span()
    if start < end:  # prices alone cover no time
        there = quote(str(books.store.folder))
        yield Section(
            lead=f"The books now cover {instant(read_ms(start))} to {instant(read_ms(end))}.",
            suggestions=(Suggestion(f"loadfactor report --store {there}", "how full the fleet was, and what it cost"),),
        )


def _say_more(count: int) -> str:
    return f"and {count - SHOWN_GAPS} more; --json lists them all" if count > SHOWN_GAPS else ""
