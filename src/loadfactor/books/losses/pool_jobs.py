"""The jobs of a window by pool, and the nodes of each pool: what a replay of the history by a scheduler starts from."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loadfactor.base.units import MS_PER_S
from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.books.owned_prices import find_priced_pool, make_owned_server
from loadfactor.books.snapshot import Snapshot
from loadfactor.books.waterfall import ASKED
from loadfactor.metrics import metric
from loadfactor.metrics.query.question import UNKNOWN_HOLDER
from loadfactor.settings.config import settings
from loadfactor.store.session import Session
from loadfactor.tables.schema import Span

PoolKey = tuple[str | None, str | None]
"""A pool and its accelerator."""


@dataclass(frozen=True)
class PoolJob:
    """A job as it was submitted and held inside a window, seconds from its start; `gpus` at once."""

    job: str
    team: str
    submit_s: float
    gpus: float
    duration_s: float


@dataclass(frozen=True)
class PoolHistory:
    """A pool of GPUs of one accelerator: the GPUs of each of its nodes, largest first, and the jobs it ran, by submission."""

    pool: str | None
    accelerator: str | None
    node_gpus: tuple[int, ...]
    nodes: frozenset[str | None]
    jobs: tuple[PoolJob, ...]

    @property
    def key(self) -> PoolKey:
        """Identity among pools."""
        return self.pool, self.accelerator

    @property
    def name(self) -> str:
        """As people read it."""
        return f"pool {self.pool}" if self.pool else self.accelerator or "the cluster"

    @property
    def gpus(self) -> int:
        """All of it."""
        return sum(self.node_gpus)


def list_pools(session: Session, window: Span) -> list[PoolHistory]:
    """The pools whose nodes were there at the end of a window, and the jobs that touched it.

    What jobs did before the window is cut off: who ran at its start is submitted then. Jobs whose pool nobody knows are left out,
    unless there is only one.
    """
    session.view_table("devices", "devices")
    rows = session.raw.execute(
        f"""SELECT device_id, max(node), max(pool), max(accelerator) FROM devices
            WHERE coalesce(from_utc < {window[1]}, true) AND coalesce(to_utc >= {window[1]}, true)
            GROUP BY device_id ORDER BY device_id"""
    ).fetchall()
    if not rows:
        return []
    nodes: dict[PoolKey, dict[str, int]] = {}
    names: dict[PoolKey, set[str | None]] = {}
    of_device: dict[object, PoolKey] = {}
    of_node: dict[object, PoolKey] = {}
    for device, node, pool, accelerator in rows:
        of_device[device] = of_node[node] = (pool, accelerator)
        counts = nodes.setdefault((pool, accelerator), {})
        counts[node or device] = counts.get(node or device, 0) + 1
        names.setdefault((pool, accelerator), set()).add(node)
    named = [pool for pool, _ in nodes]
    by_pool: dict[object, PoolKey] = {key[0]: key for key in nodes if key[0] is not None and named.count(key[0]) == 1}
    jobs: dict[PoolKey, list[PoolJob]] = {key: [] for key in nodes}
    session.view_table("allocations", "allocations")
    frame = session.fetch(recall("jobs", lambda: expressions().write_jobs())["jobs"]).to_pylist()
    for row in sorted(frame, key=lambda r: (r["submitted_ms"] or 0, r["job_id"], r["from_ms"] or 0)):
        key = _find_pool(row, of_device, of_node, by_pool, nodes)
        job = _cut(row, window)
        if key is not None and job is not None:
            jobs[key].append(job)
    return [
        PoolHistory(*key, tuple(sorted(counts.values(), reverse=True)), frozenset(names[key]), tuple(jobs[key]))
        for key, counts in nodes.items()
    ]


def _find_pool(
    row: Mapping[str, object],
    of_device: Mapping[object, PoolKey],
    of_node: Mapping[object, PoolKey],
    by_pool: Mapping[object, PoolKey],
    pools: Mapping[PoolKey, object],
) -> PoolKey | None:
    """The pool that a job ran in, as its GPU, its node or its own row says."""
    only = next(iter(pools)) if len(pools) == 1 else None
    return of_device.get(row["device_id"]) or of_node.get(row["node"] or "") or by_pool.get(row["pool"]) or only


def _cut(row: Mapping[str, object], window: Span) -> PoolJob | None:
    """A job inside a window; None where it has no time there."""
    numbers = [row[name] for name in ("from_ms", "to_ms", "submitted_ms", "gpus")]
    start, end, submitted, gpus = (n if isinstance(n, int | float) else None for n in numbers)
    start = window[0] if start is None else max(start, window[0])
    end = window[1] if end is None else min(end, window[1])
    if start >= end or not gpus:
        return None
    requested = start if submitted is None else max(min(submitted, start), window[0])
    whole = float(gpus) if gpus < 1 else float(round(gpus))
    return PoolJob(
        str(row["job_id"]), str(row["team"]), (requested - window[0]) / MS_PER_S, whole, (end - start) / MS_PER_S
    )


_HOURS: Final = tuple(m for m in ASKED if m.name in ("idle", "busy", "unobserved"))
_KERNELS: Final = ("engine_activity", "gpu_util", "sm_activity")
"""Signals of time with kernels, of which the largest counts: who has fewer multiprocessors may take longer in all of it."""
_ASKED: Final = (*_HOURS, *(metric(name) for name in (*_KERNELS, "mem_utilization_peak", "nvlink_saturation")))


@dataclass(frozen=True)
class JobNeed:
    """A job on GPUs of one model: shares of its observed time with kernels resident, of memory at the peak, of NVLink's peak.

    None is not measured. `is_profiled`: the time with kernels is known better than by GPU_UTIL.
    """

    job: str
    accelerator: str
    observed_share: float
    kernel_share: float
    is_profiled: bool
    memory_share: float
    nvlink_share: float | None


@dataclass(frozen=True)
class JobEnergy:
    """Energy that a job's GPUs drew in some hours, and the price of a kilowatt-hour there, PUE included; None is not known."""

    job: str
    kwh: float | None
    price_per_kwh: float | None


