"""Intervals in which every GPU that a job held was idle: of the ledger, cut every few minutes, so that idle is what it is there.

A step counts where all of its held time was observed and idle; unobserved time is no idle time and ends an interval. The hours of
the ledger say which hours of a run can have such a step: only these are cut, and only activity is read of samples.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from loadfactor.base.units import MS_PER_HOUR, MS_PER_MIN, MS_PER_S, S_PER_HOUR
from loadfactor.books.booking import book_held
from loadfactor.books.kept_waits import view_waits
from loadfactor.books.step_totals import Cells, estimate_rates
from loadfactor.ledger.columns import ACTIVITIES
from loadfactor.store.session import Session
from loadfactor.tables.schema import Span


@dataclass(frozen=True)
class IntervalPiece:
    """GPU-seconds spread evenly over [from_ms, to_ms)."""

    from_ms: int
    to_ms: int
    gpu_s: float

    def within(self, span: Span) -> float:
        """Its GPU-seconds inside a span.

        >>> IntervalPiece(0, 1000, 8.0).within((750, 5000))
        2.0
        """
        overlap = min(self.to_ms, span[1]) - max(self.from_ms, span[0])
        return self.gpu_s * overlap / (self.to_ms - self.from_ms) if overlap > 0 else 0.0


@dataclass(frozen=True)
class Interval:
    """Pieces without a gap between them, in order."""

    pieces: tuple[IntervalPiece, ...]

    @property
    def from_ms(self) -> int:
        """Its first instant."""
        return self.pieces[0].from_ms

    @property
    def to_ms(self) -> int:
        """The first instant after it."""
        return max(piece.to_ms for piece in self.pieces)

    @property
    def hours(self) -> float:
        """How long it is."""
        return (self.to_ms - self.from_ms) / MS_PER_HOUR

    def gpu_hours_after(self, seconds: float) -> float:
        """The GPU-hours that come later than so many seconds after its start.

        >>> Interval((IntervalPiece(0, 3_600_000, 7200.0),)).gpu_hours_after(900)
        1.5
        """
        late = (self.from_ms + round(seconds * MS_PER_S), self.to_ms)
        return sum(piece.within(late) for piece in self.pieces) / S_PER_HOUR


def merge(spans: Iterable[Span]) -> list[Span]:
    """The spans as few that do not touch, in order.

    >>> merge([(5, 7), (0, 2), (2, 3), (1, 3)])
    [(0, 3), (5, 7)]
    """
    out: list[Span] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def cut_out(pieces: Iterable[IntervalPiece], holes: Sequence[Span]) -> list[IntervalPiece]:
    """Cut holes (merged, in order) out of pieces, in order of time.

    >>> [(p.from_ms, p.to_ms, p.gpu_s) for p in cut_out([IntervalPiece(0, 10, 10.0)], [(2, 3), (8, 20)])]
    [(0, 2, 2.0), (3, 8, 5.0)]
    """
    out = []
    first = 0
    for piece in sorted(pieces, key=lambda p: (p.from_ms, p.to_ms)):
        while first < len(holes) and holes[first][1] <= piece.from_ms:
            first += 1
        start, number = piece.from_ms, first
        while number < len(holes) and holes[number][0] < piece.to_ms:
            if start < holes[number][0]:
                out.append((piece, start, holes[number][0]))
            start = max(start, holes[number][1])
            number += 1
        if start < piece.to_ms:
            out.append((piece, start, piece.to_ms))
    return [IntervalPiece(start, end, piece.within((start, end))) for piece, start, end in out]


def join(pieces: Iterable[IntervalPiece]) -> list[Interval]:
    """The pieces, in order of their start, as intervals without a gap."""
    out: list[list[IntervalPiece]] = []
    end = 0
    for piece in pieces:
        if out and piece.from_ms <= end:
            out[-1].append(piece)
            end = max(end, piece.to_ms)
        else:
            out.append([piece])
            end = piece.to_ms
    return [Interval(tuple(of)) for of in out]


STEP_MS: Final = 5 * MS_PER_MIN
RATES_AT_ONCE: Final = 2_000_000
"""So many samples of GPUs are read at once, as far as whole hours allow: more does not fit a question's memory."""
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
class IdleInterval:
    """A interval in which every GPU of a run was idle; `is_tail`: the run had been active before, and ended with it."""

    run: HeldRun
    interval: Interval
    is_tail: bool


