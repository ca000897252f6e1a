"""Work of which the books know no GPU: of runs whose GPUs nobody reported, and from before or after a job held any."""

from dataclasses import dataclass
from shlex import quote

from loadfactor.store.session import Session

_JOBS = """
    WITH held AS (
        SELECT job_id, min(from_utc) AS held_from, max(to_utc) AS held_to FROM ledger WHERE job_id IS NOT NULL GROUP BY job_id),
    parts AS (
        SELECT job_id, amount, held_to IS NULL AS is_unheld,
               CASE WHEN held_to IS NULL THEN 0.0
                    WHEN to_utc > from_utc
                    THEN greatest(0, least(to_utc, held_to) - greatest(from_utc, held_from)) / (to_utc - from_utc)
                    ELSE (from_utc BETWEEN held_from AND held_to)::INT END AS inside
        FROM progress LEFT JOIN held USING (job_id) QUALIFY unit = min(unit) OVER (PARTITION BY job_id)),
    named AS (
        SELECT job_id, max(experiment_id) AS experiment FROM allocations GROUP BY job_id
        QUALIFY count(*) OVER (PARTITION BY experiment) = 1)
    SELECT job_id, coalesce(any_value(experiment), job_id), bool_and(is_unheld), sum(amount), sum(amount * (1 - inside))
    FROM parts LEFT JOIN named USING (job_id) GROUP BY job_id HAVING sum(amount * (1 - inside)) > 0 ORDER BY job_id"""


@dataclass(frozen=True)
class UnheldWork:
    """A job that made progress while it held no GPU that the books know: all of it, or `outside_share` of what it made."""

    job: str
    name: str
    """What `--job` of an import calls it: its experiment where it has one."""
    is_unheld: bool
    outside_share: float


ROUNDING = 1e-9
"""A share of work that comes of dividing intervals alone."""


def list_unheld_work(session: Session) -> tuple[UnheldWork, ...]:
    """The jobs whose work has no GPU, by their ids; the ledger is called `ledger`."""
    if not session.has_rows("progress"):
        return ()
    for name in ("allocations", "progress"):
        session.view_table(name, name)
    found = session.raw.execute(_JOBS).fetchall()
    work = [UnheldWork(job, name, bool(alone), outside / made) for job, name, alone, made, outside in found if made]
    return tuple(one for one in work if one.outside_share > ROUNDING)


def say_log(work: UnheldWork) -> str:
    """The command that brings the GPUs of a job by their log."""
    return f"loadfactor import nvidia-smi LOG --job {quote(work.name)}"
