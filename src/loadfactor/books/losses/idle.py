"""Stretches in which every GPU that a job held was idle: of the ledger, cut every few minutes, so that idle is what it is there.

A step counts where all of its held time was observed and idle; unobserved time is no idle time and ends a stretch. The hours of the
ledger say which hours of a run can have such a step: only these are cut, and only activity is read of samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from loadfactor.base.units import MS_PER_HOUR, MS_PER_MIN, S_PER_HOUR
from loadfactor.books.booking import book, book_held
from loadfactor.books.cut_holdings import cut_holdings
from loadfactor.books.losses.stretches import Stretch, StretchPiece, join
from loadfactor.ledger.columns import ACTIVITIES
from loadfactor.store.session import Session
from loadfactor.tables.schema import Span

STEP_MS: Final = 5 * MS_PER_MIN
STEPS_AT_ONCE: Final = 250_000
"""So many rows, steps × GPUs, are booked at once, as far as whole hours allow: more does not fit a question's memory."""
_PIECES: Final = MS_PER_HOUR // STEP_MS
ACTIVITY: Final = sum({kind.bit for kind in ACTIVITIES})
"""The measurements that say whether a GPU is idle: no other one is read."""


@dataclass(frozen=True)
class HeldRun:
    """A job's attempt as the ledger of a window has it: when it held GPUs there, and for how many GPU-hours."""

    job: str
    attempt: Any
    from_ms: int
    to_ms: int
    gpu_hours: float


@dataclass(frozen=True)
class IdleStretch:
    """A stretch in which every GPU of a run was idle; `is_tail`: the run had been active before, and ended with it."""

    run: HeldRun
    stretch: Stretch
    is_tail: bool


def find_idle(
    session: Session,
    idle_below: float,
    window: Span,
    runs: Sequence[HeldRun],
    gpus: int,
    without: Sequence[tuple[str, str]],
) -> list[IdleStretch]:
    """The idle stretches of some runs in a window; `without`: jobs and GPUs of theirs that are not looked at.

    Reads `asked_ledger`, which stands for the window, first.
    """
    jobs, devices = ([key[n] for key in without] for n in range(2))
    session.register(
        "left_out", pa.table({"job_id": pa.array(jobs, pa.string()), "device_id": pa.array(devices, pa.string())})
    )
    session.register("looked_at", pa.table({"job_id": pa.array([run.job for run in runs], pa.string())}))
    session.materialize("run_hours", _SUM_HOURS)
    session.materialize("cut_hours", _PICK_HOURS)
    found: dict[tuple[str, Any], list[StretchPiece]] = {}
    whole = session.raw.execute(
        f"SELECT job_id, attempt, since, until, held_s FROM run_hours WHERE {_IS_WHOLE}"
    ).fetchall()
    wanted = session.raw.execute(
        "SELECT hour_utc, sum(gpus) FROM cut_hours GROUP BY hour_utc ORDER BY hour_utc"
    ).fetchall()
    for hours in _divide(wanted, gpus):
        whole += _cut(session, idle_below, [(max(h, window[0]), min(h + MS_PER_HOUR, window[1])) for h in hours])
    for job, attempt, *piece in sorted(whole, key=lambda row: row[2]):
        found.setdefault((job, attempt), []).append(StretchPiece(*piece))
    out = []
    for run in runs:
        for stretch in join(found.get((run.job, run.attempt), ())):
            is_tail = run.from_ms < stretch.from_ms and stretch.to_ms == run.to_ms < window[1]
            out.append(IdleStretch(run, stretch, is_tail))
    return out


def list_runs(session: Session) -> list[HeldRun]:
    """The runs of the table `asked_ledger`, those with most GPU-hours first."""
    rows = session.raw.execute(
        f"""SELECT job_id, attempt, min(from_utc), max(to_utc), sum(gpu_s) / {S_PER_HOUR} AS hours
            FROM asked_ledger WHERE job_id IS NOT NULL GROUP BY ALL ORDER BY hours DESC, job_id, attempt"""
    ).fetchall()
    return [HeldRun(*row) for row in rows]


_SUM_HOURS: Final = """
SELECT job_id, attempt, hour_utc, min(from_utc) AS since, max(to_utc) AS until, sum(gpu_s) AS held_s,
       coalesce(sum(gpu_s) FILTER (WHERE state = 'idle'), 0) AS idle_s, count(DISTINCT device_id) AS gpus,
       count(DISTINCT (from_utc, to_utc)) = 1 AS is_even
FROM asked_ledger ANTI JOIN left_out USING (job_id, device_id) SEMI JOIN looked_at USING (job_id)
GROUP BY job_id, attempt, hour_utc"""
"""What each run held in an hour, and was idle; `is_even`: by all of its GPUs over the same time."""
_IS_WHOLE: Final = "is_even AND idle_s >= held_s * (1 - 1e-9)"
_PICK_HOURS: Final = f"""
SELECT job_id, attempt, hour_utc, gpus FROM run_hours WHERE idle_s > 0 AND NOT ({_IS_WHOLE}) AND (NOT is_even OR
  idle_s >= (1 - 1e-6) * held_s / (until - since) * least(
    least(until, (since // {STEP_MS} + 1) * {STEP_MS}) - since, until - greatest(since, (until - 1) // {STEP_MS} * {STEP_MS})))"""
"""Hours of runs that may have an idle step: those that are not idle as a whole, and idle for as long as their shortest step."""


def _cut(session: Session, idle_below: float, spans: Sequence[Span]) -> list[tuple[Any, ...]]:
    """The idle steps of the runs and hours in `cut_hours` within these parts of hours: job, attempt, from, to, GPU-seconds.

    Who held what is attributed once, and only the stretches that are asked for are cut and joined with samples.
    """
    book(session, tuple(spans), (), idle_below, until="holdings", with_bills=False)
    cut_holdings(
        session,
        STEP_MS,
        "JOIN cut_hours AS c ON h.hour_utc = c.hour_utc AND h.job_id = c.job_id AND h.attempt IS NOT DISTINCT FROM c.attempt",
    )
    book_held(session, tuple(spans), idle_below, signals=ACTIVITY)
    steps: list[tuple[Any, ...]] = session.raw.execute(
        f"""SELECT job_id, attempt, min(from_utc), max(to_utc), sum(gpu_s) FROM book
            ANTI JOIN left_out USING (job_id, device_id)
            GROUP BY job_id, attempt, from_utc // {STEP_MS}
            HAVING coalesce(sum(gpu_s) FILTER (WHERE state = 'idle'), 0) >= sum(gpu_s) * (1 - 1e-9) ORDER BY 3"""
    ).fetchall()
    return steps


def _divide(wanted: Sequence[tuple[int, int]], gpus: int) -> Iterator[list[int]]:
    """Hours (starts, with the GPUs that are wanted in each) as parts that are booked one after another."""
    part: list[int] = []
    rows = 0
    for hour, count in wanted:
        more = max(gpus, count * _PIECES)
        if part and rows + more > STEPS_AT_ONCE:
            yield part
            part, rows = [], 0
        part.append(hour)
        rows += more
    if part:
        yield part
