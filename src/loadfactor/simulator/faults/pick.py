"""Choosing where a fault happens: a job, a node or GPUs that no other fault has changed, and for how long."""

from collections.abc import Callable

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.simulator.faults.scene import Expectation, Job, Scene, Window


class NoRoomError(PlanError):
    """The fleet of this seed has no place for the fault."""


def pick_job(
    scene: Scene,
    rng: np.random.Generator,
    minutes: int,
    fits: Callable[[Job], bool] = lambda job: job.purpose != "notebook",
    from_start: bool = False,
) -> Job:
    """A job that fits and holds its GPUs for so many minutes within the scene; `from_start`: it begins there, too.

    Raises NoRoomError.
    """
    found = []
    for job in scene.jobs:
        first, after = job.within(scene.minutes)
        begins = job.from_min >= 5 if from_start else True
        if begins and after - first >= minutes and job.job_id not in scene.hurt and fits(job):
            found.append(job)
    if not found:
        raise NoRoomError(f"no job of seed {scene.seed} has room for a fault of {minutes} minutes")
    near = [job for job in found if _is_near(scene, job)]
    chosen = near if near and rng.random() < 0.5 else found
    job = chosen[rng.integers(len(chosen))]
    scene.hurt.add(job.job_id)
    return job


def pick_window(scene: Scene, rng: np.random.Generator, job: Job, before: int, shortest: int, longest: int) -> Window:
    """Minutes of a job, so many after its first ones, of a length between both limits."""
    first, after = job.within(scene.minutes)
    length = min(int(rng.integers(shortest, longest + 1)), after - first - before)
    begin = int(rng.integers(first + before, after - length + 1))
    return begin, begin + length


def pick_dark_window(scene: Scene, rng: np.random.Generator, gpus: tuple[int, ...], length: int) -> Window:
    """Minutes in which no sample of these GPUs shows a fault. Raises NoRoomError."""
    seen = [e.minutes for e in scene.expected if e.is_certain and set(e.gpus) & set(gpus)]
    begins = [
        begin
        for begin in range(45, scene.minutes - length - 10, 5)
        if all(begin + length + 30 <= first or begin >= after + 45 for first, after in seen)
    ]
    if not begins:
        raise NoRoomError(f"no time of seed {scene.seed} has room for {length} minutes in the dark")
    begin = int(rng.choice(begins))
    return begin, begin + length


def expect(
    scene: Scene, rule: str, job: Job, minutes: Window, gpus: tuple[int, ...] | None = None, is_certain: bool = True
) -> None:
    """Expect a rule to speak of a job, or of some of its GPUs."""
    places = job.gpus if gpus is None else gpus
    scene.expected.append(Expectation(rule, scene.describe(job, gpus), minutes, is_certain, places))


def _is_near(scene: Scene, job: Job) -> bool:
    """Does an earlier fault show on the same node, or in the same team?"""
    nodes = {scene.fleet[place].node for place in job.gpus}
    return any(nodes & e.about.get("node", frozenset()) or job.team in e.about.get("team", ()) for e in scene.expected)
