"""What jobs need of the GPUs they hold: memory at its peak, time with kernels, links between GPUs, and energy with its price."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loadfactor.books.owned_prices import find_priced_pool, make_owned_server
from loadfactor.books.snapshot import Snapshot
from loadfactor.books.waterfall import ASKED
from loadfactor.metrics import metric
from loadfactor.metrics.query.question import UNKNOWN_HOLDER
from loadfactor.settings.config import settings

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
