"""What is said of a device in a trace, and findings: the rows of the JSON of `loadfactor diagnose`.

Times are microseconds, exact to the nanosecond. Definitions of the parts stand in docs/diagnose-traces.md and partition.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from loadfactor.insight.causes import Cause
from loadfactor.insight.diagnosis.finding import JobDiagnosis
from loadfactor.insight.traces.collectives import Skew
from loadfactor.insight.traces.kernels import KernelTime
from loadfactor.insight.traces.owners import Owner
from loadfactor.insight.traces.steps import StepTimes
from loadfactor.tables.trace_events import MemoryUse

Judgement = bool | Literal["partly"]
Sureness = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class DeviceReport:
    """One device in one trace. Where it cannot be judged, its times are None unless they were measured all the same.

    `busy_us` is the time in which anything ran on the device, copies too; `kernel_busy_us` that of kernels alone.
    `idle_by_cause_us`
    splits idle time by what the host or device waited for, and sums to it.
    """

    trace: str
    rank: int | None
    device: int | str | None
    gpu_span_us: float | None
    busy_us: float | None
    idle_us: float | None
    compute_us: float | None
    comm_us: float | None
    comm_exposed_us: float | None
    comm_hidden_us: float | None
    memcpy_us: float | None
    memcpy_exposed_us: float | None
    memset_us: float | None
    memset_exposed_us: float | None
    idle_host_us: float | None
    idle_launch_us: float | None
    idle_device_us: float | None
    idle_unknown_us: float | None
    kernels: int
    can_judge: Judgement
    because: tuple[str, ...]
    format: str
    path: str
    accelerator: str = ""
    world_size: int | None = None
    comm_kernels: int = 0
    copies: int = 0
    memsets: int = 0
    kernel_busy_us: float | None = None
    comm_overlap_share: float | None = None
    longest_gap_us: float | None = None
    median_kernel_us: float | None = None
    short_kernels_share: float | None = None
    tensor_core_share: float | None = None
    unknown_kernels_share: float | None = None
    idle_by_cause_us: Mapping[str, float] = field(default_factory=dict)
    host_owners: tuple[Owner, ...] = ()
    top_kernels: tuple[KernelTime, ...] = ()
    steps: tuple[StepTimes, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FoundAt:
    """Where a cause was found: a device of a trace, and its share of that device's span there."""

    trace: str
    rank: int | None
    device: int | str | None
    share: float


@dataclass(frozen=True)
class TraceFinding:
    """One cause of lost time. `share` is of the span (without a GPU: of the steps), the mean where it was found on several devices.

    `saved_share_low` and `saved_share_high` say what would have been saved: upper bounds of a fix, not a promise, and not to
    be added,
    because what is no longer lost here may be waited for elsewhere. `misleads` says what else looks like this.
    """

    cause: str
    class_: Cause
    share: float
    sureness: Sureness
    evidence: tuple[str, ...]
    action: str
    saved_share_low: float
    saved_share_high: float
    misleads: str
    found_at: tuple[FoundAt, ...] = ()


@dataclass(frozen=True)
class TraceCost:
    """A cause in money: the GPU-seconds it took in the traces and what they cost at the job's price of a GPU-hour.

    Both are None for traces without a GPU.

    `job_…_low` and `job_…_high`: what would be saved of all hours in which the job worked, if they ran like the traces.
    """

    cause: str
    gpu_s: float | None
    cost: float | None
    job_gpu_hours_low: float
    job_gpu_hours_high: float
    job_cost_low: float | None
    job_cost_high: float | None


@dataclass(frozen=True)
class TraceInBooks:
    """The job that traces are of, as the books know it, and each cause in its money.

    `diagnosis`: why its GPUs were not fuller by the books, where that was asked for.
    """

    job: str
    held_gpu_hours: float
    busy_gpu_hours: float
    price_per_gpu_hour: float | None
    currency: str
    costs: tuple[TraceCost, ...]
    diagnosis: JobDiagnosis | None = None


@dataclass(frozen=True)
class TraceDiagnosis:
    """Every device of every trace, what was found, and the collectives of several ranks beside each other.

    `in_books`: the same in money, where it was said which job the traces are of.
    """

    traces: tuple[DeviceReport, ...]
    findings: tuple[TraceFinding, ...]
    skew: Skew | None = None
    in_books: TraceInBooks | None = None
