"""The page of `loadfactor imports`: every import with its number, its source, its files and its rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loadfactor.interfaces.document import DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import instant
from loadfactor.interfaces.pages.receipt import name_rows
from loadfactor.metrics.query.calendar import instant as read_ms

if TYPE_CHECKING:
    from loadfactor.books.books import Books
    from loadfactor.store.import_records import ImportRecord

COLUMNS = (
    TableColumn("import", "number", digits=9),
    TableColumn("at"),
    TableColumn("source"),
    TableColumn("rows"),
    TableColumn("files"),
)
SHOWN_FILES = 2


@dataclass(frozen=True)
class ImportsList:
    """What was imported, in order."""

    imports: tuple["ImportRecord", ...]


def build_document(books: "Books") -> Document:
    """What was imported, in order."""
    records = tuple(books.imports)
    rows = [
        (
            r.number,
            instant(read_ms(r.at_ms)) if r.at_ms else None,
            r.source,
            name_rows(r.rows),
            _name_files(r.paths),
        )
        for r in records
    ]
    many = f"{len(records):,} imports" if len(records) != 1 else "1 import"
    return Document(
        f"{many}.", (Section(tables=(DataTable(COLUMNS, rows),)),) if rows else (), data=ImportsList(records)
    )


def _name_files(paths: tuple[str, ...]) -> str:
    names = [Path(path).name for path in paths]
    more = len(names) - SHOWN_FILES
    return ", ".join(names[:SHOWN_FILES]) + (f" and {more:,} more" if more > 0 else "")
