"""Votes for the step of a source, counted over all files of a day at once: where samples of several lie among one another.

The gaps that a file by itself shows are not those between samples then. The count depends on the samples alone, not on the files.
"""

from collections.abc import Iterable

import numpy as np

from loadfactor.base.units import MS_PER_DAY
from loadfactor.store.manifest import StoredFile
from loadfactor.store.sample_files import SamplePart, taken
from loadfactor.store.sample_layout import LONGEST_STEP_MS, StepVote
from loadfactor.store.session import Session
from loadfactor.store.step_votes import count_votes
from loadfactor.tables.schema import REACH_STEPS

MOST_COUNTED_WHOLE = 200_000
"""A day with fewer samples votes as a whole: of more, each file has enough gaps to speak for itself."""


def votes_whole(files: Iterable[StoredFile], day: int, rows: int) -> bool:
    """True where so many more samples of a day vote together with those of its files, few as they are."""
    there = sum(f.rows for f in files if f.day == day)
    return 0 < there <= MOST_COUNTED_WHOLE - rows


def count_day_votes(session: Session, day: int, parts: list[SamplePart]) -> tuple[StepVote, ...]:
    """The votes of a day; `parts` hold its samples, and the ones near before them."""
    start = day * MS_PER_DAY
    reach = max(part.reach_ms for part in parts)
    told = taken(parts, f"to_utc > {start - reach} AND to_utc <= {start + MS_PER_DAY}")
    session.materialize(
        "voters",
        f"""SELECT device_id, source, (row_number() OVER (ORDER BY device_id, source) - 1)::INTEGER AS series
            FROM (SELECT DISTINCT device_id, source FROM {told})""",
    )
    rows = session.fetch(
        f"""SELECT series, sampled_utc, began_utc IS NOT NULL AS given,
              greatest(coalesce(step_ms, 0), coalesce(lone_step_ms, 0), {LONGEST_STEP_MS}) AS longest_ms
            FROM {told} JOIN voters USING (device_id, source)"""
    )
    if rows.num_rows < 2:
        return ()
    series, at, given, longest = (rows[name].to_numpy() for name in rows.column_names)
    order = np.lexsort((at, series))
    series, at, given, longest = series[order], at[order], given[order], longest[order]
    begins = np.flatnonzero(np.append(True, (series[1:] != series[:-1]) | (at[1:] != at[:-1])))
    if len(begins) < len(at):  # several imports speak of one sample
        given, longest = np.logical_or.reduceat(given, begins), np.maximum.reduceat(longest, begins)
        series, at = series[begins], at[begins]
    gap = at[1:] - at[:-1]
    counted = (series[1:] == series[:-1]) & (at[1:] > start) & ~given[1:]
    counted &= (at[:-1] > start) | (gap <= REACH_STEPS * longest[1:])
    names = session.raw.execute("SELECT device_id, source FROM voters ORDER BY series").fetchall()
    return count_votes(series[1:][counted], gap[counted], names)


def find_near_day(session: Session, day: int) -> list[SamplePart]:
    """The parts that hold samples of a day or near before it."""
    start, end = day * MS_PER_DAY, (day + 1) * MS_PER_DAY
    files = [
        f
        for f in session.manifest.of("samples")
        if f.samples is not None
        and f.samples.first_taken_ms <= end
        and f.samples.last_taken_ms > start - SamplePart("", 0, 0, f.samples).reach_ms
    ]
    return [*session.parts(files), *session.live_samples]
