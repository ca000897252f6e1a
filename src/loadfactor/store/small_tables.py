"""SQL of the small tables, one file each: a row with a known key replaces the earlier one, and what changed is known.

Small are all tables but samples.
"""

from pathlib import Path

from loadfactor.store.sample_files import read
from loadfactor.tables import ALWAYS, Table

WATCHED = {"devices": ("node", "accelerator", "pool", "share"), "allocations": ()}
"""Tables of which a log can have seen a part: where an import is one, what earlier ones knew of a row stays."""


def upserted(kept: Table, staged: Path, stored: list[Path], watched: bool = False) -> str:
    """SQL: the table after an import; of rows with the same key the latest wins.

    Not so the end of what was `watched`: a log that breaks off earlier than another does not say that anything ended there.
    """
    columns = ", ".join(c.name for c in kept.columns)
    chosen = columns
    if watched and kept.name in WATCHED:
        facts = {c: f"coalesce({c}, max({c}) OVER same)" for c in WATCHED[kept.name]}
        facts["to_utc"] = "if(bool_or(to_utc IS NULL) OVER same, NULL, max(to_utc) OVER same)"
        chosen = ", ".join(f"{facts[c.name]} AS {c.name}" if c.name in facts else c.name for c in kept.columns)
    key = ", ".join(kept.identity)
    parts = [f"SELECT {columns}, seq FROM {read([staged])}"]
    if stored:
        parts.append(f"SELECT {columns}, -1 AS seq FROM {read(stored)}")
    return (
        f"SELECT {chosen} FROM ({' UNION ALL '.join(parts)}) WINDOW same AS (PARTITION BY {key})"
        f" QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY seq DESC) = 1 ORDER BY {key}"
    )


def completed(devices: str) -> str:
    """SQL: the device list, each row's missing facts filled in from rows of the same GPU that speak of the same time.

    A telemetry log knows a GPU's model, an inventory its pool: both describe one GPU, not two.
    """
    facts = ("node", "accelerator", "pool", "share")
    filled = ", ".join(f"coalesce(a.{c}, min(b.{c})) AS {c}" for c in facts)
    end = "coalesce({}.to_utc, 9223372036854775807)"
    return f"""
    SELECT a.device_id, {filled}, a.from_utc, a.to_utc FROM {devices} a JOIN {devices} b
      ON a.device_id = b.device_id AND (a.from_utc IS NOT DISTINCT FROM b.from_utc
        OR (coalesce(a.from_utc, 0) < {end.format("b")} AND coalesce(b.from_utc, 0) < {end.format("a")}))
    GROUP BY a.device_id, a.from_utc, a.to_utc, {", ".join(f"a.{c}" for c in facts)} ORDER BY a.device_id, a.from_utc"""


def changed(after: str, before: str | None) -> str:
    """SQL: the rows that an import added, altered or replaced; both arguments are relations."""
    if before is None:
        return f"SELECT * FROM {after}"
    return f"(SELECT * FROM {after} EXCEPT SELECT * FROM {before}) UNION ALL (SELECT * FROM {before} EXCEPT SELECT * FROM {after})"


def extent(kept: Table) -> tuple[str, str] | None:
    """The columns between which a row of this table speaks, or None for a table without time."""
    names = [c.name for c in kept.columns]
    if "at_utc" in names:
        return "at_utc", "at_utc"
    return ("from_utc", "to_utc") if "from_utc" in names else None


def listed_twice(staged: Path) -> str:
    """SQL: a device that one import lists twice for the same time."""
    open_end = "coalesce(to_utc, 9223372036854775807)"
    return f"""
    SELECT device_id FROM (
      SELECT device_id, coalesce(from_utc, 0) AS start,
        max({open_end}) OVER (PARTITION BY device_id ORDER BY coalesce(from_utc, 0), seq
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
      FROM {read([staged])}) WHERE start < before LIMIT 1"""


def held_otherwise(staged: Path, stored: list[Path]) -> str:
    """SQL: a device that one of the jobs given as a parameter holds at a time for which another one is staged, and that job."""
    return f"""
    SELECT b.device_id, b.job_id FROM {read([staged])} a JOIN {read(stored)} b ON a.device_id = b.device_id
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
    WHERE a.node <> b.node OR a.accelerator <> b.accelerator OR a.pool <> b.pool OR a.share <> b.share LIMIT 1"""
