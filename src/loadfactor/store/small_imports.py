"""Adding rows of the small tables to a store: logged as they came, folded into the table, the hours they touch marked stale."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap
from loadfactor.store import small_tables
from loadfactor.store.manifest import StoredFile, merge, name_file
from loadfactor.store.sample_files import read
from loadfactor.store.session import Session
from loadfactor.store.small_tables import LOGGED, name_columns
from loadfactor.store.table_files import read_rows
from loadfactor.store.tagged_rows import tag_relation
from loadfactor.store.writer import Writer
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.columns import Table
from loadfactor.tables.schema import ALLOCATIONS, ALWAYS, EXCHANGE_RATES, LINGER_MS, SAMPLES, TABLES, Span, table

BOOKED = ("devices", "allocations", "outages", "prices", "exchange_rates")
"""Tables that the ledger is made of, beside samples."""
_SMALL = {t.name for t in TABLES} - {SAMPLES.name, CHARGES.name}
TIER = 4
"""Logs are merged as they come: one at most this many times as large as those after it goes into one with them."""

NameRow = Callable[[str, int], str]
"""The file and the row that a row of the import was read from, by its table and number."""


def add_small_table(
    writer: Writer,
    kept: Table,
    staged: Path,
    number: int,
    watched: bool,
    refuse: bool,
    name_row: NameRow,
    live: bool = False,
    lists: bool = False,
) -> Iterator[Gap]:
    """Log the staged rows of an import and fold them in. Yields what was merged on the way.

    Raises SourceError where rows of one key contradict each other (`refuse`), or a device would be in two places at once. `live`
    rows were acknowledged, and the others of `watched` ones are worth having: a device that would be is left out of them instead,
    and that is said. Where the source `lists` and corrects, the last row of a key counts whole.
    """
    rows = f"(SELECT *, {'true' if watched else 'false'} AS watched FROM {read([staged])})"
    apart = not writer.fetch_one(small_tables.together(kept, rows))
    if lists and not apart:
        writer.materialize("last_rows", small_tables.take_last(kept, rows))
        rows = "last_rows"
    elif live and watched and not apart:
        writer.materialize("merged_rows", small_tables.merge_watched(kept, rows))
        rows = "merged_rows"
    elif not apart and kept.name == "devices":
        twice = writer.fetch_one(small_tables.listed_twice(read([staged])))
        if twice:
            raise SourceError(f"device {twice[0]} is listed twice for the same time; keep one row of it")
    if not apart and not watched and writer.fetch_one(small_tables.repeated(kept, rows)):
        yield from _merge_import(writer, kept, rows, refuse, name_row)
        rows = "staged_rows"
    if kept.name == "devices" and (live or (watched and writer.manifest.of(kept.name))):
        writer.materialize("staged_rows", f"SELECT * FROM {rows}")
        rows = "staged_rows"
        yield from _leave_out_clashes(writer, kept)
    rows = tag_relation(writer, kept.name, rows, writer.entry.tag, writer.work / f"tagged-{staged.name}")
    columns = f"{name_columns(kept)}, {LOGGED}"
    log = StoredFile(name_file(kept.name), kept.name, 0, 0, 0, is_log=True, imports=(number, number))
    log = writer.copy(f"SELECT {columns} FROM {rows} ORDER BY seq", log)
    old = writer.manifest.of(kept.name)
    rows = f"SELECT * FROM {read(writer.paths([log]))}"
    if old:
        rows += f" UNION ALL {small_tables.as_logged(kept, writer.paths(old))}"
    writer.swap((), [log])
    if _is_overruled(writer, kept, log, number):
        rows = f"SELECT * FROM {read_rows(kept.name, writer.paths(writer.manifest.logs_of(kept.name)))}"
    fold_table(writer, kept, f"({rows})", apart and not old)
    merge_logs(writer, kept.name)


def find_next_rows(writer: Writer, number: int) -> dict[str, int]:
    """Of each small table with rows of an import, the number that its next row would get."""
    logs: dict[str, list[StoredFile]] = {}
    for file in writer.manifest.files:
        if file.is_log and file.holds_import(number) and file.table in _SMALL:
            logs.setdefault(file.table, []).append(file)
    last = {
        name: f"SELECT max(seq) FROM {read(writer.paths(of))} WHERE import_no = {number}" for name, of in logs.items()
    }
    found = {name: writer.fetch_one(sql)[0] for name, sql in last.items()}
    return {name: seq + 1 for name, seq in found.items() if seq is not None}


def count_rows_of(writer: Writer, kept: Table, number: int) -> int | None:
    """How many rows an import has in a table of which rows are only watched, each however often it was seen; None in others."""
    logs = [f for f in writer.manifest.logs_of(kept.name) if f.holds_import(number)]
    if kept.name not in small_tables.WATCHED or not logs:
        return None
    key = ", ".join(kept.identity)
    sql = f"SELECT DISTINCT {key} FROM {read(writer.paths(logs))} WHERE import_no = {number}"
    return int(writer.fetch_one(f"SELECT count(*) FROM ({sql})")[0])


def _leave_out_clashes(writer: Writer, kept: Table) -> Iterator[Gap]:
    """Take devices out of `staged_rows` that would be in two places at once: a log that saw that is not refused as a whole."""
    rows = f"SELECT {name_columns(kept)}, {LOGGED} FROM staged_rows"
    if old := writer.manifest.of(kept.name):
        rows += f" UNION ALL {small_tables.as_logged(kept, writer.paths(old))}"
    writer.materialize("folded", small_tables.fold(kept, f"({rows})"))
    writer.materialize("placed", small_tables.completed("folded"))
    clashes = writer.raw.execute(small_tables.contradicted("placed")).fetchall()
    for device, one, other in clashes:
        writer.raw.execute("DELETE FROM staged_rows WHERE device_id = ?", [device])
        yield Gap(kept.name, f"{device} would be in two places at once, {one} and {other}: not taken", 1)


def _is_overruled(writer: Writer, kept: Table, log: StoredFile, number: int) -> bool:
    """True where a later import lists a row that this one adds to: it counts, though these rows come after it."""
    later = [f for f in writer.manifest.logs_of(kept.name) if f.imports is not None and f.imports[1] > number]
    if not later:
        return False
    same = " AND ".join(f"a.{c} IS NOT DISTINCT FROM b.{c}" for c in kept.key)
    old, new = read_rows(kept.name, writer.paths(later)), read(writer.paths([log]))
    sql = f"SELECT 1 FROM {old} a JOIN {new} b ON {same} WHERE a.import_no > {number} AND NOT a.watched LIMIT 1"
    return bool(writer.fetch_one(sql))


def fold_table(writer: Writer, kept: Table, rows: str, apart: bool = False) -> None:
    """Put the table that logged rows make in place of the one there is, and mark the hours stale that this changes.

    `apart`: no two of the rows are known to have to do with each other; where False, that is found out.
    """
    old = writer.manifest.of(kept.name)
    apart = apart or not writer.fetch_one(small_tables.together(kept, rows))
    sql = small_tables.in_order(kept, rows) if apart else small_tables.fold(kept, rows)
    if not apart and kept.name == "devices":
        writer.materialize("folded", sql)
        sql = small_tables.completed("folded")
    extent = small_tables.extent(kept)
    between = (extent[0], f"greatest({extent[0]}, {extent[1]})") if extent else None
    made = writer.copy(sql, StoredFile(name_file(kept.name), kept.name, 0, 0, 0), old, between)
    after = read(writer.paths([made]))
    if not apart and kept.name == "devices":
        clash = writer.fetch_one(small_tables.contradicted(after))
        if clash:
            raise SourceError(f"device {clash[0]} would be in two places at once: {clash[1]} and {clash[2]}")
    if kept.name in BOOKED:
        before = read_rows(kept.name, writer.paths(old)) if old else None
        writer.mark_stale(find_changed(writer, kept, after, before))
    writer.swap(old, [made] if made.rows else [])


def merge_logs(writer: Writer, name: str, everything: bool = False) -> None:
    """Merge the newest logs of a table into one as far as they are of a size, so that there are never many."""
    logs = sorted(writer.manifest.logs_of(name), key=lambda f: f.imports or (0, 0))
    group = logs if everything else logs[-1:]
    rest = [] if everything else logs[:-1]
    while rest and rest[-1].rows <= TIER * sum(f.rows for f in group):
        group = [rest.pop(), *group]
    if len(group) > 1:
        relation = read_rows(name, writer.paths(group))
        if name in small_tables.WATCHED:
            relation = f"({small_tables.merge_watched(table(name), relation)})"
        writer.swap(group, [merge_files(writer, group, relation=relation)])


def merge_files(
    writer: Writer, files: Sequence[StoredFile], where: str = "true", relation: str | None = None
) -> StoredFile:
    """The rows of several files of one kind, or of the relation made of them, as one file: those for which `where` holds."""
    first = files[0]
    numbers = [n for f in files for n in (f.imports or ())]
    imports: Span | None = (min(numbers), max(numbers)) if numbers else None
    merged = StoredFile(name_file(first.table), first.table, 0, 0, 0, is_log=first.is_log, imports=imports)
    paths = writer.paths(files)
    relation = relation or read_rows(first.table, paths)
    return writer.copy(f"SELECT * FROM {relation} WHERE {where}", merged, files)


def _merge_import(writer: Writer, kept: Table, rows: str, refuse: bool, name_row: NameRow) -> Iterator[Gap]:
    """Rows of one key as one row, in the table `staged_rows`."""
    found = writer.raw.execute(small_tables.contradictions(kept, rows)).fetchall()
    if found and refuse:
        (first, second), what, _ = found[0]
        values = dict(writer.raw.execute(f"SELECT seq, {what} FROM {rows} WHERE seq IN ({first}, {second})").fetchall())
        raise SourceError(
            f"{name_row(kept.name, first)} and {name_row(kept.name, second)} are one row of {kept.name}"
            f" ({', '.join(kept.key)} are the same) and differ in {what}: {values[first]!r} and {values[second]!r};"
            " correct one, or tell them apart by what identifies them"
        )
    writer.materialize("staged_rows", small_tables.merge_import(kept, rows, refuse))
    before, after = writer.fetch_one(f"SELECT (SELECT count(*) FROM {rows}), (SELECT count(*) FROM staged_rows)")
    differing = sum(n - 1 for _, _, n in found)
    if differing:
        yield Gap(kept.name, "rows of one key that differ: the later one counts", differing)
    if before - after - differing > 0:
        yield Gap(kept.name, "rows of one key that agree: counted once", before - after - differing)


def find_changed(session: Session, kept: Table, after: str, before: str | None) -> tuple[Span, ...]:
    """The spans of which the rows that were added, altered or replaced speak: allocations also of the labels around them.

    Rates of exchange speak until the next one, whatever their own end: the one before them is not valid again after it.
    """
    around_ms = LINGER_MS if kept == ALLOCATIONS else 0
    rows = small_tables.changed(after, before)
    if kept == EXCHANGE_RATES:
        rows = small_tables.until_the_next(rows, after, before)
    spans = session.raw.execute(
        f"SELECT DISTINCT coalesce(from_utc - {around_ms}, {ALWAYS[0]}), coalesce(to_utc + {around_ms}, {ALWAYS[1]})"
        f" FROM ({rows})"
    ).fetchall()
    return merge([(start, end) for start, end in spans])
