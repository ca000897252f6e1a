"""Jobs that held one GPU and no more: how active it was and how much of its memory they ever used."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loadfactor.books.snapshot import Snapshot
from loadfactor.books.waterfall import ASKED
from loadfactor.metrics import metric
from loadfactor.metrics.query.question import UNKNOWN_HOLDER

_HOURS: Final = {m.name: m for m in ASKED}
_ASKED: Final = (*(_HOURS[name] for name in ("idle", "busy", "unobserved", "active")), metric("mem_utilization_peak"))
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
    found = snapshot.show(_ASKED, _BY, start, end)
    columns = [found.column(metric.name) for metric in _ASKED]
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


def _read_number(value: object) -> float | None:
    return value if isinstance(value, float) else None
