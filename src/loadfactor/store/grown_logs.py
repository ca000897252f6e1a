"""Logs that were imported while they were written, and again when they were longer: which imports the new one holds as well."""

from pathlib import Path

from loadfactor.store.import_records import ImportRecord, list_imports
from loadfactor.store.sample_files import read
from loadfactor.store.writer import Writer
from loadfactor.tables.work import PROGRESS


def list_outgrown(writer: Writer, number: int) -> list[ImportRecord]:
    """The imports of the same job and of files of the same names whose whole time import `number` has, too.

    A log that began anew under its name begins later than the one before, so that one stays.
    """
    (new,) = list_imports(writer, "import_no = ?", [number])
    names = {Path(path).name for path in new.paths}
    same = [
        record
        for record in list_imports(
            writer, "source = ? AND held_by = ? AND import_no < ?", [new.source, new.held_by, number]
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
