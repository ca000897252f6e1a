"""`loadfactor export`: what is written, a day at a time, and which days are as they were and are not written again.

What was written is kept in a file beside it, with a digest of the rows of each day: a run that was ended goes on, and one that
finds nothing new writes nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from loadfactor.base.errors import InputError
from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.books.rebuild import open_ledger
from loadfactor.interfaces.document import Document, Section
from loadfactor.interfaces.exports.history import build_history_page
from loadfactor.interfaces.exports.outputs import Output, find_output
from loadfactor.interfaces.exports.statement_rows import list_statement_rows
from loadfactor.interfaces.progress import ProgressBar
from loadfactor.interfaces.requests import ExportRequest
from loadfactor.interfaces.tables import col, table
from loadfactor.ledger.columns import KEPT_SUMS
from loadfactor.store.session import Session

if TYPE_CHECKING:
    from loadfactor.books.books import Books

BY: Final = ("day", "team", "pool", "accelerator")
"""What readings are split by."""


@dataclass(frozen=True)
class ExportedTable:
    """A table: its columns and types, its days and rows, and how many days were written or removed now."""

    name: str
    columns: Mapping[str, str]
    days: int
    rows: int
    written: int
    removed: int


@dataclass(frozen=True)
class Export:
    """What was exported."""

    subject: str
    format: str
    output: str
    tables: tuple[ExportedTable, ...]


def build_page(request: ExportRequest) -> Document:
    """Write what was requested, and say how much of it is new."""
    if request.subject == "openmetrics":
        return build_history_page(request)
    if request.last is not None:
        raise InputError(
            f"--last is of openmetrics; {request.subject} are exported whole, and a rerun writes what is new"
        )
    output = find_output(request.output)
    if output.is_taken():
        raise InputError(f"{output.name} holds something else than an export; choose another place")
    with ProgressBar() as bar, request.books.store.read() as session:
        _name_tables(request.books, session, request.subject)
        names = tuple(KEPT_SUMS) if request.subject == "sums" else (request.subject,)
        done = tuple(_export(session, name, request, output, bar) for name in names)
    found = Export(request.subject, request.output_format, output.name, done)
    written, removed = sum(item.written for item in done), sum(item.removed for item in done)
    rows = sum(item.rows for item in done)
    news = f"{written:,} parts are new or others than before" if written else "nothing is new"
    gone = f", {removed:,} are gone" if removed else ""
    shown = table(
        done,
        col("table", "name"),
        col("columns", lambda item: len(item.columns), "number"),
        col("days", "days", "number"),
        col("rows", "rows", "number"),
        col("written now", "written", "number"),
    )
    return Document(f"{rows:,} rows are in {output.name}: {news}{gone}.", (Section(tables=(shown,)),), data=found)


def _name_tables(books: "Books", session: Session, subject: str) -> None:
    """Give what is exported names in the session, each with a column `date`."""
    if subject == "readings":
        rows = books.show((), BY).to_arrow()
        session.register("all_rows", rows)
        session.create_view("readings", 'SELECT "from"::DATE AS date, * FROM all_rows')
        return
    if subject == "statements":
        session.register("all_rows", list_statement_rows(books))
        session.create_view("statements", "SELECT (month || '-01')::DATE AS date, * FROM all_rows")
        return
    open_ledger(session, books.idle_below)
    rows_of = {"ledger": recall("measured ledger", lambda: expressions().write_measured_ledger())["ledger"]}
    if subject == "sums":
        session.create_view("ledger_rows", "SELECT * FROM ledger")
        rows_of = recall("sums", lambda: expressions().write_sums())
    for name, sql in rows_of.items():
        session.create_view(f"export_{name}", f"SELECT epoch_ms(hour_utc)::DATE AS date, * FROM ({sql})")


def _export(session: Session, name: str, request: ExportRequest, output: Output, bar: ProgressBar) -> ExportedTable:
    view = name if name in ("readings", "statements") else f"export_{name}"
    columns = {column: kind for column, kind, *_ in session.raw.execute(f"DESCRIBE {view}").fetchall()}
    there = {
        str(day): {"rows": rows, "digest": f"{digest} {total}"}
        for day, rows, digest, total in session.raw.execute(
            f"SELECT date, count(*), bit_xor(h), sum(h)::VARCHAR FROM (SELECT date, hash(t) AS h FROM {view} t) GROUP BY date"
        ).fetchall()
    }
    state = _read_state(output, request.output_format)
    before = state["tables"].get(name, {"columns": columns, "days": {}})
    is_same = before["columns"] == columns
    new = [day for day in sorted(there) if not is_same or before["days"].get(day) != there[day]]
    gone = [day for day in sorted(before["days"]) if day not in there]
    kept = {day: known for day, known in before["days"].items() if day not in (*new, *gone)}
    to = output.open_table(name, request.output_format) if new or gone else None
    for done, day in enumerate((*gone, *new)):
        bar(f"writing {name}", done / len((*gone, *new)))
        if to is not None:
            to.replace(day, session.fetch(f"SELECT * FROM {view} WHERE date = '{day}' ORDER BY ALL"))
        if day in there:
            kept[day] = there[day]
        state["tables"][name] = {"columns": columns, "days": kept}
        output.write_state(json.dumps(state, indent=1).encode())
    return ExportedTable(name, columns, len(there), sum(of["rows"] for of in there.values()), len(new), len(gone))


def _read_state(output: Output, kind: str) -> dict[str, Any]:
    """What was written. Raises InputError where it is of another format."""
    content = output.read_state()
    state: dict[str, Any] = {"format": kind, "tables": {}} if content is None else json.loads(content)
    if state["format"] != kind:
        raise InputError(f"{output.name} holds an export as {state['format']}; take that format, or another place")
    return state
