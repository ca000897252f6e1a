"""A clinic: jobs on nodes of their own, each healthy but for known causes of lost GPU time, as rows of the tables.

What a GPU measures follows from what its minutes are spent on (computing, exposed communication, exposed copies, gaps) and from
how its kernels run, which are drawn for each job; a cause changes these, not single signals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from loadfactor.catalog.accelerators import accelerator
from loadfactor.units import MS_PER_HOUR

Array = npt.NDArray[np.float64]
START_MS: Final = 1_790_000_000_000 // MS_PER_HOUR * MS_PER_HOUR
MINUTES: Final = 240
BOARD: Final = "h100-sxm"


@dataclass
class Patient:
    """A job for four hours on a node of its own; arrays are GPUs × minutes, shares of a minute or of a peak."""

    name: str
    rng: np.random.Generator
    gpus: int
    compute: Array
    comm: Array
    copy: Array
    traits: dict[str, float]
    slow: Array
    cpu: Array
    io_wait: Array
    writes: Array
    net: Array
    throttled: Array
    causes: tuple[str, ...] = ()
    purpose: str = "training"
    attempts: list[tuple[int, int, str]] = field(default_factory=lambda: [(0, MINUTES, "completed")])
    sections: list[tuple[int, int, str]] = field(default_factory=list)
    out_of_memory: list[int] = field(default_factory=list)
    padding: float | None = None
    spin: float = 0.0

    def noise(self, level: float, spread: float = 0.04) -> Array:
        """Around a level, a value a minute, correlated in time."""
        steps = self.rng.normal(0, spread, MINUTES + 8)
        smooth = np.convolve(steps, np.ones(5) / 5, "same")[:MINUTES] * 2
        return np.clip(level * (1 + smooth), 0, 1)


def make_patient(name: str, seed: int, causes: Sequence[str]) -> Patient:
    """A job with these causes, healthy without any; the same seed makes the same one."""
    rng = np.random.default_rng((seed, 17))
    gpus = (
        int(rng.choice([4, 8]))
        if {"communication", "straggler", "imbalance", "over_allocation"} & set(causes)
        else int(rng.choice([1, 2, 4, 8]))
    )
    shape = (gpus, MINUTES)
    zero = np.zeros(shape)
    traits = {
        "sm": rng.uniform(0.84, 0.97), "tensor": rng.uniform(0.38, 0.62), "dram": rng.uniform(0.25, 0.45),
        "fp32": rng.uniform(0.03, 0.12), "occupancy": rng.uniform(0.3, 0.55), "memory": rng.uniform(0.55, 0.93),
        "nvlink": rng.uniform(0.03, 0.12), "pcie": rng.uniform(0.01, 0.1),
    }  # fmt: skip
    patient = Patient(
        name, rng, gpus, zero + rng.uniform(0.87, 0.96), zero + (rng.uniform(0.0, 0.05) if gpus > 1 else 0.0), zero + 0.01,
        traits, zero + 1.0, np.full(MINUTES, rng.uniform(0.15, 0.5)), np.full(MINUTES, rng.uniform(0.0, 0.03)),
        np.full(MINUTES, rng.uniform(2e7, 2e8)), np.full(MINUTES, rng.uniform(1e7, 3e8)), zero.copy(), tuple(causes),
    )  # fmt: skip
    for cause in causes:
        CAUSES[cause](patient)
    return patient


def _lose(p: Patient, least: float = 0.4, most: float = 0.75) -> Array:
    """Take a part of each minute from computing; how much."""
    lost: Array = p.compute * p.noise(p.rng.uniform(least, most))
    p.compute = p.compute - lost
    return lost


def _starve(p: Patient) -> None:
    _lose(p)
    if p.rng.random() < 0.6:
        p.cpu = p.noise(p.rng.uniform(0.92, 0.99), 0.01)
    else:
        p.io_wait = p.noise(p.rng.uniform(0.15, 0.45))


def _copy(p: Patient) -> None:
    p.copy = p.copy + _lose(p, 0.45, 0.75)


def _shrink(p: Patient) -> None:
    p.traits.update(sm=p.rng.uniform(0.15, 0.42), occupancy=p.rng.uniform(0.05, 0.18), memory=p.rng.uniform(0.12, 0.42))


def _fill_memory(p: Patient) -> None:
    p.traits.update(sm=p.rng.uniform(0.15, 0.42), occupancy=p.rng.uniform(0.05, 0.18), memory=p.rng.uniform(0.9, 0.98))


def _use_fp32(p: Patient) -> None:
    p.traits.update(tensor=p.rng.uniform(0.0, 0.006), fp32=p.rng.uniform(0.35, 0.7))


def _communicate(p: Patient) -> None:
    p.comm = p.comm + _lose(p, 0.5, 0.8)
    p.traits["nvlink_comm"] = p.rng.uniform(0.55, 0.9)


def _launch(p: Patient) -> None:
    _lose(p, 0.35, 0.7)


def _stream(p: Patient) -> None:
    p.traits.update(dram=p.rng.uniform(0.75, 0.92), tensor=p.rng.uniform(0.01, 0.12))


def _lag(p: Patient) -> None:
    slow = int(p.rng.integers(p.gpus))
    others = np.arange(p.gpus) != slow
    p.compute[others] *= p.rng.uniform(0.4, 0.75)  # done early, they poll for the slow one


def _unbalance(p: Patient) -> None:
    p.compute *= np.linspace(p.rng.uniform(0.3, 0.5), 1.0, p.gpus)[:, np.newaxis]


def _throttle(p: Patient) -> None:
    hot = p.rng.permutation(p.gpus)[: int(p.rng.integers(1, p.gpus + 1))]
    first = int(p.rng.integers(0, 90))
    p.throttled[hot, first:] = 1.0
    p.slow[hot, first:] = p.rng.uniform(0.6, 0.8)


def _leave_unused(p: Patient) -> None:
    used = int(p.rng.integers(1, p.gpus))
    for part in (p.compute, p.comm, p.copy):
        part[used:] = 0.0


def _forget(p: Patient) -> None:
    p.purpose = "notebook"
    first = int(p.rng.integers(10, 100))
    for part in (p.compute, p.comm, p.copy):
        part[:, first:] = 0.0


def _keep(p: Patient) -> None:
    first = MINUTES - int(p.rng.integers(40, 150))
    for part in (p.compute, p.comm, p.copy):
        part[:, first:] = 0.0


def _crash(p: Patient) -> None:
    count = int(p.rng.integers(4, 7))
    edges = np.linspace(0, MINUTES, count + 1).astype(int)
    p.attempts = [(int(a), int(b) - 2, "failed") for a, b in pairwise(edges)]
    _leave_gaps(p)


def _run_out(p: Patient) -> None:
    cut = int(p.rng.integers(80, 180))
    p.attempts = [(0, cut, str(p.rng.choice(["failed", "out_of_memory"]))), (cut + 2, MINUTES, "completed")]
    p.out_of_memory = [cut - 1]
    p.traits["memory"] = 0.98
    _leave_gaps(p)


def _leave_gaps(p: Patient) -> None:
    for _, after, _ in p.attempts[:-1]:
        p.compute[:, after : after + 2] = 0.0


def _save(p: Patient) -> None:
    every, pause = int(p.rng.integers(18, 32)), int(p.rng.integers(3, 7))
    minute = np.arange(MINUTES)
    stops = (minute > 4) & (minute % every < pause)
    p.compute[:, stops] = p.comm[:, stops] = 0.0
    p.writes = np.where(stops, p.rng.uniform(1e9, 4e9), p.writes)
    if p.rng.random() < 0.3:
        p.sections = [(int(m), int(m) + 1, "checkpoint") for m in minute[stops]]


def _set_up(p: Patient) -> None:
    first = int(p.rng.integers(14, 60))
    for part in (p.compute, p.comm, p.copy):
        part[:, :first] = 0.0


def _pad(p: Patient) -> None:
    p.padding = p.rng.uniform(0.25, 0.6)


def _idle_along(p: Patient) -> None:
    p.compute *= p.rng.uniform(0.12, 0.3)
    p.traits.update(sm=p.rng.uniform(0.2, 0.5), occupancy=p.rng.uniform(0.05, 0.2), memory=p.rng.uniform(0.03, 0.18))


def _spin(p: Patient) -> None:
    p.compute *= p.rng.uniform(0.0, 0.05)
    p.spin = p.rng.uniform(0.95, 1.0)
    p.traits.update(tensor=0.01)


CAUSES: Final[Mapping[str, Callable[[Patient], None]]] = {
    "over_allocation": _leave_unused, "idle_notebook": _forget, "not_released": _keep, "set_up": _set_up,
    "crash_loop": _crash, "out_of_memory": _run_out, "checkpoint_stalls": _save, "input_pipeline": _starve,
    "host_copies": _copy, "small_batch": _shrink, "memory_full": _fill_memory, "no_mixed_precision": _use_fp32,
    "communication": _communicate, "launch_bound": _launch, "hbm_bound": _stream, "straggler": _lag,
    "imbalance": _unbalance, "throttling": _throttle, "padding": _pad, "wrong_gpu": _idle_along,
    "busy_without_work": _spin,
}  # fmt: skip
"""What changes a healthy job, by the cause that a diagnosis should find."""


def measure(p: Patient) -> Mapping[str, Array]:
    """The columns of its samples."""
    t, rng = p.traits, p.rng
    compute, comm, copy = np.clip(p.compute, 0, 1), np.clip(p.comm, 0, 1), np.clip(p.copy, 0, 1)
    is_on = compute + comm + copy > 0.02
    engine = np.where(is_on, np.clip(compute + comm, 0, 1), 0.0)
    engine = np.maximum(engine, p.spin)

    def vary(values: Array) -> Array:
        return np.clip(values * rng.normal(1, 0.04, values.shape), 0, 1)

    sm = vary(compute * t["sm"] * p.slow + comm * 0.12 + p.spin * 0.05)
    tensor = vary(compute * t["sm"] * t["tensor"] * p.slow)
    dram = vary(compute * t["dram"] + comm * 0.1 + p.spin * 0.01)
    board = accelerator(BOARD)
    pcie = vary(np.where(is_on, t["pcie"], 0.0) + copy * 0.92)
    nvlink = vary((compute * t["nvlink"] + comm * t.get("nvlink_comm", 0.4)) * (p.gpus > 1))
    power = 0.13 + 0.1 * engine + 0.4 * sm + 0.15 * dram + 0.35 * tensor
    total = np.full(sm.shape, float(board.memory_bytes))
    return {
        "busy_share": np.round(np.clip(np.minimum(1.25 * engine + 0.3 * copy, 1.0), 0, 1), 2),
        "engine_active_share": vary(engine), "sm_active_share": sm, "tensor_active_share": tensor,
        "dram_active_share": dram, "fp32_active_share": vary(compute * t["fp32"]),
        "sm_occupancy_share": vary(compute * t["occupancy"] + comm * 0.08),
        "mem_used_bytes": np.clip(t["memory"], 0, 0.99) * total * np.where(is_on.any(1, keepdims=True), 1.0, 0.006),
        "mem_total_bytes": total, "power_w": board.value("tdp_w") * vary(np.minimum(power, 1.0)),
        "pcie_rx_bytes_per_s": pcie * board.value("pcie_bytes_per_s"),
        "pcie_tx_bytes_per_s": 0.1 * pcie * board.value("pcie_bytes_per_s"),
        "nvlink_bytes_per_s": nvlink * (board.nvlink_bytes_per_s or 0.0), "throttle_mask": p.throttled * 0x40,
    }  # fmt: skip
