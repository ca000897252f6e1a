"""Since when jobs hold what they hold: SQL over the table `allocations`.

A run of a job is an interval of steps in each of which it holds something. After a whole step without anything, as between being
requeued and starting again, another run begins.
"""

from typing import Final

from loadfactor.tables.schema import ALWAYS, Span

_NEVER: Final = ALWAYS[1]


def write_begun(span: Span, step_ms: int) -> str:
    """SQL: from_utc and job_id of the runs that begin in a span, in order."""
    start, end = span
    requested = f"SELECT job_id FROM allocations WHERE from_utc >= {start} AND from_utc < {end}"
    return f"""{_mark(requested, end, step_ms)}
        SELECT from_utc, job_id FROM marked WHERE begins AND from_utc >= {start} ORDER BY ALL"""


def write_lasting(at_ms: int, step_ms: int) -> str:
    """SQL: job_id and from_utc of the runs that lasted in the step that ends at an instant."""
    step = at_ms // step_ms - 1
    requested = f"SELECT job_id FROM allocations WHERE from_utc < {at_ms} AND {_last(step_ms)} >= {step}"
    return f"""{_mark(requested, at_ms, step_ms)}
        SELECT job_id, max(from_utc) AS from_utc FROM marked WHERE begins GROUP BY job_id"""


def _mark(requested: str, end: int, step_ms: int) -> str:
    """SQL that names `marked` the allocations of some jobs that began before an instant, with `begins` where a run does."""
    return f"""
        WITH own AS (SELECT job_id, from_utc, from_utc // {step_ms} AS first, {_last(step_ms)} AS last FROM allocations
                     WHERE from_utc < {end} AND coalesce(to_utc > from_utc, true) AND job_id IN ({requested})),
          followed AS (SELECT *, max(last) OVER (PARTITION BY job_id ORDER BY from_utc, last
                                                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM own),
          marked AS (SELECT *, coalesce(first > before + 1, true) AS begins FROM followed)"""


def _last(step_ms: int) -> str:
    """SQL: the number of the last step that an allocation holds something in."""
    return f"(coalesce(to_utc, {_NEVER}) - 1) // {step_ms}"
