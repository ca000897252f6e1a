"""A small fleet for some hours, minute by minute: what its GPUs did, who held them, who waited, what broke and what it costs.

A scene is made healthy (`healthy`), faults are put into it, and it becomes rows of the tables (`rows`). Arrays are devices ×
minutes. What a GPU measures follows from a few arrays here by `measure`, so that a fault changes causes and not single signals.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from loadfactor.base.units import BYTES_PER_MIB, MS_PER_MIN, S_PER_MIN
from loadfactor.catalog.accelerators import accelerator

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Window = tuple[int, int]
"""Minutes [first, after) of a scene."""
IDLE_POWER_SHARE: Final = 0.14  # of the board's limit
POWER_CAP: Final = 0x4
CAPPED_ABOVE: Final = 0.86
"""SM activity above which a board may reach its limit of power."""
IDLE_BIT: Final = 0x1
LINKS: Final = ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "nvlink_bytes_per_s")
PROFILED: Final = frozenset({"sm_active_share", "tensor_active_share", "dram_active_share", *LINKS})
"""Columns that come from profiling counters, which not every GPU has."""


@dataclass(frozen=True)
class Gpu:
    """One GPU: its places in the fleet."""

    device: str
    node: str
    pool: str
    accelerator: str


@dataclass
class Job:
    """An allocation of whole GPUs, by their places; `to_min` None: it still runs when the scene ends."""

    job_id: str
    user: str
    team: str
    purpose: str
    gpus: tuple[int, ...]
    from_min: int
    to_min: int | None
    submitted_min: int
    end_state: str = "completed"

    def within(self, minutes: int) -> Window:
        return max(self.from_min, 0), minutes if self.to_min is None else min(self.to_min, minutes)


@dataclass(frozen=True)
class Wait:
    """A job that waits; `until_min` None: it waits still. Minutes before the scene are negative."""

    job_id: str
    user: str
    team: str
    pool: str
    gpus: int
    from_min: int
    until_min: int | None
    started: bool


@dataclass(frozen=True)
class SceneOutage:
    """A node that cannot be used."""

    node: str
    minutes: Window
    reason: str


@dataclass(frozen=True)
class Event:
    """Something that happened to a GPU."""

    gpu: int
    minute: int
    kind: str
    detail: str
    count: int | None = None


@dataclass(frozen=True)
class Price:
    """A price of an accelerator; minutes are None where it is open."""

    accelerator: str
    from_min: int | None
    to_min: int | None
    price_per_gpu_hour: float


@dataclass(frozen=True)
class Expectation:
    """What a rule may say: it fires within these minutes for something of `about`, by dimension. Is it certain, then it must.

    `gpus`: the places of GPUs whose samples show it; none where no sample does.
    """

    rule: str
    about: Mapping[str, frozenset[str]]
    minutes: Window
    is_certain: bool = True
    gpus: tuple[int, ...] = ()


@dataclass
class Scene:
    """A fleet that can be changed. Shares are of one; links are shares of their peaks."""

    seed: int
    start_ms: int
    minutes: int
    fleet: tuple[Gpu, ...]
    sm: Array
    spin: Array  # GPU_UTIL at least: kernels that wait are resident, too
    tensor_ratio: Array
    memory: Array
    pcie: Array
    nvlink: Array
    heat_c: Array  # above what its power makes of it
    throttle: npt.NDArray[np.int64]
    lost: Flags  # the sample was never taken
    jobs: list[Job] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    outages: list[SceneOutage] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    prices: list[Price] = field(default_factory=list)
    budgets: dict[str, float] = field(default_factory=dict)  # of a month, by team
    expected: list[Expectation] = field(default_factory=list)
    hurt: set[str] = field(default_factory=set)  # jobs that a fault has changed
    step_s: int = S_PER_MIN  # of samples: a minute, or a part of it
    plain: frozenset[int] = frozenset()  # places of GPUs without profiling counters

    def at_ms(self, minute: int) -> int:
        return self.start_ms + minute * MS_PER_MIN

    def gpus_of(self, node: str) -> tuple[int, ...]:
        return tuple(place for place, gpu in enumerate(self.fleet) if gpu.node == node)

    def holders(self) -> npt.NDArray[np.int64]:
        """Which job holds each GPU in each minute, by its place among the jobs; −1: none."""
        holder = np.full(self.sm.shape, -1, dtype=np.int64)
        for number, job in enumerate(self.jobs):
            first, after = job.within(self.minutes)
            holder[list(job.gpus), first:after] = number
        return holder

    def cells(self, job: Job, window: Window | None = None) -> tuple[npt.NDArray[np.intp], ...]:
        """The places of a job's GPUs and minutes in the arrays, in a window of the scene or in all of its time."""
        first, after = window or job.within(self.minutes)
        return np.ix_(list(job.gpus), range(first, after))

    def describe(self, job: Job, gpus: tuple[int, ...] | None = None) -> dict[str, frozenset[str]]:
        """What an alert about a job, or about some of its GPUs, may name."""
        places = job.gpus if gpus is None else gpus
        return {
            "job": frozenset({job.job_id}),
            "team": frozenset({job.team}),
            "user": frozenset({job.user}),
            **self.describe_gpus(places),
        }

    def describe_gpus(self, places: tuple[int, ...]) -> dict[str, frozenset[str]]:
        found = [self.fleet[place] for place in places]
        return {
            "device": frozenset(gpu.device for gpu in found),
            "node": frozenset(gpu.node for gpu in found),
            "pool": frozenset(gpu.pool for gpu in found),
            "accelerator": frozenset(gpu.accelerator for gpu in found),
        }

    def jobs_at(self, window: Window) -> Iterator[Job]:
        for job in self.jobs:
            first, after = job.within(self.minutes)
            if first <= window[0] and window[1] <= after:
                yield job


