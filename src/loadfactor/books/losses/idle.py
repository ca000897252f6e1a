"""Stretches in which every GPU that a job held was idle: of the ledger, cut every few minutes, so that idle is what it is there.

A step counts where all of its held time was observed and idle; unobserved time is no idle time and ends a stretch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from loadfactor.books.booking import book
from loadfactor.books.losses.stretches import Stretch, StretchPiece, join
from loadfactor.store.session import Session
from loadfactor.tables import Span
from loadfactor.units import H_PER_DAY, MS_PER_HOUR, MS_PER_MIN, S_PER_HOUR

STEP_MS: Final = 5 * MS_PER_MIN
STEPS_AT_ONCE: Final = 250_000
"""So many rows, steps × GPUs, are booked at once, as far as whole hours allow: more does not fit a question's memory."""
LONGEST_HOURS: Final = 31 * H_PER_DAY


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
    """The idle stretches of some runs in a window; `without`: jobs and GPUs of theirs that are not looked at."""
    jobs, devices = ([key[n] for key in without] for n in range(2))
    session.register(
        "left_out", pa.table({"job_id": pa.array(jobs, pa.string()), "device_id": pa.array(devices, pa.string())})
    )
    session.register("looked_at", pa.table({"job_id": pa.array([run.job for run in runs], pa.string())}))
    found: dict[tuple[str, Any], list[StretchPiece]] = {}
    for part in _divide(window, gpus):
        spans = tuple(
            (max(h, part[0]), min(h + MS_PER_HOUR, part[1]))
            for h in range(part[0] - part[0] % MS_PER_HOUR, part[1], MS_PER_HOUR)
        )
        book(session, spans, range(part[0] - part[0] % STEP_MS + STEP_MS, part[1], STEP_MS), idle_below)
        rows = session.raw.execute(
            f"""SELECT job_id, attempt, min(from_utc), max(to_utc), sum(gpu_s)
                FROM book ANTI JOIN left_out USING (job_id, device_id) SEMI JOIN looked_at USING (job_id)
                GROUP BY job_id, attempt, from_utc // {STEP_MS}
                HAVING coalesce(sum(gpu_s) FILTER (WHERE state = 'idle'), 0) >= sum(gpu_s) * (1 - 1e-9) ORDER BY 3"""
        ).fetchall()
        for job, attempt, *piece in rows:
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


def _divide(window: Span, gpus: int) -> Iterator[Span]:
    """Parts of a window that are booked one after another, each of whole hours."""
    steps = MS_PER_HOUR // STEP_MS
    hours = max(1, min(LONGEST_HOURS, STEPS_AT_ONCE // (steps * max(gpus, 1))))
    for start in range(window[0], window[1], hours * MS_PER_HOUR):
        yield start, min(start + hours * MS_PER_HOUR, window[1])
