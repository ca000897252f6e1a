"""Records of what was imported, a row an import, kept as a table of the store so that 100,000 of them cost nothing."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from loadfactor.store.manifest import StoredFile, name_file
from loadfactor.store.sample_files import quote, read
from loadfactor.store.session import Session
from loadfactor.store.small_imports import merge_logs
from loadfactor.store.writer import Writer
from loadfactor.tables.work import PROGRESS

TABLE: Final = "imports"
SCHEMA: Final = pa.schema(
    {
        "import_no": pa.int64(),
        "digest": pa.string(),
        "source": pa.string(),
        "paths": pa.list_(pa.string()),
        "rows": pa.string(),  # JSON: table → count
        "gaps": pa.string(),  # JSON: [where, what, count]
        "held_by": pa.string(),
        "at_utc": pa.int64(),
    }
)


GONE: Final = "dropped by [retention]"
"""The gap in the record of an import whose rows were."""
LIVE_DAY: Final = "live "
"""How the path of an import begins that is a day of a live source, and its digest."""


@dataclass(frozen=True)
class ImportRecord:
    """One import and its rows: `digest` identifies the input, so that the same file twice adds nothing."""

    number: int
    digest: str
    source: str
    paths: tuple[str, ...]
    rows: dict[str, int]
    gaps: tuple[tuple[str, str, int], ...] = ()
    held_by: str | None = None
    at_ms: int = 0  # when, UTC; 0 where its record was lost

    @property
    def is_live(self) -> bool:
        """Whether it is what came live of a source on a day, which flushes add to."""
        return self.digest.startswith(LIVE_DAY)


def list_imports(session: Session, where: str = "true") -> list[ImportRecord]:
    """The records of the books in order, those for which `where` holds."""
    files = session.manifest.logs_of(TABLE)
    if not files:
        return []
    found = session.raw.execute(
        f"SELECT {', '.join(SCHEMA.names)} FROM {read(session.paths(files))} WHERE {where} ORDER BY import_no"
    ).fetchall()
    return [
        ImportRecord(
            number,
            digest,
            source,
            tuple(paths),
            json.loads(rows),
            tuple((w, what, n) for w, what, n in json.loads(gaps)),
            held_by,
            at,
        )
        for number, digest, source, paths, rows, gaps, held_by, at in found
    ]


def put_records(writer: Writer, records: Sequence[ImportRecord]) -> None:
    """Write the records of imports, in place of those there are of the same numbers."""
    numbers = {r.number for r in records}
    known = {n for n in numbers if any(f.holds_import(n) for f in writer.manifest.logs_of(TABLE))}
    if known:
        listed = ", ".join(map(str, sorted(known)))
        files = [f for f in writer.manifest.logs_of(TABLE) if any(f.holds_import(n) for n in known)]
        change_records(writer, f"SELECT * FROM records WHERE import_no NOT IN ({listed})", files)
    if records:
        add_records(writer, sorted(records, key=lambda r: r.number))


def add_records(writer: Writer, records: Sequence[ImportRecord]) -> None:
    """Write the records of new imports, in the order of their numbers."""
    rows = [
        {
            "import_no": r.number,
            "digest": r.digest,
            "source": r.source,
            "paths": list(r.paths),
            "rows": json.dumps(r.rows),
            "gaps": json.dumps(r.gaps),
            "held_by": r.held_by,
            "at_utc": r.at_ms,
        }
        for r in records
    ]
    writer.register("new_records", pa.Table.from_pylist(rows, schema=SCHEMA))
    numbers = (records[0].number, records[-1].number)
    file = StoredFile(name_file(TABLE), TABLE, 0, 0, 0, is_log=True, imports=numbers)
    writer.swap((), [writer.copy("SELECT * FROM new_records ORDER BY import_no", file)])
    merge_logs(writer, TABLE)


def change_records(writer: Writer, sql: str, within: Sequence[StoredFile] | None = None) -> None:
    """Put the records that a query over `records` gives in place of those there are, in some of their files or in all."""
    files = writer.manifest.logs_of(TABLE) if within is None else tuple(within)
    if not files:
        return
    writer.create_view("records", f"SELECT * FROM {read(writer.paths(files))}")
    numbers = [n for f in files for n in (f.imports or ())]
    file = StoredFile(name_file(TABLE), TABLE, 0, 0, 0, is_log=True, imports=(min(numbers), max(numbers)))
    made = writer.copy(sql, file, files)
    writer.swap(files, [made] if made.rows else [])


def list_outgrown(writer: Writer, number: int) -> list[ImportRecord]:
    """The imports of the same job and of files of the same names whose whole time import `number` has, too.

    A log that began anew under its name begins later than the one before, so that one stays.
    """
    (new,) = list_imports(writer, f"import_no = {number}")
    if new.held_by is None:
        return []
    names = {Path(path).name for path in new.paths}
    same = [
        record
        for record in list_imports(
            writer, f"source = {quote(new.source)} AND held_by = {quote(new.held_by)} AND import_no < {number}"
        )
        if {Path(path).name for path in record.paths} <= names
    ]
    if not same:
        return []
    spans = _find_spans(writer, [number, *(record.number for record in same)])
    begin, end = spans[number]
    return [
        one for one in same if one.number in spans and begin <= spans[one.number][0] and spans[one.number][1] <= end
    ]


def _find_spans(writer: Writer, numbers: list[int]) -> dict[int, tuple[int, int]]:
    """By import, when its first interval ended and its last one did (ms UTC): ends are what lines say, beginnings are reckoned."""
    files = [f for f in writer.manifest.logs_of(PROGRESS.name) if any(f.holds_import(n) for n in numbers)]
    found = writer.raw.execute(
        f"SELECT import_no, min(to_utc), max(to_utc) FROM {read(writer.paths(files))}"
        f" WHERE import_no IN ({', '.join(map(str, numbers))}) GROUP BY import_no"
    ).fetchall()
    return {number: (first, last) for number, first, last in found}
