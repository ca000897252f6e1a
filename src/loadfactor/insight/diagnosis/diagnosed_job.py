"""The facts of one job that rules of diagnoses read: its GPUs step by step, its nodes, sections, attempts, events and work."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR, MS_PER_MIN, MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.books.step_totals import CutRows
from loadfactor.books.watched import Watched
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.metrics import metric
from loadfactor.metrics.metric import Part, Ratio, Sum
from loadfactor.metrics.query.answer import work_out
from loadfactor.tables.schema import Span

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
SMOOTH_S = 10 * S_PER_MIN
"""Signals of a job are read as means over so long, so that single checkpoints and noise are no symptom."""


@dataclass(frozen=True)
class JobAttempt:
    """One time at which the job held GPUs: its steps [first, after), and how it ended."""

    first: int
    after: int
    end_state: str | None


@dataclass(frozen=True)
class DiagnosedJob:
    """Arrays are GPUs × steps of `step_s` seconds; seconds of GPU time in `held_s` and its parts, shares in `signals`.

    A signal that was not measured is NaN, one that nobody measured is not there; `gpu_link_saturation` is that of NVLink, of PCIe
    where a board has none. `nodes` and `sections` are by step: means over the nodes of the job, and the share of the step that the
    job reported to be in a section.
    """

    job: str
    purpose: str | None
    devices: tuple[str, ...]
    node_of: tuple[str | None, ...]
    start_ms: int
    step_s: int
    held_s: Floats
    idle_s: Floats
    underused_s: Floats
    unobserved_s: Floats
    signals: Mapping[str, Floats]
    nodes: Mapping[str, Floats]
    sections: Mapping[str, Floats]
    attempts: tuple[JobAttempt, ...]
    failed_alike: int
    """Attempts of the job, and jobs of its user and team in the same day, that failed."""
    out_of_memory: tuple[int, ...]
    """The steps in which it ran out of memory."""
    padding: float | None
    """Padded ÷ all tokens."""
    cost: float | None
    answered: Floats | None = None
    """Answers by step, in tokens or requests; None where nobody tells."""
    slowed_by: frozenset[str] = frozenset()
    """Reasons for which a driver slowed its GPUs down, as events name them; none where no source tells of them."""

    @property
    def is_serving(self) -> bool:
        """Whether it answers requests: then it waits for them, and holds memory for what may come."""
        return self.purpose in SERVING

    @property
    def is_interactive(self) -> bool:
        """Whether somebody sits before it."""
        return self.purpose in INTERACTIVE

    @cached_property
    def works(self) -> Flags:
        """Where a GPU is held and does something."""
        observed = self.held_s - self.unobserved_s
        return (observed > 0) & (self.idle_s < 0.5 * observed)

    @cached_property
    def working(self) -> Flags:
        """The steps in which any GPU works."""
        found: Flags = np.logical_or.reduce(self.works, axis=0)
        return found

    @cached_property
    def held(self) -> Flags:
        """The steps in which any GPU is held."""
        found: Flags = np.logical_or.reduce(self.held_s > 0, axis=0)
        return found

    @cached_property
    def is_idle(self) -> Flags:
        """Where a GPU is held and known to do nothing."""
        return (self.held_s > 0) & (self.idle_s >= 0.5 * self.held_s)

    @cached_property
    def active_s(self) -> Floats:
        """Held and observed, less idle and underused."""
        return np.clip(self.held_s - self.unobserved_s - self.idle_s - self.underused_s, 0, None)

    @cached_property
    def lost_s(self) -> Floats:
        """Idle, underused, active without tensor cores where both are measured, or for padding, and all of attempts that failed."""
        without = np.zeros_like(self.held_s)
        tensor = self.signals.get("tensor_activity")
        if tensor is not None:
            without = np.nan_to_num(np.clip(self.active_s - tensor * self.held_s, 0, None))
        lost = self.idle_s + self.underused_s + np.maximum(without, (self.padding or 0.0) * self.active_s)
        for attempt in self.attempts:
            if attempt.end_state in FAILED:
                steps = slice(attempt.first, attempt.after)
                lost[:, steps] = (self.held_s - self.unobserved_s)[:, steps]
        return np.minimum(lost, self.held_s - self.unobserved_s)

    @cached_property
    def activity(self) -> str:
        """The best signal of activity that was measured for half of the held time at least; any of them is `any activity`."""
        return next((name for name in ACTIVITY if self.has(name)), ACTIVITY[-1])

    def has(self, name: str) -> bool:
        """Whether a signal of GPUs, of nodes (`node …`) was measured for half of the held time at least."""
        if name == "any activity":
            return self.has(self.activity)
        if name.startswith("node "):
            found = self.nodes.get(name.removeprefix("node "))
            return found is not None and bool(np.mean(~np.isnan(found)) > 0.5)
        values = self.signals.get(name)
        is_held = self.held_s > 0
        return values is not None and bool(is_held.any()) and bool(np.mean(~np.isnan(values[is_held])) > 0.5)

    def level(self, name: str) -> Floats:
        """A signal by step: the mean of GPUs that work, smoothed; NaN where it is not known or nothing works."""
        if name.startswith("node "):
            return self._smooth(self.nodes[name.removeprefix("node ")])
        values = self.signals.get(name)
        if values is None:
            return np.full(self.held_s.shape[1], np.nan)
        is_known = self.works & ~np.isnan(values)
        weight = np.where(is_known, self.held_s, 0).sum(0)
        total = np.where(is_known, values * self.held_s, 0).sum(0)
        return self._smooth(np.divide(total, weight, out=np.full(len(total), np.nan), where=weight > 0))

    def by_gpu(self, name: str, steps: Flags) -> Floats:
        """A signal by GPU: its mean over some steps while it is held; NaN where it is not known."""
        values = self.signals[name][:, steps]
        weight = np.where(np.isnan(values), 0.0, self.held_s[:, steps])
        total = np.nansum(values * weight, axis=1)
        means: Floats = np.divide(total, weight.sum(1), out=np.full(len(total), np.nan), where=weight.sum(1) > 0)
        return means

    def mean(self, name: str, steps: Flags) -> float:
        """The mean of a signal by step over some of them; NaN where it is not known."""
        values = self.level(name)[steps]
        return float(np.nanmean(values)) if np.any(~np.isnan(values)) else float("nan")

    def _smooth(self, values: Floats) -> Floats:
        """The mean over what is known around each step; not known stays so."""
        width = max(1, round(SMOOTH_S / self.step_s))
        kernel = np.ones(width)
        is_known = ~np.isnan(values)
        around = np.convolve(is_known.astype(np.float64), kernel, "full")[width // 2 :][: len(values)]
        total = np.convolve(np.where(is_known, values, 0.0), kernel, "full")[width // 2 :][: len(values)]
        return np.where(is_known, total / np.maximum(around, 1), np.nan)


ACTIVITY = ("sm_activity", "engine_activity", "gpu_util")
"""Signals of activity, the one that says most first; the others are optimistic."""
SERVING = ("serving", "inference")
INTERACTIVE = ("notebook", "interactive", "debug")
"""Purposes of jobs, as sources and rules of tagging say them."""
FAILED = ("failed", "node_fail", "out_of_memory")
"""End states of attempts whose work counts as lost where nothing says that it was kept."""


HOURS: Final = ("idle_gpu_hours", "underused_gpu_hours", "unobserved_gpu_hours", "busy_gpu_hours")
SIGNALS: Final = (
    "gpu_util", "engine_activity", "sm_activity", "tensor_activity", "dram_activity", "fp32_activity", "sm_occupancy",
    "pcie_saturation", "nvlink_saturation", "mem_utilization", "throttled_share", "power_w",
)  # fmt: skip
NODE_SIGNALS: Final = ("cpu_busy_share", "io_wait_share", "disk_write_bytes_per_s", "net_tx_bytes_per_s")
_OF_GPU: Final = ("device", "node", "accelerator")
_BY: Final = (*_OF_GPU, "job")
_STEPS_MIN: Final = (1, 2, 5, 10, 60)
_MOST_STEPS: Final = 1500
"""A job of a day is read by minutes, one of more than ten days by the hours of the ledger."""


def read_jobs(watched: Watched, jobs: Sequence[str], span: Span | None = None) -> Iterator[DiagnosedJob]:
    """The facts of jobs within a span, out of the books, one after another in this order: those of equal steps are read together.

    Raises InputError where the books do not know a job, or it held no GPU then.
    """
    held: dict[str, list[Mapping[str, Any]]] = {job: [] for job in jobs}
    for row in watched.list_rows("allocations", job_id=held):
        held[row["job_id"]].append(row)
    found = [_find_run(watched, job, held[job], span) for job in jobs]
    metrics = [metric(name) for name in (*HOURS, *SIGNALS, "cost")]
    by_hours = [run for run in found if run.read.step_ms == MS_PER_HOUR]
    for near, part in _divide(watched, by_hours):
        rows = watched.read_job_hours(near, metrics, _BY, part)
        for job, run in near.items():
            run.read.add(rows.of("job", job))
    for near, part in _divide(watched, [run for run in found if run.read.step_ms != MS_PER_HOUR]):
        for (start, end), rates in watched.read_job_rates(
            {job: run.span for job, run in near.items()}, metrics, _BY, part
        ):
            for job, run in near.items():
                inside = max(start, run.span[0]), min(end, run.span[1])
                if inside[0] < inside[1]:
                    run.read.add(rates.of("job", job).cut(inside, run.read.step_ms))
    around = _read_around(watched, found)
    for run in found:
        yield _describe_job(watched, run, around)


def _divide(watched: Watched, runs: Sequence["_Run"]) -> Iterator[tuple[dict[str, "_Run"], Span]]:
    """Parts of the time of some runs that are read at once, each with the runs that last in it."""
    if not runs:
        return
    chunk_ms = watched.find_chunk_ms(min(run.read.step_ms for run in runs))
    last = max(run.span[1] for run in runs)
    for at in range(min(run.span[0] for run in runs), last, chunk_ms):
        part = at, min(at + chunk_ms, last)
        if near := {run.job: run for run in runs if run.span[0] < part[1] and run.span[1] > at}:
            yield near, part


@dataclass(frozen=True)
class _Run:
    """A job, its allocations, when each held GPUs within the time requested (also where that is never), and what is read of it."""

    job: str
    rows: Sequence[Mapping[str, Any]]
    held: Sequence[Span]
    read: "_Read"

    @property
    def span(self) -> Span:
        """From its first step to the end of its last."""
        return self.read.start_ms, self.read.start_ms + self.read.steps * self.read.step_ms

    @property
    def user(self) -> str | None:
        """The first of whom a row says that it is theirs."""
        return next((row["user"] for row in self.rows if row["user"]), None)


@dataclass(frozen=True)
class _Around:
    """Rows of others that say something of some jobs: runs of their users that failed, and what happened to GPUs."""

    failed: Sequence[Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]


def _read_around(watched: Watched, runs: Sequence["_Run"]) -> _Around:
    if not runs:
        return _Around((), ())
    start, end = min(run.span[0] for run in runs), max(run.span[1] for run in runs)
    ended = f"end_state = 'failed' AND to_utc > {start - MS_PER_DAY} AND to_utc <= {end + MS_PER_MIN}"
    then = f"kind IN ('out_of_memory', 'throttle') AND at_utc >= {start} AND at_utc < {end + MS_PER_HOUR}"
    return _Around(
        watched.list_rows("allocations", ended, user={run.user for run in runs if run.user is not None}),
        watched.list_rows("device_events", then),
    )


def _find_run(watched: Watched, job: str, rows: Sequence[Mapping[str, Any]], span: Span | None) -> _Run:
    first, last = watched.span if span is None else (max(span[0], watched.span[0]), min(span[1], watched.span[1]))
    held = [(max(_or(r["from_utc"], first), first), min(_or(r["to_utc"], last), last)) for r in rows]
    known = [(start, end) for start, end in held if start < end]
    if not known:
        raise InputError(
            f"the books know no GPU that job {job!r} held in that time; `loadfactor show paid_gpu_hours --by job` lists jobs"
        )
    step_ms = _choose_step(max(end for _, end in known) - min(start for start, _ in known))
    start = min(s for s, _ in known) // step_ms * step_ms
    end = -(-max(e for _, e in known) // step_ms) * step_ms
    return _Run(job, rows, held, _Read(start, step_ms, (end - start) // step_ms))


def _describe_job(watched: Watched, run: _Run, around: _Around) -> DiagnosedJob:
    job, rows, read, (start, end) = run.job, run.rows, run.read, run.span
    arrays = {name: read.work_out(name) for name in (*HOURS, *SIGNALS, "cost")}
    idle, underused, unobserved, busy = (np.nan_to_num(arrays[name]) * S_PER_HOUR for name in HOURS)
    cost = arrays["cost"]
    signals = {name: arrays[name] for name in SIGNALS if not np.isnan(arrays[name]).all()}
    if "power_w" in signals:
        limits = np.array([_find_limit(board) for _, _, board in read.gpus])[:, np.newaxis]
        signals["power_of_limit"] = signals["power_w"] / limits
    linked = np.array([_has_nvlink(board) for _, _, board in read.gpus], dtype=np.bool_)[:, np.newaxis]
    links = np.where(linked, arrays["nvlink_saturation"], arrays["pcie_saturation"])
    if not np.isnan(links).all():
        signals["gpu_link_saturation"] = links
    attempts = _list_attempts(run)
    nodes = {node for _, node, _ in read.gpus if node}
    reported = watched.list_rows("job_sections", job_id=[job])
    progress = watched.list_rows("progress", job_id=[job], unit=_UNITS)
    mine = {device for device, _, _ in read.gpus}
    events = [e for e in around.events if e["device_id"] in mine and start <= e["at_utc"] < end + read.step_ms]
    return DiagnosedJob(
        job,
        next((r["purpose"] for r in rows if r["purpose"]), None),
        tuple(device for device, _, _ in read.gpus),
        tuple(node for _, node, _ in read.gpus),
        start,
        read.step_ms // MS_PER_S,
        idle + busy + unobserved,
        idle,
        underused,
        unobserved,
        signals,
        _read_nodes(watched, nodes, read),
        {kind: read.spread([r for r in reported if r["kind"] == kind]) for kind in {r["kind"] for r in reported}},
        attempts,
        _count_failed(run, attempts, around.failed),
        tuple((e["at_utc"] - start) // read.step_ms for e in events if e["kind"] == "out_of_memory"),
        _find_padding(progress),
        None if np.isnan(cost).all() else float(np.nansum(cost)),
        _read_answers(progress, read),
        frozenset(e["detail"] for e in events if e["kind"] == "throttle" and e["detail"]),
    )


class _Read:
    """Rows of the ledger of some steps, as they come, added up by GPU and step."""

    def __init__(self, start_ms: int, step_ms: int, steps: int) -> None:
        self.start_ms, self.step_ms, self.steps = start_ms, step_ms, steps
        self.gpus: list[tuple[str, str | None, str | None]] = []
        self._sums: dict[Part, Floats] = {}

    def add(self, rows: CutRows) -> None:
        """Rows of some of the steps, or of steps around them."""
        at = rows.step + (rows.start_ms - self.start_ms) // self.step_ms
        if not len(at):
            return
        sizes = [len(rows.names[by]) + 1 for by in _OF_GPU]  # the last one stands for a name that is null
        coded = np.ravel_multi_index([rows.codes[by] % size for by, size in zip(_OF_GPU, sizes, strict=True)], sizes)
        found, which = np.unique(coded, return_inverse=True)
        names = [np.unravel_index(code, sizes) for code in found]
        places = np.array([self._place(rows, codes) for codes in names])[which.reshape(-1)]
        cells = places * self.steps + at
        for part, values in rows.sums.items():
            before = self._sums.get(part, np.zeros((0, self.steps, len(values))))
            sums = np.zeros((len(self.gpus), self.steps, len(values)))
            sums[: len(before)] = before
            for column, amounts in enumerate(values):
                sums[:, :, column] += np.bincount(cells, amounts, len(self.gpus) * self.steps).reshape(-1, self.steps)
            self._sums[part] = sums

    def work_out(self, name: str) -> Floats:
        """A metric by GPU and step; NaN where it is not known."""
        kind = metric(name).kind
        if not isinstance(kind, Sum | Ratio):
            raise TypeError(name)
        if not self._sums:
            return np.full((0, self.steps), np.nan)
        sums = {part: cells.reshape(-1, cells.shape[-1]) for part, cells in self._sums.items()}
        with np.errstate(invalid="ignore", divide="ignore"):
            values, is_known, coverage = work_out(kind, sums)
        known = is_known & ~np.isnan(coverage)
        return np.where(known, values[:, 0], np.nan).reshape(len(self.gpus), self.steps)

    def spread_amounts(self, rows: Iterable[Mapping[str, Any]]) -> Floats:
        """Amounts made in each step, in proportion to time."""
        edges = self.start_ms + np.arange(self.steps) * self.step_ms
        made = np.zeros(self.steps)
        for row in rows:
            length = row["to_utc"] - row["from_utc"]
            inside = np.minimum(row["to_utc"], edges + self.step_ms) - np.maximum(row["from_utc"], edges)
            made += row["amount"] * np.clip(inside, 0, None) / length if length else 0.0
        return made

    def spread(self, spans: Iterable[Mapping[str, Any]]) -> Floats:
        """The share of each step that lies in spans."""
        edges = self.start_ms + np.arange(self.steps) * self.step_ms
        inside = np.zeros(self.steps)
        for row in spans:
            until = np.minimum(row["to_utc"], edges + self.step_ms)
            inside += np.clip(until - np.maximum(row["from_utc"], edges), 0, None)
        return np.minimum(inside / self.step_ms, 1.0)

    def _place(self, rows: CutRows, codes: Sequence[np.int64]) -> int:
        names = [[*rows.names[by], None][code] for by, code in zip(_OF_GPU, codes, strict=True)]
        gpu = (names[0] or "", names[1], names[2])
        if gpu not in self.gpus:
            self.gpus.append(gpu)
        return self.gpus.index(gpu)


def _or(value: int | None, other: int) -> int:
    return other if value is None else int(value)


def _choose_step(length_ms: int) -> int:
    steps = [minutes * MS_PER_MIN for minutes in _STEPS_MIN]
    return next((step for step in steps if length_ms <= step * _MOST_STEPS), steps[-1])


def _find_limit(board: str | None) -> float:
    found = find_accelerator(board) if board else None
    limit = found.get("tdp_w") if found else None
    return float(limit) if limit else float("nan")


def _has_nvlink(board: str | None) -> bool:
    """Whether GPUs of a model reach each other over NVLink; one that nobody knows is taken for one of these."""
    found = find_accelerator(board) if board else None
    return found is None or found.nvlink_bytes_per_s is not None


def _list_attempts(run: _Run) -> tuple[JobAttempt, ...]:
    ends: dict[Span, str | None] = {}
    read = run.read
    for row, (first, after) in zip(run.rows, run.held, strict=True):
        if first < after:
            of = ((first - read.start_ms) // read.step_ms, -(-(after - read.start_ms) // read.step_ms))
            ends[of] = row["end_state"] or ends.get(of)
    return tuple(JobAttempt(*of, state) for of, state in sorted(ends.items()))


def _count_failed(run: _Run, attempts: Sequence[JobAttempt], failed: Sequence[Mapping[str, Any]]) -> int:
    """How many attempts failed in a day: of the job, and of jobs of its user in its team."""
    if run.user is None:
        return sum(attempt.end_state == "failed" for attempt in attempts)
    team, end = next((row["team"] for row in run.rows if row["team"]), None), run.span[1]
    alike = [row for row in failed if row["user"] == run.user and row["team"] == team]
    near = [row for row in alike if end - MS_PER_DAY < row["to_utc"] <= end + MS_PER_MIN]
    return len({(row["job_id"], row["from_utc"]) for row in near})


def _read_nodes(watched: Watched, nodes: set[str], read: _Read) -> dict[str, Floats]:
    """Signals of the nodes of a job, by step: means over nodes; none where nobody measured them."""
    end = read.start_ms + read.steps * read.step_ms
    rows = watched.list_rows("node_samples", f"to_utc > {read.start_ms} AND to_utc <= {end}", node=nodes)
    at = np.array([(row["to_utc"] - 1 - read.start_ms) // read.step_ms for row in rows], dtype=np.int64)
    found = {}
    for name in NODE_SIGNALS:
        values = np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)
        known = ~np.isnan(values)
        if known.any():
            count = np.bincount(at[known], minlength=read.steps)
            total = np.bincount(at[known], values[known], read.steps)
            found[name] = np.divide(total, count, out=np.full(read.steps, np.nan), where=count > 0)
    return found


_PADDING: Final = ("train_token", "padded_token")
_ANSWERS: Final = ("output_token", "request")
_UNITS: Final = (*_PADDING, *_ANSWERS)


def _find_padding(progress: Sequence[Mapping[str, Any]]) -> float | None:
    """The share of padding in all tokens of a job (`padded_token` counts both); None where it does not report both."""
    made = {unit: sum(row["amount"] or 0.0 for row in progress if row["unit"] == unit) for unit in _PADDING}
    if not made["padded_token"] or not made["train_token"]:
        return None
    return float(max(0.0, 1 - made["train_token"] / made["padded_token"]))


def _read_answers(progress: Sequence[Mapping[str, Any]], read: _Read) -> Floats | None:
    """Answers of a job by step: tokens, or requests where nobody counts those; None where nobody counts either."""
    for unit in _ANSWERS:
        if rows := [row for row in progress if row["unit"] == unit and row["amount"] is not None]:
            return read.spread_amounts(rows)
    return None
