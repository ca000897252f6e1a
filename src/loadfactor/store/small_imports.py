"""Adding rows of the small tables to a store: logged as they came, folded into the table, the hours they touch marked stale.

SQL of the small tables: rows as imported are kept in logs, and folded into one table that questions read.

Small are all tables but samples. A row of a log
has its import and its number in it (`import_no`, `seq`), and whether it was only `watched`: seen in part, not listed by anybody.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap
from loadfactor.store.manifest import StoredFile, merge, name_file
from loadfactor.store.sample_files import quote, quote_all, read
from loadfactor.store.session import TAGGED, ChangeRows, Session, read_rows
from loadfactor.store.writer import Writer
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.columns import Column, Table
from loadfactor.tables.schema import ALLOCATIONS, ALWAYS, EXCHANGE_RATES, LINGER_MS, SAMPLES, TABLES, Span, table

DEVICE_FACTS = ("node", "accelerator", "pool", "share", "gpu_index")
"""Columns that rows of one GPU at the same time fill in for each other."""
WATCHED = {"devices": DEVICE_FACTS, "allocations": ()}
"""Tables of which a log can have seen a part: where an import is one, what earlier ones knew of a row stays."""
MEASURED = ("node_samples",)
"""Tables of measurements: a row may bring some of them, and another row of the same instant the others."""
LOGGED = "import_no, seq, watched"
"""Columns of the log besides those of a row."""


def name_columns(kept: Table) -> str:
    """SQL: the columns of a table in their order."""
    return ", ".join(c.name for c in kept.columns)


def fold(kept: Table, rows: str) -> str:
    """SQL: the table that logged rows make; of those with one key the latest counts, of measurements that of each column.

    Not so the end of what was only watched: a log that breaks off earlier than another does not say that anything ended there.
    """
    key, columns = ", ".join(kept.identity), name_columns(kept)
    placed = (
        f"SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY import_no NULLS FIRST, seq) AS place FROM {rows}"
    )
    if kept.name in MEASURED:
        latest = ", ".join(
            c.name if c.name in kept.key else f"arg_max({c.name}, place) AS {c.name}" for c in kept.columns
        )
        return f"SELECT {latest} FROM ({placed}) GROUP BY {key} ORDER BY {key}"
    if kept.name not in WATCHED:
        last = f"SELECT {columns} FROM ({placed}) QUALIFY place = max(place) OVER (PARTITION BY {key})"
        return f"{last} ORDER BY {key}"
    stated = f"SELECT *, max(if(watched, 0, place)) OVER (PARTITION BY {key}) AS stated FROM ({placed})"
    facts = {c: f"coalesce({c}, max({c}) OVER same)" for c in WATCHED[kept.name]}
    if kept.name == "devices":
        facts["known_from"] = "min(known_from) OVER same"  # a list comes before a log
    facts["to_utc"] = "if(bool_or(to_utc IS NULL) OVER same, NULL, max(to_utc) OVER same)"
    chosen = ", ".join(f"{facts[c.name]} AS {c.name}" if c.name in facts else c.name for c in kept.columns)
    return (
        f"SELECT {chosen} FROM (SELECT * FROM ({stated}) WHERE place >= stated) WINDOW same AS (PARTITION BY {key})"
        f" QUALIFY place = max(place) OVER same ORDER BY {key}"
    )


def in_order(kept: Table, rows: str) -> str:
    """SQL: the same table where no two of the rows are `together`."""
    return f"SELECT {name_columns(kept)} FROM {rows} ORDER BY {', '.join(kept.identity)}"


def together(kept: Table, rows: str) -> str:
    """SQL: a row where any two rows have to do with each other: they share a key, or, completing each other, a device."""
    shared = ("device_id",) if kept.name == "devices" else kept.identity
    return f"SELECT 1 FROM {rows} GROUP BY {', '.join(shared)} HAVING count(*) > 1 LIMIT 1"


def as_logged(kept: Table, base: list[Path]) -> str:
    """SQL: the folded table as rows that came before every import."""
    return (
        f"SELECT {name_columns(kept)}, NULL::INTEGER AS import_no, 0::BIGINT AS seq, false AS watched"
        f" FROM {read_rows(kept.name, base)}"
    )


def merge_watched(kept: Table, logged: str) -> str:
    """SQL: logged rows; what one import saw again and again, otherwise the same, once, with the latest end."""
    same = [c.name for c in kept.columns if c.name != "to_utc"]
    columns = ", ".join(
        "if(bool_or(to_utc IS NULL), NULL, max(to_utc)) AS to_utc" if c.name == "to_utc" else c.name
        for c in kept.columns
    )
    return (
        f"SELECT {name_columns(kept)}, {LOGGED} FROM {logged} WHERE NOT watched UNION ALL"
        f" SELECT {columns}, import_no, max(seq) AS seq, true AS watched FROM {logged} WHERE watched"
        f" GROUP BY {', '.join(same)}, import_no ORDER BY import_no, seq"
    )


def take_last(kept: Table, rows: str) -> str:
    """SQL: of rows of one import that share a key the last one, whole: what it leaves empty is so."""
    return f"SELECT * FROM {rows} QUALIFY seq = max(seq) OVER (PARTITION BY {', '.join(kept.identity)})"


def merge_import(kept: Table, staged: str, refuse: bool) -> str:
    """SQL: the rows of one import, those of one key merged column by column; of two values the later one counts.

    Where those were refused before (`contradictions`), at most one value is left.
    """
    key = ", ".join(kept.identity)
    merged = ", ".join(_take_last(c, refuse) for c in kept.columns)
    twice = f"SELECT seq FROM {staged} QUALIFY count(*) OVER (PARTITION BY {key}) > 1"
    columns = f"{name_columns(kept)}, import_no, seq, watched"
    return (
        f"SELECT {columns} FROM {staged} WHERE seq NOT IN ({twice}) UNION ALL"
        f" SELECT {merged}, max(import_no) AS import_no, max(seq) AS seq, bool_or(watched) AS watched"
        f" FROM {staged} WHERE seq IN ({twice}) GROUP BY {key}"
    )


def repeated(kept: Table, staged: str) -> str:
    """SQL: a row where any two rows of an import share a key; most imports have none, and need no closer look."""
    return f"SELECT 1 FROM {staged} GROUP BY {', '.join(kept.identity)} HAVING count(*) > 1 LIMIT 1"


def contradictions(kept: Table, staged: str) -> str:
    """SQL: the rows of one import that share a key and differ in a column that both fill in: their numbers and that column."""
    key = ", ".join(kept.identity)
    others = [c.name for c in kept.columns if c.name not in kept.key]
    differ = " ".join(f"WHEN count(DISTINCT {c}) > 1 THEN '{c}'" for c in others)
    first = " ".join(
        f"WHEN count(DISTINCT {c}) > 1 THEN [min(seq) FILTER ({c} IS NOT NULL),"
        f" min(seq) FILTER ({c} IS NOT NULL AND {c} <> first_{c})]"
        for c in others
    )
    opening = ", ".join(f"arg_min({c}, seq) OVER (PARTITION BY {key}) AS first_{c}" for c in others)
    return (
        f"SELECT CASE {first} END AS rows, CASE {differ} END AS what, count(*) AS n FROM (SELECT *, {opening} FROM {staged})"
        f" GROUP BY {key} HAVING count(*) > 1 AND what IS NOT NULL ORDER BY rows"
    )


def _take_last(column: Column, refuse: bool) -> str:
    taken = f"max({column.name})" if refuse else f"arg_max({column.name}, seq)"
    return f"{taken} AS {column.name}"


def completed(devices: str) -> str:
    """SQL: the device list, each row's missing facts filled in from rows of the same GPU that speak of the same time.

    A telemetry log knows a GPU's model, an inventory its pool: both describe one GPU, not two.
    """
    filled = ", ".join(f"coalesce(a.{c}, min(b.{c})) AS {c}" for c in DEVICE_FACTS)
    own = ", ".join(f"a.{c}" for c in ("device_id", "from_utc", "to_utc", "known_from", *DEVICE_FACTS))
    end = "coalesce({}.to_utc, 9223372036854775807)"
    return f"""
    SELECT a.device_id, {filled}, a.from_utc, a.to_utc, a.known_from FROM {devices} a JOIN {devices} b
      ON a.device_id = b.device_id AND (a.from_utc IS NOT DISTINCT FROM b.from_utc
        OR (coalesce(a.from_utc, 0) < {end.format("b")} AND coalesce(b.from_utc, 0) < {end.format("a")}))
    GROUP BY {own} ORDER BY a.device_id, a.from_utc"""


def changed(after: str, before: str | None) -> str:
    """SQL: the rows that an import added, altered or replaced; both arguments are relations."""
    if before is None:
        return f"SELECT * FROM {after}"
    return f"(SELECT * FROM {after} EXCEPT SELECT * FROM {before}) UNION ALL (SELECT * FROM {before} EXCEPT SELECT * FROM {after})"


def join_ends(rows: str) -> str:
    """SQL: times that changed rows change: of a row that only ends otherwise than before, what lies between."""
    ends = f"coalesce(to_utc, {ALWAYS[1]})"
    return f"""
    SELECT if(rows = 2, first, from_utc) AS from_utc, last AS to_utc FROM (
      SELECT * EXCLUDE (to_utc), count(*) AS rows, min({ends}) AS first, max({ends}) AS last FROM ({rows}) GROUP BY ALL)"""


def until_the_next(rates: str, after: str, before: str | None) -> str:
    """SQL: when each of these exchange rates begins, and when the next one of its currency does, of `after` or of `before`."""
    begins = " UNION ".join(f"SELECT currency, from_utc FROM {relation}" for relation in (after, before) if relation)
    return f"""
    SELECT a.from_utc, a.to_utc FROM (
      SELECT *, lead(from_utc) OVER (PARTITION BY currency ORDER BY from_utc NULLS FIRST) AS to_utc FROM ({begins})) a
    SEMI JOIN ({rates}) b ON a.currency = b.currency AND a.from_utc IS NOT DISTINCT FROM b.from_utc"""


def extent(kept: Table) -> tuple[str, str] | None:
    """The columns between which a row of this table speaks, or None for a table without time."""
    names = [c.name for c in kept.columns]
    if "at_utc" in names:
        return "at_utc", "at_utc"
    return ("from_utc", "to_utc") if "from_utc" in names else None


def begun_twice(staged: str) -> str:
    """SQL: a device that one import lists twice from the same time on. Memory does not grow with how often it does."""
    return f"SELECT device_id FROM {staged} GROUP BY device_id, coalesce(from_utc, 0) HAVING count(*) > 1 LIMIT 1"


def listed_twice(staged: str) -> str:
    """SQL: a device that one import lists twice for the same time."""
    open_end = "coalesce(to_utc, 9223372036854775807)"
    return f"""
    SELECT device_id FROM (
      SELECT device_id, coalesce(from_utc, 0) AS start,
        max({open_end}) OVER (PARTITION BY device_id ORDER BY coalesce(from_utc, 0), seq
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
      FROM {staged}) WHERE start < before LIMIT 1"""


def held_otherwise(staged: str, stored: list[Path], jobs: Sequence[str]) -> str:
    """SQL: a device that one of these jobs holds at a time for which another one is staged, and that job."""
    return f"""
    SELECT b.device_id, b.job_id FROM {staged} a JOIN {read(stored)} b ON a.device_id = b.device_id
      AND a.job_id <> b.job_id AND b.job_id IN ({quote_all(jobs)})
      AND coalesce(a.from_utc, {ALWAYS[0]}) < coalesce(b.to_utc, {ALWAYS[1]})
      AND coalesce(b.from_utc, {ALWAYS[0]}) < coalesce(a.to_utc, {ALWAYS[1]})
    ORDER BY ALL LIMIT 1"""


def contradicted(devices: str) -> str:
    """SQL: a device that the books place in two spots at once, and where."""
    open_end = "coalesce({}.to_utc, 9223372036854775807)"
    where = "coalesce({0}.node, '?') || ' / ' || coalesce({0}.accelerator, '?') || ' / ' || coalesce({0}.pool, '?')"
    return f"""
    SELECT a.device_id, {where.format("a")}, {where.format("b")} FROM {devices} a JOIN {devices} b
      ON a.device_id = b.device_id AND coalesce(a.from_utc, 0) < coalesce(b.from_utc, 0)
      AND {open_end.format("a")} > coalesce(b.from_utc, 0)
    WHERE a.node <> b.node OR a.accelerator <> b.accelerator OR a.pool <> b.pool OR a.share <> b.share
    QUALIFY row_number() OVER (PARTITION BY a.device_id) = 1 ORDER BY a.device_id"""


ROWS_AT_ONCE: Final = 250_000


def tag_relation(session: Session, name: str, rows: str, tag: ChangeRows | None, path: Path) -> str:
    """SQL: rows of a table as rules tag them, written to a new file; as they are where no rule can speak of them."""
    if tag is None or name not in TAGGED:
        return rows
    write_tagged(session, name, rows, tag, path)
    return read([path])


def write_tagged(session: Session, name: str, rows: str, tag: ChangeRows, path: Path) -> int:
    """Write rows of a table, SQL, to a new file as rules tag them; how many of them that changes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    changed = 0
    with (
        session.raw.sql(f"SELECT * FROM {rows}").to_arrow_reader(ROWS_AT_ONCE) as reader,
        pq.ParquetWriter(path, reader.schema, compression="lz4") as writer,
    ):
        for batch in reader:
            before = pa.Table.from_batches([batch])
            after = tag(name, before)
            changed += _count_changed(before, after)
            writer.write_table(after)
    return changed


def _count_changed(before: pa.Table, after: pa.Table) -> int:
    different = pa.scalar(False)
    for column in before.column_names:
        old, new = before[column], after[column]
        if old is not new and not old.equals(new):
            apart = pc.fill_null(pc.not_equal(old, new), True)
            both_null = pc.and_(pc.is_null(old), pc.is_null(new))
            different = pc.or_(different, pc.and_not(apart, both_null))
    return 0 if isinstance(different, pa.Scalar) else pc.sum(different).as_py() or 0


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
    and that is reported. Where the source `lists` and corrects, the last row of a key counts whole.
    """
    rows = f"(SELECT *, {'true' if watched else 'false'} AS watched FROM {read([staged])})"
    apart = not writer.fetch_one(together(kept, rows))
    if lists and not apart:
        writer.materialize("last_rows", take_last(kept, rows))
        rows = "last_rows"
    elif live and watched and not apart:
        writer.materialize("merged_rows", merge_watched(kept, rows))
        rows = "merged_rows"
    elif not apart and kept.name == "devices":
        twice = writer.fetch_one(begun_twice(read([staged]))) or writer.fetch_one(listed_twice(read([staged])))
        if twice:
            raise SourceError(f"device {twice[0]} is listed twice for the same time; keep one row of it")
    if not apart and not watched and writer.fetch_one(repeated(kept, rows)):
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
        rows += f" UNION ALL {as_logged(kept, writer.paths(old))}"
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
    if kept.name not in WATCHED or not logs:
        return None
    key = ", ".join(kept.identity)
    sql = f"SELECT DISTINCT {key} FROM {read(writer.paths(logs))} WHERE import_no = {number}"
    return int(writer.fetch_one(f"SELECT count(*) FROM ({sql})")[0])


def _leave_out_clashes(writer: Writer, kept: Table) -> Iterator[Gap]:
    """Take devices out of `staged_rows` that would be in two places at once: a log that saw that is not refused as a whole."""
    rows = f"SELECT {name_columns(kept)}, {LOGGED} FROM staged_rows"
    if old := writer.manifest.of(kept.name):
        rows += f" UNION ALL {as_logged(kept, writer.paths(old))}"
    writer.materialize("folded", fold(kept, f"({rows})"))
    writer.materialize("placed", completed("folded"))
    clashes = writer.raw.execute(contradicted("placed")).fetchall()
    for device, one, other in clashes:
        writer.raw.execute(f"DELETE FROM staged_rows WHERE device_id = {quote(device)}")
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
    apart = apart or not writer.fetch_one(together(kept, rows))
    sql = in_order(kept, rows) if apart else fold(kept, rows)
    if not apart and kept.name == "devices":
        writer.materialize("folded", sql)
        sql = completed("folded")
    named = extent(kept)
    between = (named[0], f"greatest({named[0]}, {named[1]})") if named else None
    made = writer.copy(sql, StoredFile(name_file(kept.name), kept.name, 0, 0, 0), old, between)
    after = read(writer.paths([made]))
    if not apart and kept.name == "devices":
        clash = writer.fetch_one(contradicted(after))
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
        if name in WATCHED:
            relation = f"({merge_watched(table(name), relation)})"
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
    found = writer.raw.execute(contradictions(kept, rows)).fetchall()
    if found and refuse:
        (first, second), what, _ = found[0]
        values = dict(writer.raw.execute(f"SELECT seq, {what} FROM {rows} WHERE seq IN ({first}, {second})").fetchall())
        raise SourceError(
            f"{name_row(kept.name, first)} and {name_row(kept.name, second)} are one row of {kept.name}"
            f" ({', '.join(kept.key)} are the same) and differ in {what}: {values[first]!r} and {values[second]!r};"
            " correct one, or tell them apart by what identifies them"
        )
    writer.materialize("staged_rows", merge_import(kept, rows, refuse))
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
    rows = changed(after, before)
    rows = until_the_next(rows, after, before) if kept == EXCHANGE_RATES else join_ends(rows)
    spans = session.raw.execute(
        f"SELECT DISTINCT coalesce(from_utc - {around_ms}, {ALWAYS[0]}), coalesce(to_utc + {around_ms}, {ALWAYS[1]})"
        f" FROM ({rows})"
    ).fetchall()
    return merge([(start, end) for start, end in spans])
