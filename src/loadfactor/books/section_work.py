"""The GPU-seconds that jobs held while they did something instead of advancing, as rows that progress can be put beside."""

from typing import Final

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.metrics.work import IN_SECTION
from loadfactor.store.session import Session
from loadfactor.tables.work import SECTION_KINDS

_OPEN: Final = ", ".join(f"sum(sum(step) FILTER (kind = '{kind}')) OVER job AS {kind}" for kind in SECTION_KINDS)
_FIRST: Final = " ".join(f"WHEN {kind} > 0 THEN '{IN_SECTION[kind]}'" for kind in SECTION_KINDS)
_SPANS: Final = f"""
    WITH edges AS (
        SELECT job_id, from_utc AS at_utc, kind, 1 AS step FROM job_sections WHERE to_utc > from_utc
        UNION ALL SELECT job_id, to_utc, kind, -1 FROM job_sections WHERE to_utc > from_utc),
    stretches AS (
        SELECT job_id, at_utc AS from_utc, lead(at_utc) OVER job AS to_utc, {_OPEN}
        FROM edges GROUP BY job_id, at_utc WINDOW job AS (PARTITION BY job_id ORDER BY at_utc))
    SELECT job_id, from_utc, to_utc, CASE {_FIRST} END AS unit,
           unnest(range(from_utc - from_utc % {MS_PER_HOUR}, to_utc, {MS_PER_HOUR})) AS hour_utc
    FROM stretches WHERE unit IS NOT NULL"""
"""Every instant counts for one kind at most: of several the first of `SECTION_KINDS`. A row an hour that a section touches."""
_WORK: Final = """
    WITH held AS (
        SELECT job_id, hour_utc, from_utc, to_utc, sum(gpu_s) AS gpu_s
        FROM ledger SEMI JOIN section_spans USING (job_id, hour_utc) GROUP BY ALL),
    parts AS (
        SELECT job_id, unit, gpu_s / (held.to_utc - held.from_utc) AS gpu_s_per_ms,
               greatest(spans.from_utc, held.from_utc) AS from_utc, least(spans.to_utc, held.to_utc) AS to_utc
        FROM section_spans AS spans JOIN held USING (job_id, hour_utc))
    SELECT job_id, unit, from_utc, to_utc, sum(gpu_s_per_ms) * (to_utc - from_utc) AS amount
    FROM parts WHERE to_utc > from_utc GROUP BY job_id, unit, from_utc, to_utc"""
_NOTHING: Final = """
    SELECT NULL::VARCHAR AS job_id, NULL::VARCHAR AS unit, NULL::BIGINT AS from_utc, NULL::BIGINT AS to_utc,
           NULL::DOUBLE AS amount WHERE false"""


def tabulate_section_work(session: Session, is_asked: bool) -> None:
    """Put the work of sections into the table `section_work`; none of it where it is not asked for. Reads `ledger`.

    A section holds the GPUs that its job held meanwhile: time in which the job held none counts for nothing.
    """
    if is_asked:
        session.view_table("job_sections", "job_sections")
        session.materialize("section_spans", _SPANS)
        is_asked = session.fetch_one("SELECT count(*) FROM section_spans")[0] > 0  # else the ledger need not be read
    session.materialize("section_work", f"{_WORK} ORDER BY ALL" if is_asked else _NOTHING)
