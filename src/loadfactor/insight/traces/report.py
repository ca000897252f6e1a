"""Reports of devices in a trace, and findings: the rows of the JSON of `loadfactor diagnose`.

Times are microseconds, exact to the nanosecond. Definitions of the parts stand in docs/diagnose-traces.md and partition.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

from loadfactor.base.errors import InputError
from loadfactor.base.units import PERCENT, S_PER_HOUR, US_PER_S
from loadfactor.books.books import Books
from loadfactor.insight.causes import Cause
from loadfactor.insight.diagnosis.finding import JobDiagnosis, Range
from loadfactor.insight.traces.collectives import Skew
from loadfactor.insight.traces.kernels import KernelTime
from loadfactor.insight.traces.partition import Owner, StepTimes
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
class TraceCause:
    """A cause as people know it: its title, the sentence of a headline about a share of the time, and where to look first."""

    title: str
    sentence: str
    look_at: str


TRACE_CAUSES: Final = {
    "input_pipeline": TraceCause("waits for data", "The GPU waits for data {share} of the time", "the data loader"),
    "start_up": TraceCause("start-up", "The GPU is idle for start-up {share} of the time", "a trace of later steps"),
    "host_bound": TraceCause(
        "waits for the host",
        "The GPU waits for the host to launch work {share} of the time",
        "small operators and Python code",
    ),
    "synchronization": TraceCause(
        "synchronizing calls",
        "Host and GPU wait for each other {share} of the time",
        "calls that synchronize in the loop",
    ),
    "copy_bound": TraceCause(
        "exposed copies", "The GPU copies {share} of the time and computes nothing", "what is copied"
    ),
    "comm_exposed": TraceCause(
        "exposed communication",
        "The GPU communicates {share} of the time and computes nothing",
        "the traces of other ranks",
    ),
    "comm_transfer": TraceCause(
        "transfers between GPUs", "Moving data between GPUs takes {share} of the time", "overlap and the links"
    ),
    "comm_wait_straggler": TraceCause(
        "a late GPU",
        "GPU {rank} is late: {others} {share} of the time for it",
        "its host, clocks, power cap and memory errors",
    ),
    "device_wait_or_unrecorded": TraceCause(
        "waits on the GPU, or work not recorded",
        "The GPU waits for itself, or does what was not recorded, {share} of the time",
        "a trace with all its streams",
    ),
    "precision_fp32": TraceCause(
        "computes without tensor cores", "Kernels compute without tensor cores {share} of the time", "mixed precision"
    ),
    "compute": TraceCause("computes", "The GPU computes {share} of the time", "its longest kernels"),
}
"""What people call each cause of traces."""


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
    rank: int | None = None
    """The rank that others wait for, where it is one."""

    @property
    def title(self) -> str:
        """What people call it."""
        return TRACE_CAUSES[self.cause].title

    @property
    def headline(self) -> str:
        """It in a sentence, and where to look first."""
        cause, others = TRACE_CAUSES[self.cause], len(self.found_at) - 1
        share = f"{PERCENT * self.share:.0f} %"
        count = NUMBERS[others] if 0 <= others < len(NUMBERS) else f"{others:,}"
        waiting = "the other waits" if others == 1 else f"the other {count} wait"
        return f"{cause.sentence.format(share=share, rank=self.rank, others=waiting)}; look at {cause.look_at}."


NUMBERS: Final = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


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

    @property
    def title(self) -> str:
        """What people call the cause."""
        return TRACE_CAUSES[self.cause].title


@dataclass(frozen=True)
class TraceInBooks:
    """The job that traces are of, as the books know it, and each cause in its money.

    `diagnosis`: why its GPUs were not fuller by the books, where that was requested.
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

    `in_books`: the same in money, where the job of the traces was named.
    """

    traces: tuple[DeviceReport, ...]
    findings: tuple[TraceFinding, ...]
    skew: Skew | None = None
    in_books: TraceInBooks | None = None


@dataclass(frozen=True)
class JobRate:
    """The held and busy hours of a job in a window, and their price; `price_per_gpu_hour` is None where no price is known."""

    job: str
    held_gpu_hours: float
    busy_gpu_hours: float
    price_per_gpu_hour: float | None
    currency: str


def read_rate(books: Books, job: str, window: tuple[datetime, datetime] | None = None) -> JobRate:
    """The rate of a job within [start, end), by default in all of the books. Raises InputError where they do not know it."""
    start, end = window or books.span
    with books.snapshot() as snapshot:
        found = snapshot.show(("paid_gpu_hours", "busy_gpu_hours", "cost"), "job", start, end, where={"job": job})
        currency = books.store.currency_of(books.store.manifest)
    held, busy, cost = (
        sum(value for value in found.column(name) if isinstance(value, int | float))
        for name in ("paid_gpu_hours", "busy_gpu_hours", "cost")
    )
    if not held:
        raise InputError(
            f"the books know no GPU that job {job!r} held in that time; `loadfactor show paid_gpu_hours --by job` lists jobs"
        )
    return JobRate(job, held, busy, cost / held if cost else None, currency)


def price_trace(found: TraceDiagnosis, rate: JobRate, diagnosis: JobDiagnosis | None = None) -> TraceDiagnosis:
    """The same with money: of each finding the GPU-seconds in the traces, and what the job loses if all it did ran like them.

    `diagnosis` is what the books say of the job, to stand beside it.
    """
    span_us = {(report.trace, report.rank, report.device): report.gpu_span_us for report in found.traces}
    price = rate.price_per_gpu_hour
    costs = []
    for finding in found.findings:
        gpu_s = _add_up(finding.found_at, span_us)
        hours = Range(finding.saved_share_low * rate.busy_gpu_hours, finding.saved_share_high * rate.busy_gpu_hours)
        costs.append(
            TraceCost(
                finding.cause,
                gpu_s,
                None if price is None or gpu_s is None else gpu_s / S_PER_HOUR * price,
                hours.low,
                hours.high,
                None if price is None else hours.low * price,
                None if price is None else hours.high * price,
            )
        )
    books = TraceInBooks(
        rate.job, rate.held_gpu_hours, rate.busy_gpu_hours, price, rate.currency, tuple(costs), diagnosis
    )
    return replace(found, in_books=books)


def _add_up(
    places: Sequence[FoundAt], span_us: Mapping[tuple[str, int | None, int | str | None], float | None]
) -> float | None:
    """The GPU-seconds of a finding: its share of the span of each device where it was found; None where there is no device."""
    spans = [(at.share, span_us.get((at.trace, at.rank, at.device))) for at in places]
    known = [share * span for share, span in spans if span is not None]
    return sum(known) / US_PER_S if known else None
