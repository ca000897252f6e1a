"""How often jobs lost work in a window, and how long checkpoints took: what the interval between checkpoints follows from."""

from dataclasses import dataclass

from loadfactor.base.units import MS_PER_S
from loadfactor.store.session import Session
from loadfactor.tables.schema import Span


@dataclass(frozen=True)
class LostWork:
    """Times that a job lost work, and the mean length of its checkpoints, None where it reports none."""

    job: str
    times: int
    checkpoint_s: float | None


def list_lost_work(session: Session, window: Span) -> list[LostWork]:
    """The jobs that lost work; steps that loss scaling skipped are no interruption."""
    for name in ("progress", "job_sections"):
        session.view_table(name, name)
    within = f"from_utc < {window[1]} AND to_utc > {window[0]}"
    rows = session.raw.execute(
        f"""WITH lost AS (SELECT job_id, count(DISTINCT from_utc) AS times FROM progress
                          WHERE kept = false AND coalesce(cause, '') <> 'loss_scale' AND {within} GROUP BY job_id),
                 stalls AS (SELECT job_id, avg(to_utc - from_utc) / {MS_PER_S} AS seconds FROM job_sections
                            WHERE kind = 'checkpoint' AND {within} GROUP BY job_id)
            SELECT job_id, times, seconds FROM lost LEFT JOIN stalls USING (job_id) ORDER BY job_id"""
    ).fetchall()
    return [LostWork(*row) for row in rows]


def list_checkpoint_s(session: Session, window: Span) -> dict[str, float]:
    """The mean length of a checkpoint, s, of the jobs that report some."""
    session.view_table("job_sections", "job_sections")
    rows = session.raw.execute(
        f"""SELECT job_id, avg(to_utc - from_utc) / {MS_PER_S} FROM job_sections
            WHERE kind = 'checkpoint' AND from_utc < {window[1]} AND to_utc > {window[0]} GROUP BY job_id ORDER BY job_id"""
    ).fetchall()
    return dict(rows)