def measure(scene: Scene) -> Mapping[str, Array]:
    rng = np.random.default_rng((scene.seed, 12))
    sm = np.round(scene.sm, 4)
    busy = np.maximum(sm + (1 - sm) * 0.8 * np.minimum(1, 4 * sm), scene.spin)
    tensor, dram = sm * scene.tensor_ratio, 0.5 * sm
    load = 0.1 * busy + 0.55 * sm + 0.2 * dram + 0.3 * tensor
    of_limit = IDLE_POWER_SHARE + (1 - IDLE_POWER_SHARE) * np.minimum(load, 0.92)
    works_hard = sm > CAPPED_ABOVE
    is_capped = ((scene.throttle & POWER_CAP) > 0) & works_hard
    throttle = np.where(works_hard, scene.throttle, scene.throttle & ~POWER_CAP)
    of_limit = np.where(is_capped, 0.985, of_limit) + rng.normal(0, 0.004, sm.shape)
    boards = {gpu.accelerator: accelerator(gpu.accelerator) for gpu in scene.fleet}
    of = [boards[gpu.accelerator] for gpu in scene.fleet]
    limit_w = np.array([board.value("tdp_w") for board in of])[:, None]
    total = np.array([board.memory_bytes for board in of])[:, None]
    pcie = np.array([board.value("pcie_bytes_per_s") for board in of])[:, None]
    nvlink = np.array([board.nvlink_bytes_per_s or 0.0 for board in of])[:, None]
    in_use = np.round(np.clip(scene.memory, 0, 0.995) * total / BYTES_PER_MIB) * BYTES_PER_MIB
    return {
        "busy_share": np.round(np.clip(busy, 0, 1), 2),
        "sm_active_share": sm,
        "tensor_active_share": np.round(tensor, 4),
        "dram_active_share": np.round(dram, 4),
        "mem_used_bytes": in_use,
        "mem_total_bytes": np.broadcast_to(total, sm.shape).astype(np.float64),
        "power_w": np.round(limit_w * of_limit, 1),
        "pcie_rx_bytes_per_s": np.round(np.clip(scene.pcie, 0, 1) * pcie),
        "pcie_tx_bytes_per_s": np.round(0.3 * np.clip(scene.pcie, 0, 1) * pcie),
        "nvlink_bytes_per_s": np.round(np.clip(scene.nvlink, 0, 1) * nvlink),
        "temperature_c": np.floor(30 + 42 * of_limit + scene.heat_c),
        "throttle_mask": np.where(busy > 0, throttle, throttle | IDLE_BIT).astype(np.float64),
    }
