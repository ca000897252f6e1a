"""SQL of the small tables: rows as imported are kept in logs, and folded into one table that questions read.

Small are all tables but samples. A row of a log
has its import and its number in it (`import_no`, `seq`), and whether it was only `watched`: seen in part, not listed by anybody.
"""

from pathlib import Path

from loadfactor.store.sample_files import read
from loadfactor.store.table_files import read_rows
from loadfactor.tables.columns import Column, Table
from loadfactor.tables.schema import ALWAYS

DEVICE_FACTS = ("node", "accelerator", "pool", "share", "gpu_index")
"""What rows of a GPU that speak of the same time tell each other."""
WATCHED = {"devices": DEVICE_FACTS, "allocations": ()}
"""Tables of which a log can have seen a part: where an import is one, what earlier ones knew of a row stays."""
MEASURED = ("node_samples",)
"""Tables of measurements: a row may bring some of them, and another row of the same instant the others."""
LOGGED = "import_no, seq, watched"
"""What a log knows of a row besides its columns."""


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
    told = f"SELECT *, max(if(watched, 0, place)) OVER (PARTITION BY {key}) AS told FROM ({placed})"
    facts = {c: f"coalesce({c}, max({c}) OVER same)" for c in WATCHED[kept.name]}
    if kept.name == "devices":
        facts["known_from"] = "min(known_from) OVER same"  # a list comes before a log
    facts["to_utc"] = "if(bool_or(to_utc IS NULL) OVER same, NULL, max(to_utc) OVER same)"
    chosen = ", ".join(f"{facts[c.name]} AS {c.name}" if c.name in facts else c.name for c in kept.columns)
    return (
        f"SELECT {chosen} FROM (SELECT * FROM ({told}) WHERE place >= told) WINDOW same AS (PARTITION BY {key})"
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


def listed_twice(staged: str) -> str:
    """SQL: a device that one import lists twice for the same time."""
    open_end = "coalesce(to_utc, 9223372036854775807)"
    return f"""
    SELECT device_id FROM (
      SELECT device_id, coalesce(from_utc, 0) AS start,
        max({open_end}) OVER (PARTITION BY device_id ORDER BY coalesce(from_utc, 0), seq
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
      FROM {staged}) WHERE start < before LIMIT 1"""


def held_otherwise(staged: str, stored: list[Path]) -> str:
    """SQL: a device that one of the jobs given as a parameter holds at a time for which another one is staged, and that job."""
    return f"""
    SELECT b.device_id, b.job_id FROM {staged} a JOIN {read(stored)} b ON a.device_id = b.device_id
      AND a.job_id <> b.job_id AND list_contains(?, b.job_id)
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
