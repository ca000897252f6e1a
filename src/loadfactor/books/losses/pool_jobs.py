"""The jobs of a window by pool, and the nodes of each pool: what a replay of the history by a scheduler starts from."""

from collections.abc import Mapping
from dataclasses import dataclass

from loadfactor.base.units import MS_PER_S
from loadfactor.books.job_history import list_jobs
from loadfactor.books.snapshot import Snapshot
from loadfactor.ledger.labels import drop_repeats
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
        """What tells it from other pools."""
        return self.pool, self.accelerator

    @property
    def name(self) -> str:
        """As people read it."""
        return f"pool {self.pool}" if self.pool else self.accelerator or "the cluster"

    @property
    def gpus(self) -> int:
        """All of it."""
        return sum(self.node_gpus)


def list_pools(session: Session, snapshot: Snapshot, window: Span) -> list[PoolHistory]:
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
    frame = snapshot.fetch(list_jobs(drop_repeats(snapshot.view("allocations")))).to_pylist()
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
    asked = start if submitted is None else max(min(submitted, start), window[0])
    whole = float(gpus) if gpus < 1 else float(round(gpus))
    return PoolJob(
        str(row["job_id"]), str(row["team"]), (asked - window[0]) / MS_PER_S, whole, (end - start) / MS_PER_S
    )
