"""Faults of links and of single GPUs in a job: a link is full, or GPUs wait for each other."""

import numpy as np

from loadfactor.simulator.faults.pick import expect, pick_job, pick_window
from loadfactor.simulator.faults.scene import Job, Scene


def fill_pcie(scene: Scene, rng: np.random.Generator) -> None:
    """A job moves its data over PCIe all the time, and computes little."""
    job = pick_job(scene, rng, 90)
    window = pick_window(scene, rng, job, 20, 60, 150)
    at = scene.cells(job, window)
    shape = scene.sm[at].shape
    scene.sm[at] = rng.uniform(0.15, 0.35) * rng.normal(1, 0.05, shape)
    scene.pcie[at] = rng.uniform(0.86, 0.97) * rng.normal(1, 0.01, shape)
    scene.nvlink[at] = 0.05
    expect(scene, "pcie_saturated", job, window)


def wait_for_collectives(scene: Scene, rng: np.random.Generator) -> None:
    """GPUs of a job spend their time in AllReduce: over busy NVLink, or over a slow network, which shows as waiting kernels."""
    job = pick_job(scene, rng, 90, _has_several)
    window = pick_window(scene, rng, job, 20, 60, 150)
    at = scene.cells(job, window)
    shape = scene.sm[at].shape
    scene.sm[at] = rng.uniform(0.12, 0.3) * rng.normal(1, 0.05, shape)
    scene.spin[at] = rng.uniform(0.96, 1.0)
    scene.tensor_ratio[at] = rng.uniform(0.05, 0.2)
    scene.pcie[at] = 0.03
    over_nvlink = rng.random() < 0.5
    scene.nvlink[at] = rng.uniform(0.72, 0.95) if over_nvlink else 0.04
    expect(scene, "collective_bound", job, window)


def lag_behind(scene: Scene, rng: np.random.Generator) -> None:
    """One GPU of a job does less than the others, or works while all others wait for it."""
    job = pick_job(scene, rng, 90, lambda job: job.purpose != "notebook" and len(job.gpus) >= 4)
    window = pick_window(scene, rng, job, 20, 60, 150)
    slow = job.gpus[rng.integers(len(job.gpus))]
    minutes = range(*window)
    if rng.random() < 0.5:
        scene.sm[slow, minutes] *= rng.uniform(0.2, 0.5)
    else:
        others = [place for place in job.gpus if place != slow]
        scene.sm[np.ix_(others, minutes)] *= rng.uniform(0.3, 0.5)
        scene.tensor_ratio[np.ix_(others, minutes)] = 0.25
        scene.sm[slow, minutes] = np.maximum(scene.sm[slow, minutes], 0.8)
    scene.pcie[scene.cells(job, window)] = 0.05
    scene.nvlink[scene.cells(job, window)] = 0.1  # who waits sends nothing
    expect(scene, "job_straggler", job, window)


def _has_several(job: Job) -> bool:
    return job.purpose != "notebook" and len(job.gpus) >= 2