def find_idle(
    session: Session,
    idle_below: float,
    window: Span,
    runs: Sequence[HeldRun],
    without: Sequence[tuple[str, str]],
) -> list[IdleInterval]:
    """The idle intervals of some runs in a window; `without`: jobs and GPUs of theirs that are not looked at.

    Reads `window_ledger`, which stands for the window, first.
    """
    jobs, devices = ([key[n] for key in without] for n in range(2))
    session.register(
        "left_out", pa.table({"job_id": pa.array(jobs, pa.string()), "device_id": pa.array(devices, pa.string())})
    )
    session.register("looked_at", pa.table({"job_id": pa.array([run.job for run in runs], pa.string())}))
    session.materialize("run_hours", _SUM_HOURS)
    session.materialize("cut_hours", _PICK_HOURS)
    session.materialize("held_by_runs", _HELD)
    found: dict[tuple[str, Any], list[IntervalPiece]] = {}
    whole = session.raw.execute(
        f"SELECT job_id, attempt, since, until, held_s FROM run_hours WHERE {_IS_WHOLE}"
    ).fetchall()
    needed = session.raw.execute(
        "SELECT hour_utc, sum(gpus) FROM cut_hours GROUP BY hour_utc ORDER BY hour_utc"
    ).fetchall()
    for hours in _divide(needed, estimate_rates(session, [(hour, hour + MS_PER_HOUR) for hour, _ in needed])):
        whole += _cut(session, idle_below, [(max(h, window[0]), min(h + MS_PER_HOUR, window[1])) for h in hours])
    for job, attempt, *piece in sorted(whole, key=lambda row: row[2]):
        found.setdefault((job, attempt), []).append(IntervalPiece(*piece))
    out = []
    for run in runs:
        for interval in join(found.get((run.job, run.attempt), ())):
            is_tail = run.from_ms < interval.from_ms and interval.to_ms == run.to_ms < window[1]
            out.append(IdleInterval(run, interval, is_tail))
    return out


def list_runs(session: Session) -> list[HeldRun]:
    """The runs of the table `window_ledger`, those with most GPU-hours first."""
    rows = session.raw.execute(
        f"""SELECT job_id, attempt, min(from_utc), max(to_utc), sum(gpu_s) / {S_PER_HOUR} AS hours
            FROM window_ledger WHERE job_id IS NOT NULL GROUP BY ALL ORDER BY hours DESC, job_id, attempt"""
    ).fetchall()
    return [HeldRun(*row) for row in rows]


_SUM_HOURS: Final = """
SELECT job_id, attempt, hour_utc, min(from_utc) AS since, max(to_utc) AS until, sum(gpu_s) AS held_s,
       coalesce(sum(gpu_s) FILTER (WHERE state = 'idle'), 0) AS idle_s, count(DISTINCT device_id) AS gpus,
       count(DISTINCT (from_utc, to_utc)) = 1 AS is_even
FROM window_ledger ANTI JOIN left_out USING (job_id, device_id) SEMI JOIN looked_at USING (job_id)
GROUP BY job_id, attempt, hour_utc"""
"""Held and idle time of each run by hour; `is_even`: by all of its GPUs over the same time."""
_IS_WHOLE: Final = "is_even AND idle_s >= held_s * (1 - 1e-9)"
_PICK_HOURS: Final = f"""
SELECT job_id, attempt, hour_utc, gpus FROM run_hours WHERE idle_s > 0 AND NOT ({_IS_WHOLE}) AND (NOT is_even OR
  idle_s >= (1 - 1e-6) * held_s / (until - since) * least(
    least(until, (since // {STEP_MS} + 1) * {STEP_MS}) - since, until - greatest(since, (until - 1) // {STEP_MS} * {STEP_MS})))"""
"""Hours of runs that may have an idle step: those that are not idle as a whole, and idle for as long as their shortest step."""


_HELD: Final = f"""
(SELECT * FROM window_ledger WHERE false) UNION ALL BY NAME
SELECT job_id, attempt, device_id, hour_utc, from_utc, to_utc, sum(gpu_s) * {MS_PER_S} / (to_utc - from_utc) AS gpus,
       true AS held, false AS free, false AS down, true AS has_source, true AS by_list, row_number() OVER () AS span
FROM window_ledger AS l ANTI JOIN left_out USING (job_id, device_id)
     SEMI JOIN cut_hours AS c ON l.hour_utc = c.hour_utc AND l.job_id = c.job_id AND l.attempt IS NOT DISTINCT FROM c.attempt
GROUP BY job_id, attempt, device_id, hour_utc, from_utc, to_utc"""
"""What runs held in the hours that are cut, as holdings: the ledger says it, so nobody is attributed anew."""


