"""SQL of stored samples: one file a UTC day, sorted by device and time, each row inside one hour, its interval settled.

A sample ends at its timestamp. Where its start was not given, it covers the gap to the previous sample of the same device and
source when that gap is at most 1.5 × the series' nominal step, else one nominal step; the rest of the gap is unobserved. The
nominal step is the one the importer gave, else the day's median gap (an hour at most: nothing slower is taken for a series),
else, for a sample all alone, what its source usually does. Rows are cut at hour boundaries, so that the ledger joins them by hour.
`sampled_utc` is the timestamp, `began_utc` the start as given: from these two the day can always be derived again. A sample
whose interval has no length (alone, its step unknown) is kept without an hour: nothing is booked on it, a later one reaches it.
"""

from pathlib import Path

from loadfactor.tables import MEASUREMENTS, REACH_STEPS, SAMPLE_COLUMNS
from loadfactor.units import MS_PER_DAY, MS_PER_HOUR

LONGEST_STEP_MS = MS_PER_HOUR

_RAW = ", ".join(
    ("device_id", "source", "began_utc", "sampled_utc", "step_ms", "lone_step_ms", "measured_mask", *MEASUREMENTS)
)

_ON_DISK = {
    "to_utc": ("to_utc - from_utc AS length_ms", "from_utc + length_ms AS to_utc"),
    "sampled_utc": ("sampled_utc - to_utc AS late_ms", "from_utc + length_ms + late_ms AS sampled_utc"),
    "began_utc": ("sampled_utc - began_utc AS reach_ms", "from_utc + length_ms + late_ms - reach_ms AS began_utc"),
}
"""How a time is written and read back."""


def samples(paths: list[Path], within: tuple[tuple[int, int], ...] = ()) -> str:
    """SQL: stored samples as a relation, with all their times as instants; only those of the hours that `within` touches."""
    columns = ", ".join(_ON_DISK[c][1] if c in _ON_DISK else c for c in SAMPLE_COLUMNS)
    where = ""
    if within:  # the file of a day also has what reaches back before midnight
        where = f" WHERE hour_utc > {within[0][0] - MS_PER_HOUR} AND hour_utc < {within[-1][1]}"
    if len(within) > 1:
        hours = (h for s, e in within for h in range(s - s % MS_PER_HOUR, e, MS_PER_HOUR))
        where += f" AND hour_utc IN ({', '.join(str(h) for h in dict.fromkeys(hours))})"
    return f"(SELECT {columns} FROM {read(paths)}{where})"


def read(paths: list[Path]) -> str:
    """SQL reading a list of Parquet files."""
    quoted = ", ".join("'" + str(p).replace("'", "''") + "'" for p in paths)
    return f"read_parquet([{quoted}])"


def raw_day(staged: Path | None, stored: list[Path]) -> str:
    """SQL: the day's samples as they were taken; for the same device, source and timestamp the latest import wins."""
    parts = []
    if staged is not None:
        parts.append(f"SELECT {_RAW}, seq FROM {read([staged])}")
    if stored:
        parts.append(f"SELECT {_RAW}, -1 AS seq FROM {samples(stored)} WHERE to_utc = sampled_utc")
    return (
        f"SELECT * EXCLUDE (following) FROM (SELECT *, lead(sampled_utc) OVER w AS following FROM ({' UNION ALL '.join(parts)})"
        " WINDOW w AS (PARTITION BY device_id, source ORDER BY sampled_utc, seq)) WHERE following IS DISTINCT FROM sampled_utc"
    )


def settled_day(raw: str, before: list[Path], day: int) -> str:
    """SQL: the day's samples with their intervals settled, cut by the hour, sorted. `before`: the files of the day before."""
    tail = (
        f"SELECT device_id, source, max(sampled_utc) AS last_utc FROM {samples(before)} GROUP BY ALL"
        if before
        else "SELECT NULL::VARCHAR AS device_id, NULL::VARCHAR AS source, NULL::BIGINT AS last_utc WHERE false"
    )
    columns = ", ".join(_ON_DISK[c][0] if c in _ON_DISK else c for c in SAMPLE_COLUMNS)
    return f"""
    WITH linked AS (
      SELECT r.*, coalesce(lag(sampled_utc) OVER w, t.last_utc) AS previous
      FROM {raw} r LEFT JOIN ({tail}) t USING (device_id, source)
      WINDOW w AS (PARTITION BY device_id, source ORDER BY sampled_utc)
    ), steps AS (
      SELECT device_id, source, median(sampled_utc - previous) AS usual_ms FROM linked
      WHERE previous >= {(day - 1) * MS_PER_DAY} GROUP BY ALL
    ), stepped AS (
      SELECT l.*, coalesce(
        l.step_ms, if(s.usual_ms > {LONGEST_STEP_MS}, {LONGEST_STEP_MS}, s.usual_ms), l.lone_step_ms, 0
      ) AS nominal_ms
      FROM linked l LEFT JOIN steps s USING (device_id, source)
    ), settled AS (
      SELECT *, CASE
        WHEN began_utc IS NOT NULL THEN began_utc
        WHEN sampled_utc - previous <= {REACH_STEPS} * nominal_ms THEN previous
        ELSE CAST(round(sampled_utc - nominal_ms) AS BIGINT) END AS start_utc
      FROM stepped
    ), cut AS (
      SELECT *, unnest(range(start_utc // {MS_PER_HOUR}, (sampled_utc - 1) // {MS_PER_HOUR} + 1)) * {MS_PER_HOUR} AS hour_utc
      FROM settled WHERE start_utc < sampled_utc
    )
    SELECT {columns} FROM (
      SELECT *, greatest(start_utc, hour_utc) AS from_utc, least(sampled_utc, hour_utc + {MS_PER_HOUR}) AS to_utc FROM cut
      UNION ALL
      SELECT *, NULL AS hour_utc, sampled_utc AS from_utc, sampled_utc AS to_utc FROM settled WHERE start_utc = sampled_utc
    ) ORDER BY device_id, from_utc, to_utc, source
    """


def watched(day: str, before: list[Path], reach_ms: int | None) -> str:
    """SQL: a day's samples, and those of the day before in the hours that its first ones reach back to."""
    rows = f"SELECT device_id, from_utc, to_utc, began_utc, source FROM {day} WHERE from_utc < to_utc"
    if before and reach_ms is not None:
        hour = reach_ms - reach_ms % MS_PER_HOUR
        rows += f" UNION ALL SELECT device_id, from_utc, to_utc, began_utc, source FROM {samples(before)} WHERE hour_utc >= {hour}"
    return f"({rows})"


def overlapping(rows: str) -> str:
    """SQL: do any two of these samples of a device speak of the same instant? (two sources, or given intervals)"""
    return (
        "SELECT bool_or(from_utc < before_utc) FROM (SELECT from_utc, max(to_utc) OVER (PARTITION BY device_id ORDER BY from_utc,"
        f" to_utc, source ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_utc FROM {rows})"
    )
