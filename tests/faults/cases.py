"""Cases: a healthy fleet with some faults in it, its data spoilt or not, and what rules of alerts should say of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from tests.faults.healthy import GPUS_OF_A_NODE, make_healthy, make_rows, make_samples
from tests.faults.kinds import FAULTS
from tests.faults.scene import PROFILED, Array, Expectation, Flags, Job, Scene, Wait, Window, measure

from loadfactor.base.units import S_PER_MIN
from loadfactor.simulator.table_rows import TableBatch

WINDOW: Final = 30
LOW: Final = 0.5
MARGIN: Final = 0.05
CERTAIN_MINUTES, POSSIBLE_MINUTES = 85, 40
WAIT_CERTAIN, WAIT_POSSIBLE = 40, 5
SILENT: Final = 10
ACTIVITY: Final = frozenset({"sm_active_share"})
NVLINK, PCIE = frozenset({"nvlink_bytes_per_s"}), frozenset({"pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"})
MEMORY: Final = frozenset({"mem_used_bytes", "mem_total_bytes"})
POWER, TENSOR, BUSY = frozenset({"power_w"}), frozenset({"tensor_active_share"}), frozenset({"busy_share"})
THROTTLE, HEAT = frozenset({"throttle_mask"}), frozenset({"temperature_c"})
ALL: Final = (
    BUSY | ACTIVITY | TENSOR | frozenset({"dram_active_share"}) | MEMORY | POWER | PCIE | NVLINK | HEAT | THROTTLE
)
MISSING: Final[Mapping[str, frozenset[str]]] = {
    "GPU_UTIL and memory only": BUSY | MEMORY,
    "no power": ALL - POWER,
    "no links": ALL - PCIE - NVLINK,
    "no profiling counters": BUSY | MEMORY | POWER | HEAT | THROTTLE,
}
"""What samples have where some signals are missing."""
NEEDS: Final[Mapping[str, frozenset[str]]] = {
    "pcie_saturated": PCIE | ACTIVITY,
    "collective_bound": NVLINK | ACTIVITY | BUSY | POWER | TENSOR,
    "job_straggler": ACTIVITY,
    "memory_pressure": MEMORY,
    "gpu_throttled": THROTTLE | POWER | HEAT,
    "gpu_hot": HEAT,
}
"""What a rule has to have to tell for certain; the others need any signal of activity, or no samples at all."""
LEAST: Final[Mapping[str, tuple[frozenset[str], ...]]] = {
    **{rule: (needed,) for rule, needed in NEEDS.items()},
    "collective_bound": (ACTIVITY | NVLINK, ACTIVITY | BUSY | POWER | TENSOR),
    "job_straggler": (ACTIVITY, BUSY),
    "gpu_throttled": (THROTTLE | POWER, THROTTLE | HEAT),
}
"""One of these a rule has to have to say anything: without, it is silent."""
LATE_MINUTES: Final = 35
"""An alert over a window may still tell of what ended so long ago."""
SAME: Final = {"exporter_lost": "telemetry_lost"}
"""Kinds of faults that another rule tells of, for every node."""


def find_low(scene: Scene, activity: Array) -> Iterator[Expectation]:
    """Where fleet, teams and jobs work at less than half for more than an hour. `activity`: NaN where it was not measured."""
    holder = scene.holders()
    everything = tuple(range(len(scene.fleet)))
    yield from _judge("fleet_utilization_low", {}, activity, holder >= 0, everything)
    for team in sorted({job.team for job in scene.jobs}):
        held = np.isin(holder, [n for n, job in enumerate(scene.jobs) if job.team == team])
        yield from _judge("team_utilization_low", {"team": frozenset({team})}, activity, held)
    for number, job in enumerate(scene.jobs):
        for found in _judge("job_utilization_low", scene.describe(job), activity, holder == number, job.gpus):
            # whether somebody who thinks is a job that is slow is for the rule to say
            yield found if job.purpose != "notebook" else replace(found, is_certain=False)


def find_free_beside_waits(scene: Scene) -> Iterator[Expectation]:
    holder = scene.holders()
    usable = np.ones(scene.sm.shape, dtype=bool)
    for outage in scene.outages:
        usable[list(scene.gpus_of(outage.node)), outage.minutes[0] : outage.minutes[1]] = False
    waits = [*scene.waits, *(_wait_of(scene, job) for job in scene.jobs)]
    waits = [wait for wait in waits if wait.from_min >= 0]
    for pool in sorted({gpu.pool for gpu in scene.fleet}):
        inside = np.array([gpu.pool == pool for gpu in scene.fleet])
        free = ((holder < 0) & usable)[inside].sum(axis=0)
        about = scene.describe_gpus(tuple(np.flatnonzero(inside).tolist()))
        for wait in waits:
            if wait.pool != pool:
                continue
            until = scene.minutes if wait.until_min is None else min(wait.until_min, scene.minutes)
            fits = np.zeros(scene.minutes, dtype=bool)
            fits[wait.from_min : until] = free[wait.from_min : until] >= wait.gpus
            for window in _stretches(fits):
                if (length := window[1] - window[0]) >= WAIT_POSSIBLE:
                    named = {**about, "job": frozenset({wait.job_id}), "team": frozenset({wait.team})}
                    yield Expectation("gpus_free_while_jobs_wait", named, window, length >= WAIT_CERTAIN)


def find_silent(scene: Scene) -> Iterator[Expectation]:
    """Where gaps add up: half of ten minutes of a GPU that somebody holds are missing, which may be told of its node."""
    is_silent = (scene.holders() >= 0) & scene.lost
    for node in sorted({gpu.node for gpu in scene.fleet}):
        places = scene.gpus_of(node)
        share = np.stack(
            [np.convolve(row, np.full(SILENT, 1 / SILENT))[: scene.minutes] for row in is_silent[list(places)]]
        )
        for window in _stretches(share.max(axis=0) > LOW - MARGIN):
            yield Expectation("telemetry_lost", scene.describe_gpus(places), window, False)


def _wait_of(scene: Scene, job: Job) -> Wait:
    pool = scene.fleet[job.gpus[0]].pool
    return Wait(job.job_id, job.user, job.team, pool, len(job.gpus), job.submitted_min, job.from_min, True)


def _judge(
    rule: str, about: dict[str, frozenset[str]], activity: Array, held: Flags, gpus: tuple[int, ...] = ()
) -> Iterator[Expectation]:
    measured = held & ~np.isnan(activity)
    is_alive: Flags = np.max(held, axis=0)
    seconds, there = _roll(measured.sum(axis=0)), _roll(is_alive)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = _roll(np.where(measured, activity, 0).sum(axis=0)) / seconds
    low = is_alive & (mean < LOW - MARGIN) & (there >= WINDOW) & (_roll(np.max(measured, axis=0)) >= WINDOW * 0.7)
    perhaps = is_alive & ((mean < LOW + MARGIN) | (seconds == 0))
    certain = [w for w in _stretches(low) if w[1] - w[0] >= CERTAIN_MINUTES]
    for window in _stretches(perhaps):
        if window[1] - window[0] >= POSSIBLE_MINUTES and np.any(mean[slice(*window)] < LOW + MARGIN):
            yield Expectation(rule, about, window, False, gpus)
    for window in certain:
        yield Expectation(rule, about, window, True, gpus)


def _roll(of: npt.NDArray[Any]) -> Array:
    return np.convolve(of, np.ones(WINDOW))[: len(of)]


def _stretches(of: Flags) -> list[Window]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], of, [False]]).astype(int)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def see_with(expected: Expectation, signals: frozenset[str], plain: frozenset[int]) -> Expectation | None:
    """What may be expected where samples have these columns alone, of `plain` GPUs without counters; None where nothing is."""
    rule = expected.rule
    seen = [signals - PROFILED if place in plain else signals for place in expected.gpus] or [signals]
    if not any(needed <= own for needed in LEAST.get(rule, (frozenset(),)) for own in seen):
        return None
    is_certain = expected.is_certain and all(NEEDS.get(rule, frozenset()) <= own for own in seen)
    return replace(expected, is_certain=is_certain)


def lose_some(scene: Scene, share: float = 0.1) -> None:
    """Lose samples for stretches of minutes, here and there on every GPU."""
    rng = np.random.default_rng((scene.seed, 13))
    for place in range(len(scene.fleet)):
        while scene.lost[place].mean() < share:
            first = int(rng.integers(scene.minutes))
            scene.lost[place, first : first + int(rng.integers(2, 9))] = True


def hold_back(scene: Scene) -> Flags:
    """Samples that arrive after the others: those of a node for a while, and single ones of every GPU."""
    rng = np.random.default_rng((scene.seed, 14))
    late = rng.random(scene.lost.shape) < 0.03
    nodes = sorted({gpu.node for gpu in scene.fleet})
    for _ in range(2):
        first = int(rng.integers(30, scene.minutes - 120))
        places = scene.gpus_of(nodes[rng.integers(len(nodes))])
        late[list(places), first : first + int(rng.integers(30, 120))] = True
    return late


@dataclass(frozen=True)
class Case:
    """A fleet, what is known of it, and what may be said of it. `late`: samples that come in a second import."""

    seed: int
    kinds: tuple[str, ...]
    scene: Scene
    signals: frozenset[str]
    expected: tuple[Expectation, ...]
    late: Flags | None = None

    def explain(self, rule: str, by: Mapping[str, str], start_ms: int, end_ms: int | None) -> list[Expectation]:
        """What was expected of the things and at the time that an alert tells of; nothing where it is false.

        `end_ms`: None where the alert did not end. Dimensions that an expectation does not describe may have any value.
        """
        until_ms = self.scene.at_ms(self.scene.minutes) if end_ms is None else end_ms
        return [
            e
            for e in self.expected
            if e.rule == rule
            and start_ms < self.scene.at_ms(e.minutes[1] + LATE_MINUTES)
            and until_ms >= self.scene.at_ms(e.minutes[0])
            and all(value in e.about[name] for name, value in by.items() if name in e.about)
        ]

    def rows(self) -> Iterator[TableBatch]:
        return make_rows(self.scene, sorted(self.signals), self.late)

    def late_rows(self) -> Iterator[TableBatch]:
        if self.late is not None:
            yield make_samples(self.scene, sorted(self.signals), self.late & ~self.scene.lost)


def make_case(
    seed: int,
    kinds: Sequence[str] = (),
    has_gaps: bool = False,
    is_late: bool = False,
    missing: str | None = None,
    more_nodes: int = 0,
    step_s: int = S_PER_MIN,
    plain_nodes: int = 0,
) -> Case:
    """The fleet of a seed with faults of these kinds, put in in the order of `FAULTS`. Raises NoRoomError where they do not fit.

    `missing`: one of the names in `MISSING`. `more_nodes`: beside the usual four. `step_s`: of samples, a part of a minute.
    `plain_nodes`: so many nodes, the first ones, have no profiling counters.
    """
    scene = make_healthy(seed, more_nodes)
    scene.step_s, scene.plain = step_s, frozenset(range(GPUS_OF_A_NODE * plain_nodes))
    rng = np.random.default_rng((seed, 15))
    for kind in FAULTS:
        for _ in range(list(kinds).count(kind)):
            FAULTS[kind](scene, rng)
    if has_gaps:
        lose_some(scene)
    signals = MISSING[missing] if missing else ALL
    best = "sm_active_share" if "sm_active_share" in signals else "busy_share"
    measured = measure(scene)
    activity = np.where(scene.lost, np.nan, measured[best])
    plain = sorted(scene.plain)
    activity[plain] = np.where(scene.lost, np.nan, measured["busy_share"])[plain]
    found = [
        *scene.expected,
        *find_low(scene, activity),
        *find_free_beside_waits(scene),
        *find_silent(scene),
    ]
    expected = tuple(seen for e in found if (seen := see_with(e, signals, scene.plain)) is not None)
    expected = tuple(replace(e, rule=SAME.get(e.rule, e.rule)) for e in expected)
    return Case(seed, tuple(kinds), scene, signals, expected, hold_back(scene) if is_late else None)
