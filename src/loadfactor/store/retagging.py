"""Rules of today applied to rows that entered before: what their logs hold is tagged anew, and the tables are folded from it."""

from collections.abc import Sequence

from loadfactor.store.charge_imports import retag_charges
from loadfactor.store.compaction import refold_table
from loadfactor.store.entry import TAGGED, ChangeRows
from loadfactor.store.manifest import StoredFile, name_file
from loadfactor.store.sample_files import read
from loadfactor.store.table_files import read_rows
from loadfactor.store.tagged_rows import write_tagged
from loadfactor.store.writer import Writer
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.schema import table


def retag_rows(writer: Writer, tag: ChangeRows, names: Sequence[str] = TAGGED) -> dict[str, int]:
    """Tag every row of some tables anew, and mark the hours that this changes stale; the changed rows by table."""
    changed: dict[str, int] = {}
    for name in names:
        if name == CHARGES.name:
            if rows := retag_charges(writer, tag):
                changed[name] = rows
            continue
        for log in writer.manifest.logs_of(name):
            path = writer.work / f"tagged-{log.name}"
            rows = write_tagged(writer, name, read_rows(name, writer.paths([log])), tag, path)
            if rows:
                made = StoredFile(name_file(name), name, 0, 0, 0, is_log=True, imports=log.imports)
                writer.swap([log], [writer.copy(f"SELECT * FROM {read([path])}", made, [log])])
                changed[name] = changed.get(name, 0) + rows
            path.unlink()
        if name in changed:
            refold_table(writer, table(name))
    return changed
