"""What follows from what GPUs did, by a rule's definition alone: utilization over half an hour, GPUs free beside waiting jobs.

Worked out from the arrays, not through the books. Between what is certain and what cannot be lies a margin: there a rule may fire.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from loadfactor.simulator.faults.scene import Array, Expectation, Flags, Job, Scene, Wait, Window

WINDOW: Final = 30
LOW: Final = 0.5
MARGIN: Final = 0.05
CERTAIN_MINUTES, POSSIBLE_MINUTES = 85, 40
WAIT_CERTAIN, WAIT_POSSIBLE = 40, 5
SILENT: Final = 10


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
    """Where a job waits for no more GPUs than are free in its pool."""
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
    """The wait of a job that ran."""
    pool = scene.fleet[job.gpus[0]].pool
    return Wait(job.job_id, job.user, job.team, pool, len(job.gpus), job.submitted_min, job.from_min, True)


def _judge(
    rule: str, about: dict[str, frozenset[str]], activity: Array, held: Flags, gpus: tuple[int, ...] = ()
) -> Iterator[Expectation]:
    """The stretches in which the mean of the last half hour is low. `held`: the GPUs and minutes that count."""
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
    """Sums over the last half hour."""
    return np.convolve(of, np.ones(WINDOW))[: len(of)]


def _stretches(of: Flags) -> list[Window]:
    """The stretches of minutes in which something is so."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], of, [False]]).astype(int)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