def _cut(session: Session, idle_below: float, spans: Sequence[Span]) -> list[tuple[Any, ...]]:
    """The idle steps of `held_by_runs` within these parts of hours: job, attempt, from, to, GPU-seconds."""
    hours = ", ".join(str(start - start % MS_PER_HOUR) for start, _ in spans)
    session.materialize("holdings", f"SELECT * FROM held_by_runs WHERE hour_utc IN ({hours})")
    session.create_view("numbered_holdings", "SELECT *, rowid AS holding FROM holdings")
    book_held(session, tuple(spans), idle_below, "held", signals=ACTIVITY, by_sample=True, idle_alone=True)
    runs = session.raw.execute("SELECT DISTINCT job_id, attempt FROM holdings ORDER BY ALL").fetchall()
    held = session.fetch_columns(
        "SELECT from_utc, to_utc, gpus, dense_rank() OVER (ORDER BY job_id, attempt) - 1 AS run"
        " FROM numbered_holdings ORDER BY holding"
    )
    idle = session.fetch_columns("SELECT holding, from_utc, to_utc FROM book WHERE state = 'idle'")
    cells = Cells(held["from_utc"], held["to_utc"], STEP_MS)
    run, from_ms, to_ms, gpus = (held[name][cells.holding] for name in ("run", "from_utc", "to_utc", "gpus"))
    first, steps = spans[0][0] // STEP_MS, (spans[-1][1] - spans[0][0]) // STEP_MS + 1
    found, step = np.unique(run * steps + cells.step - first, return_inverse=True)
    idle_ms = np.zeros(len(run))
    for _, at, of_ms in cells.cut(idle["holding"], idle["from_utc"], idle["to_utc"]):
        idle_ms += np.bincount(at, of_ms, len(run))
    held_s, idle_s = (np.bincount(step, gpus * of_ms / MS_PER_S) for of_ms in (cells.length_ms, idle_ms))
    since, until = np.full(len(found), spans[-1][1]), np.full(len(found), spans[0][0])
    np.minimum.at(since, step, np.maximum(from_ms, cells.step * STEP_MS))
    np.maximum.at(until, step, np.minimum(to_ms, (cells.step + 1) * STEP_MS))
    is_idle = idle_s >= held_s * (1 - 1e-9)
    columns = (of[is_idle].tolist() for of in (found // steps, since, until, held_s))
    return [(*runs[run], *piece) for run, *piece in zip(*columns, strict=True)]


def _divide(needed: Sequence[tuple[int, int]], rates: float) -> Iterator[list[int]]:
    """Divide hours, each with how many GPUs are read, which have so many rates an hour."""
    part: list[int] = []
    rows = 0.0
    for hour, count in needed:
        more = count * rates
        if part and rows + more > RATES_AT_ONCE:
            yield part
            part, rows = [], 0.0
        part.append(hour)
        rows += more
    if part:
        yield part


WaitSpan = tuple[str | None, int, int | None]
"""A wait: the pool, from when, and until when; None while it lasts."""
LEAST_WAIT_MS: Final = MS_PER_MIN
"""Waits that are shorter are a scheduler's round, not a lack of GPUs."""


@dataclass(frozen=True)
class FreeInterval:
    """A node (or a GPU of no known node) that stood free as a whole while nobody waited for its pool."""

    node: str | None
    pool: str | None
    interval: Interval


def list_waits(session: Session) -> list[WaitSpan]:
    """Every wait that the books know: its pool, and from when to when; None while it lasts."""
    view_waits(session)
    rows = session.raw.execute("SELECT pool, queued_utc, ended_utc FROM waits ORDER BY ALL").fetchall()
    return [(pool, queued, ended) for pool, queued, ended in rows]


def find_free(session: Session, waits: Iterable[WaitSpan], window: Span) -> list[FreeInterval]:
    """The free intervals of the table `window_ledger`. Who waits for no pool in particular waits for all."""
    waited: dict[str | None, list[Span]] = {}
    for pool, queued, ended in waits:
        end = window[1] if ended is None else ended
        if end - queued >= LEAST_WAIT_MS:
            waited.setdefault(pool, []).append((queued, end))
    everybody = merge(span for of in waited.values() for span in of)
    queues = {pool: merge([*of, *waited.get(None, ())]) for pool, of in waited.items()}
    places: dict[tuple[Any, ...], tuple[list[IntervalPiece], list[Span]]] = {}
    rows = session.raw.execute(
        """SELECT coalesce(node, device_id) AS place, node, max(pool), from_utc, to_utc, state = 'unallocated' AS free,
                  sum(gpu_s)
           FROM window_ledger WHERE place IS NOT NULL
           GROUP BY place, node, from_utc, to_utc, free ORDER BY place, from_utc, to_utc"""
    ).fetchall()
    pools: dict[tuple[Any, ...], str | None] = {}
    for place, node, pool, start, end, is_free, gpu_s in rows:
        free, used = places.setdefault((place, node), ([], []))
        pools[place, node] = pool or pools.get((place, node))
        if is_free:
            free.append(IntervalPiece(start, end, gpu_s))
        else:
            used.append((start, end))
    out = []
    for key, (free, used) in places.items():
        pool = pools[key]
        queue = everybody if pool is None else queues.get(pool, queues.get(None, []))
        holes = merge([*used, *queue])
        out += [FreeInterval(key[1], pool, interval) for interval in join(cut_out(free, holes))]
    return out
