"""A clinic: jobs on nodes of their own, each healthy but for known causes of lost GPU time.

What a GPU measures follows from what its steps are spent on (computing, exposed communication, waits in collectives, exposed
copies, gaps) and from how its kernels run, which are drawn for each job; a cause changes these, not single signals.
`clinic_signals` measures it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from loadfactor.base.units import S_PER_DAY, S_PER_MIN
from loadfactor.simulator.faults.clinic_shapes import JobShape, draw_shape

Array = npt.NDArray[np.float64]


@dataclass
class Patient:
    """A job on nodes of its own; arrays are GPUs × steps of its samples, shares of a step or of a peak. Spans are in steps."""

    name: str
    rng: np.random.Generator
    shape: JobShape
    compute: Array
    comm: Array
    copy: Array
    traits: dict[str, float]
    wait: Array
    cpu: Array
    io_wait: Array
    writes: Array
    net: Array
    throttled: Array
    causes: tuple[str, ...]
    attempts: list[tuple[int, int, str]]
    purpose: str = "training"
    sections: list[tuple[int, int, str]] = field(default_factory=list)
    out_of_memory: list[int] = field(default_factory=list)
    padding: float | None = None
    spin: float = 0.0

    @property
    def gpus(self) -> int:
        """How many it holds."""
        return self.shape.gpus

    def count(self, minutes: float) -> int:
        """So many minutes as steps, one at least."""
        return max(1, round(minutes * S_PER_MIN / self.shape.step_s))

    def noise(self, level: float, spread: float = 0.04) -> Array:
        """Around a level, a value a step, correlated in time."""
        steps = self.rng.normal(0, spread, self.shape.steps + 8)
        smooth = np.convolve(steps, np.ones(5) / 5, "same")[: self.shape.steps] * 2
        return np.clip(level * (1 + smooth), 0, 1)


def make_patient(name: str, seed: int, causes: Sequence[str], shape: JobShape | None = None) -> Patient:
    """A job with these causes, healthy without any; the same seed makes the same one. `shape`: drawn where none is given."""
    rng = np.random.default_rng((seed, 17))
    shape = shape or draw_shape(rng, causes)
    zero, each = np.zeros((shape.gpus, shape.steps)), np.ones(shape.steps)
    alone, nodes = shape.gpus == 1, shape.nodes
    traits = {
        "sm": rng.uniform(0.76, 0.97), "tensor": rng.uniform(0.28, 0.65), "dram": rng.uniform(0.2, 0.5),
        "fp32": rng.uniform(0.03, 0.15), "occupancy": rng.uniform(0.28, 0.6), "memory": rng.uniform(0.3, 0.95),
        "nvlink": rng.uniform(0.02, 0.25), "pcie": rng.uniform(0.01, 0.12), "over_pcie": rng.uniform(0.3, 0.7),
        "power": rng.uniform(0.9, 1.1),
    }  # fmt: skip
    patient = Patient(
        name=name, rng=rng, shape=shape, compute=zero + rng.uniform(0.85, 0.97),
        comm=zero + (0.0 if alone else rng.uniform(0.0, 0.06)), copy=zero + rng.uniform(0.0, 0.02), traits=traits, wait=zero.copy(),
        cpu=each * rng.uniform(0.08, 0.6), io_wait=each * rng.uniform(0.0, 0.05), writes=each * rng.uniform(2e7, 3e8),
        net=each * (rng.uniform(1e9, 2e10) if nodes > 1 else rng.uniform(1e7, 3e8)), throttled=zero.copy(), causes=tuple(causes),
        attempts=[(0, shape.steps, "completed")],
    )  # fmt: skip
    _pause(patient)
    for cause in causes:
        CAUSES[cause](patient)
    return patient


def _pause(p: Patient) -> None:
    """What healthy jobs do beside training: they load for some minutes, and evaluate now and then with half of their strength."""
    p.compute[:, : p.count(p.rng.uniform(1, 5))] = 0.0
    every, length = p.count(p.rng.uniform(60, 300)), p.count(p.rng.uniform(1, 4))
    at = np.arange(p.shape.steps)
    p.compute *= np.where((at > every / 2) & (at % every < length), 0.5, 1.0)


def _lose(p: Patient, least: float = 0.3, most: float = 0.8) -> Array:
    """Take a part of each step from computing; how much."""
    lost: Array = p.compute * p.noise(p.rng.uniform(least, most))
    p.compute = p.compute - lost
    return lost


def _stop(p: Patient, steps: slice, gpus: slice = slice(None)) -> None:
    """Nothing is done in some steps by some GPUs."""
    for part in (p.compute, p.comm, p.copy, p.wait):
        part[gpus, steps] = 0.0


def _starve(p: Patient) -> None:
    _lose(p)
    if p.rng.random() < 0.6:
        p.cpu = p.noise(p.rng.uniform(0.9, 0.99), 0.01)
    else:
        p.io_wait = p.noise(p.rng.uniform(0.15, 0.45))


def _copy(p: Patient) -> None:
    p.copy = p.copy + _lose(p, 0.4, 0.8)


def _shrink(p: Patient) -> None:
    p.traits.update(sm=p.rng.uniform(0.12, 0.45), occupancy=p.rng.uniform(0.05, 0.2), memory=p.rng.uniform(0.08, 0.45))


def _fill_memory(p: Patient) -> None:
    p.traits.update(sm=p.rng.uniform(0.12, 0.45), occupancy=p.rng.uniform(0.05, 0.2), memory=p.rng.uniform(0.87, 0.99))


def _use_fp32(p: Patient) -> None:
    p.traits.update(tensor=p.rng.uniform(0.0, 0.008), fp32=p.rng.uniform(0.3, 0.75))


def _communicate(p: Patient) -> None:
    lost = _lose(p, 0.35, 0.8)
    p.comm = p.comm + lost
    p.traits["nvlink_comm"] = p.rng.uniform(0.4, 0.9) / (2 if p.shape.nodes > 1 else 1)
    if p.shape.nodes > 1 and p.rng.random() < 0.7:  # adapters of the network are counted on most nodes, not on all
        p.net = p.net + lost.mean(0) * p.rng.uniform(1e11, 3e11)


def _launch(p: Patient) -> None:
    _lose(p, 0.25, 0.75)


def _stream(p: Patient) -> None:
    p.traits.update(dram=p.rng.uniform(0.78, 0.95), tensor=p.rng.uniform(0.01, 0.15))


def _wait(p: Patient, kept: Array | float, gpus: npt.NDArray[np.bool_] | slice = slice(None)) -> None:
    """Some GPUs are done early, and poll for the others: kernels of collectives are resident and move nothing."""
    before = p.compute[gpus]
    p.compute[gpus] = before * kept
    p.wait[gpus] += before - p.compute[gpus]


def _lag(p: Patient) -> None:
    _wait(p, p.rng.uniform(0.4, 0.82), np.arange(p.gpus) != int(p.rng.integers(p.gpus)))


def _unbalance(p: Patient) -> None:
    _wait(p, p.rng.permutation(np.linspace(p.rng.uniform(0.3, 0.6), 1.0, p.gpus))[:, np.newaxis])


def _throttle(p: Patient) -> None:
    hot = p.rng.random(p.gpus) < p.rng.uniform(0.1, 1.0)
    hot[int(p.rng.integers(p.gpus))] = True
    first = int(p.rng.uniform(0, 0.6) * p.shape.steps)
    p.throttled[hot, first:] = 1.0
    if not hot.all():  # activity is counted in cycles, which become fewer: it is seen on those that wait
        _wait(p, np.where(np.arange(p.shape.steps) >= first, p.rng.uniform(0.55, 0.85), 1.0), ~hot)


def _leave_unused(p: Patient) -> None:
    _stop(p, slice(None), slice(int(p.rng.integers(1, p.gpus)), None))


def _forget(p: Patient) -> None:
    p.purpose = "notebook"
    _stop(p, slice(p.count(p.rng.uniform(10, p.shape.minutes - 80)), None))


def _keep(p: Patient) -> None:
    tail = p.rng.uniform(35, max(40.0, min(600.0, 0.6 * p.shape.minutes)))
    _stop(p, slice(p.shape.steps - p.count(tail), None))


def _crash(p: Patient) -> None:
    edges = np.linspace(0, p.shape.steps, int(p.rng.integers(4, 9)) + 1).astype(int)
    p.attempts = [(int(a), int(b) - p.count(2), "failed") for a, b in pairwise(edges)]
    _leave_gaps(p)


def _run_out(p: Patient) -> None:
    cut = int(p.rng.uniform(0.25, 0.8) * p.shape.steps)
    ending = str(p.rng.choice(["failed", "out_of_memory"]))
    p.attempts = [(0, cut, ending), (cut + p.count(2), p.shape.steps, "completed")]
    p.out_of_memory = [cut - 1]
    p.traits["memory"] = 0.98
    _leave_gaps(p)


def _leave_gaps(p: Patient) -> None:
    for _, after, _ in p.attempts[:-1]:
        _stop(p, slice(after, after + p.count(2)))


def _save(p: Patient) -> None:
    minutes = p.rng.uniform(2, 8)
    pause, every = p.count(minutes), p.count(minutes / p.rng.uniform(0.08, 0.25))
    step = np.arange(p.shape.steps)
    stops = (step > every / 2) & (step % every < pause)
    p.compute[:, stops] = p.comm[:, stops] = p.wait[:, stops] = 0.0
    p.writes = np.where(stops, p.rng.uniform(1e9, 4e9), p.writes)
    if p.rng.random() < 0.3:
        p.sections = [(int(s), int(s) + 1, "checkpoint") for s in step[stops]]


def _set_up(p: Patient) -> None:
    _stop(p, slice(0, p.count(p.rng.uniform(14, min(120.0, 0.5 * p.shape.minutes)))))


def _pad(p: Patient) -> None:
    p.padding = p.rng.uniform(0.22, 0.65)


def _idle_along(p: Patient) -> None:
    p.compute *= p.rng.uniform(0.1, 0.35)
    p.traits.update(sm=p.rng.uniform(0.2, 0.5), occupancy=p.rng.uniform(0.05, 0.2), memory=p.rng.uniform(0.03, 0.2))


def _spin(p: Patient) -> None:
    p.compute *= p.rng.uniform(0.0, 0.06)
    p.spin = p.rng.uniform(0.94, 1.0)
    p.traits.update(tensor=0.01)


def _await_requests(p: Patient) -> None:
    """A daily wave of requests, none at its lowest; replicas stand for its peak."""
    p.purpose = "serving"
    days = np.arange(p.shape.steps) * p.shape.step_s / S_PER_DAY
    wave = 0.5 + 0.5 * np.sin(2 * np.pi * (days + p.rng.random()))
    p.compute *= np.where(wave < p.rng.uniform(0.05, 0.35), 0.0, wave) * p.rng.uniform(0.3, 0.9)


CAUSES: Final[Mapping[str, Callable[[Patient], None]]] = {
    "over_allocation": _leave_unused, "idle_notebook": _forget, "not_released": _keep, "set_up": _set_up,
    "crash_loop": _crash, "out_of_memory": _run_out, "checkpoint_stalls": _save, "input_pipeline": _starve,
    "host_copies": _copy, "small_batch": _shrink, "memory_full": _fill_memory, "no_mixed_precision": _use_fp32,
    "communication": _communicate, "launch_bound": _launch, "hbm_bound": _stream, "straggler": _lag,
    "imbalance": _unbalance, "throttling": _throttle, "padding": _pad, "wrong_gpu": _idle_along,
    "busy_without_work": _spin, "few_requests": _await_requests,
}  # fmt: skip
"""What changes a healthy job, by the cause that a diagnosis should find."""
