"""Faults of work: GPUs are held and do little, or nothing. What follows for utilization is worked out by `consequences`."""

from collections.abc import Iterable

import numpy as np

from loadfactor.simulator.faults.pick import NoRoomError, expect, pick_job, pick_window
from loadfactor.simulator.faults.scene import Job, Scene, Window


def slow_fleet(scene: Scene, rng: np.random.Generator) -> None:
    """The storage that everybody reads from becomes slow."""
    first = int(rng.integers(40, scene.minutes - 210))
    window = (first, first + int(rng.integers(170, 210)))
    _slow(scene, rng, scene.jobs, window)


def slow_team(scene: Scene, rng: np.random.Generator) -> None:
    """All jobs of a team become slow."""
    length = int(rng.integers(170, 210))
    found = [
        (team, (first, first + length))
        for team in sorted({job.team for job in scene.jobs})
        for first in range(30, scene.minutes - length, 20)
        if any(job.team == team and job.purpose != "notebook" for job in scene.jobs_at((first, first + length)))
    ]
    if not found:
        raise NoRoomError(f"no team of seed {scene.seed} works long enough")
    team, window = found[rng.integers(len(found))]
    _slow(scene, rng, [job for job in scene.jobs if job.team == team], window)


def slow_job(scene: Scene, rng: np.random.Generator) -> None:
    """The batches of a job are too small."""
    job = pick_job(scene, rng, 190)
    _slow(scene, rng, [job], pick_window(scene, rng, job, 15, 170, 260))


def never_begin(scene: Scene, rng: np.random.Generator) -> None:
    """A job holds its GPUs and never does anything."""
    job = pick_job(scene, rng, 70, from_start=True)
    window = job.within(scene.minutes)
    _stop(scene, rng, job, window)
    expect(scene, "job_idle_from_start", job, window)


def stop_working(scene: Scene, rng: np.random.Generator) -> None:
    """A job worked, and hangs until its time is over."""
    job = pick_job(scene, rng, 160)
    first, after = job.within(scene.minutes)
    window = (int(rng.integers(first + 60, after - 90)), after)
    _stop(scene, rng, job, window)
    expect(scene, "job_became_idle", job, window)


def forget_notebook(scene: Scene, rng: np.random.Generator) -> None:
    """Somebody leaves a notebook and does not close it, or opens one and never runs anything."""
    job = pick_job(scene, rng, 140, lambda job: job.purpose == "notebook")
    first, after = job.within(scene.minutes)
    window = (first if rng.random() < 0.3 else int(rng.integers(first, after - 110)), after)
    _stop(scene, rng, job, window)
    expect(scene, "notebook_idle", job, window)


def use_some(scene: Scene, rng: np.random.Generator) -> None:
    """A job asks for more GPUs than its program finds."""
    job = pick_job(scene, rng, 130, lambda job: job.purpose != "notebook" and len(job.gpus) >= 2, from_start=True)
    window = job.within(scene.minutes)
    used = int(rng.integers(1, len(job.gpus)))
    unused = job.gpus[used:]
    scene.sm[np.ix_(unused, range(*window))] = 0
    scene.pcie[np.ix_(unused, range(*window))] = 0
    scene.nvlink[scene.cells(job)] = 0
    scene.memory[np.ix_(unused, range(*window))] = 0.004
    expect(scene, "gpus_never_used", job, window)


def _slow(scene: Scene, rng: np.random.Generator, jobs: Iterable[Job], window: Window) -> None:
    """Jobs do a third of what they did: some all the time, some by fits and starts."""
    for job in jobs:
        begins, ends = job.within(scene.minutes)
        first, after = max(begins, window[0]), min(ends, window[1])
        if first >= after:
            continue
        minute = np.arange(after - first)
        level = rng.uniform(0.2, 0.36) * np.ones(len(minute))
        if rng.random() < 0.5:
            level = np.where(minute % 6 < 2, 0.8, 0.06) * rng.uniform(0.8, 1.0)
        at = scene.cells(job, (first, after))
        works = scene.sm[at] > 0.03  # who pauses or loads, does so still
        scene.sm[at] = np.where(works, np.clip(level * rng.normal(1, 0.03, works.shape), 0, 1), scene.sm[at])
        scene.pcie[at], scene.nvlink[at] = 0.03, 0.1 * scene.sm[at]


def _stop(scene: Scene, rng: np.random.Generator, job: Job, window: Window) -> None:
    """Nothing, or next to nothing: something looks at the GPU now and then."""
    at = scene.cells(job, window)
    poked = rng.random() < 0.3
    scene.sm[at] = rng.uniform(0, 0.01, scene.sm[at].shape) if poked else 0.0
    scene.pcie[at], scene.nvlink[at] = 0.0, 0.0
