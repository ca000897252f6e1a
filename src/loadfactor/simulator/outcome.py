"""The outcome of a pool's queue: runs, waits and outages."""

from dataclasses import dataclass, field

from loadfactor.simulator.demand import SubmittedJob


@dataclass(slots=True)
class ScheduledRun:
    """One attempt of a job: when, where, how it ended, and what of its compute had been done and kept before."""

    job: SubmittedJob
    attempt: int
    from_ms: int
    to_ms: int
    end_state: str
    devices: tuple[int, ...]
    work_from_ms: int  # start-up over
    work_to_ms: int  # the idle tail begins
    share: float = 1.0
    alive: bool = True


@dataclass(frozen=True, slots=True)
class ScheduledWait:
    """One wait of a job, from `since_ms` until it started, was cancelled, or the simulation ended (until_ms None).

    `reason`: why it did not start at once, if it did not, in Slurm's words.
    """

    job: SubmittedJob
    attempt: int
    since_ms: int
    reason: str
    until_ms: int | None = None
    started: bool = False


@dataclass(frozen=True, slots=True)
class Outage:
    """GPUs of one node that could not be used."""

    devices: tuple[int, ...]
    whole_node: str | None
    from_ms: int
    to_ms: int
    reason: str


@dataclass
class Schedule:
    """The runs, waits and outages of one pool."""

    runs: list[ScheduledRun] = field(default_factory=list)
    waits: list[ScheduledWait] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
