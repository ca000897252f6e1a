"""Votes for the step of a source, counted over all files of a day at once: where samples of several lie among one another.

The gaps that a file by itself shows are not those between samples then. The count depends on the samples alone, not on the files.
"""

import numpy as np
import pyarrow as pa

from loadfactor.store.sample_files import SamplePart, taken
from loadfactor.store.sample_layout import LONGEST_STEP_MS, StepVote
from loadfactor.store.session import Session
from loadfactor.store.step_votes import count_votes
from loadfactor.tables import REACH_STEPS
from loadfactor.units import MS_PER_DAY


def count_day_votes(session: Session, day: int, parts: list[SamplePart]) -> tuple[StepVote, ...]:
    """The votes of a day; `parts` hold its samples, and the ones near before them."""
    start = day * MS_PER_DAY
    reach = max(part.reach_ms for part in parts)
    near = f"to_utc > {start - reach} AND to_utc <= {start + MS_PER_DAY}"
    gaps = session.fetch(
        f"""SELECT device_id, source, gap_ms FROM (
              SELECT *, sampled_utc - lag(sampled_utc) OVER series AS gap_ms,
                lag(sampled_utc) OVER series > {start} AS same_day
              FROM (
                SELECT device_id, source, sampled_utc, max(began_utc) AS began_utc,
                  greatest(coalesce(max(step_ms), 0), coalesce(max(lone_step_ms), 0), {LONGEST_STEP_MS}) AS longest_ms
                FROM {taken(parts, near)} GROUP BY ALL
              ) WINDOW series AS (PARTITION BY device_id, source ORDER BY sampled_utc)
            ) WHERE sampled_utc > {start} AND began_utc IS NULL AND (same_day OR gap_ms <= {REACH_STEPS} * longest_ms)"""
    )
    if not gaps.num_rows:
        return ()
    device, source = (gaps[name].combine_chunks().dictionary_encode() for name in ("device_id", "source"))
    series = device.indices.to_numpy().astype(np.int64) * len(source.dictionary) + source.indices.to_numpy()
    present, numbers = np.unique(series, return_inverse=True)
    names = [
        (
            device.dictionary[int(of) // len(source.dictionary)].as_py(),
            source.dictionary[int(of) % len(source.dictionary)].as_py(),
        )
        for of in present
    ]
    return count_votes(numbers, gaps["gap_ms"].combine_chunks().cast(pa.int64()).to_numpy(), names)


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