def list_job_needs(snapshot: Snapshot, start: datetime | None, end: datetime | None) -> list[JobNeed]:
    """The jobs of a window whose memory and activity are known, and that held GPUs of one known model."""
    found = snapshot.show(_ASKED, ("job", "accelerator"), start, end)
    columns = {m.name: found.column(m.name) for m in _ASKED}
    rows: dict[str, list[int]] = {}
    for row, (job, _) in enumerate(found.keys):
        if job is not None and job != UNKNOWN_HOLDER:
            rows.setdefault(job, []).append(row)
    out = []
    for job, of in rows.items():
        board = found.keys[of[0]][1]
        value = {name: _read_number(column[of[0]]) for name, column in columns.items()}
        seen = (value["idle"] or 0.0) + (value["busy"] or 0.0)
        kernels = [share for name in _KERNELS if (share := value[name]) is not None]
        memory = value["mem_utilization_peak"]
        if len(of) > 1 or board is None or not seen or not kernels or memory is None:
            continue
        profiled = value["engine_activity"] is not None or value["sm_activity"] is not None
        observed = seen / (seen + (value["unobserved"] or 0.0))
        out.append(JobNeed(job, board, observed, max(kernels), profiled, memory, value["nvlink_saturation"]))
    return out


def list_job_energy(snapshot: Snapshot, currency: str, start: datetime | None, end: datetime | None) -> list[JobEnergy]:
    """The energy that each job's GPUs drew, by pool and model; priced where a table [[owned]] says what electricity costs there.

    In the currency of the books alone.
    """
    found = snapshot.show(("energy_kwh",), ("job", "pool", "accelerator"), start, end)
    pools = settings().owned
    out = []
    for (job, pool, board), drawn in zip(found.keys, found.column("energy_kwh"), strict=True):
        owned = find_priced_pool(pool, board, pools) if job is not None else None
        if job is None:
            continue
        price = None
        is_metered = owned is not None and owned.colocation_price_per_kw_month is None
        if owned is not None and is_metered and owned.price_per_kwh is not None and owned.currency in (None, currency):
            price = owned.price_per_kwh * make_owned_server(owned).pue
        out.append(JobEnergy(job, _read_number(drawn), price))
    return out


def _read_number(value: object) -> float | None:
    return value if isinstance(value, float) else None


_OF_HOURS: Final = {m.name: m for m in ASKED}
_LONE_METRICS: Final = (
    *(_OF_HOURS[name] for name in ("idle", "busy", "unobserved", "active")),
    metric("mem_utilization_peak"),
)
_BY: Final = ("job", "device", "pool", "accelerator")


@dataclass(frozen=True)
class LoneJob:
    """A job on one GPU: its mean activity while it was seen, the share of its time that was, and its peak memory share."""

    job: str
    pool: str | None
    accelerator: str | None
    active_share: float
    observed_share: float
    memory_share: float


def list_lone_jobs(snapshot: Snapshot, start: datetime | None, end: datetime | None) -> list[LoneJob]:
    """The jobs of a window that held one GPU, and of which memory and activity are known."""
    found = snapshot.show(_LONE_METRICS, _BY, start, end)
    columns = [found.column(metric.name) for metric in _LONE_METRICS]
    rows: dict[str, list[int]] = {}
    for row, key in enumerate(found.keys):
        if key[0] is not None and key[0] != UNKNOWN_HOLDER:
            rows.setdefault(key[0], []).append(row)
    out = []
    for job, of in rows.items():
        _, device, pool, accelerator = found.keys[of[0]]
        idle, busy, unobserved, active, memory = (_read_number(column[of[0]]) for column in columns)
        seen = (idle or 0.0) + (busy or 0.0)
        if len(of) == 1 and device is not None and seen and memory is not None:
            out.append(
                LoneJob(job, pool, accelerator, (active or 0.0) / seen, seen / (seen + (unobserved or 0.0)), memory)
            )
    return out
