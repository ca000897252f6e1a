"""Scenarios of jobs on nodes of their own, each healthy but for known causes of lost GPU time.

What a GPU measures follows from what its steps are spent on (computing, exposed communication, waits in collectives, exposed
copies, gaps) and from how its kernels run, which are drawn for each job; a cause changes these, not single signals.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from loadfactor.base.units import MIN_PER_HOUR, MS_PER_HOUR, MS_PER_S, S_PER_DAY, S_PER_HOUR, S_PER_MIN
from loadfactor.catalog.accelerators import accelerator
from loadfactor.simulator.table_rows import TableBatch
from loadfactor.tables.schema import IDLE_BELOW, table

START_MS: Final = 1_790_000_000_000 // MS_PER_HOUR * MS_PER_HOUR
BOARDS: Final[Mapping[str, float]] = {"h100-sxm": 0.35, "a100-sxm": 0.3, "l4": 0.15, "mi300x": 0.2}
"""How often each is drawn."""
GPUS: Final[Mapping[int, float]] = {1: 0.2, 2: 0.15, 4: 0.2, 8: 0.2, 16: 0.1, 32: 0.1, 64: 0.05}
SHORTEST_MIN, LONGEST_MIN = 40, 72 * MIN_PER_HOUR
STEPS_S: Final = (10, 15, 30, 60)
MOST_SAMPLES: Final = 60_000
"""Of one job: a longer one is sampled less often, then it is shorter."""
TAKES_SEVERAL: Final = frozenset({"communication", "straggler", "imbalance", "over_allocation"})
"""Causes that only jobs of four GPUs and more can have."""
LEAST_MIN: Final[Mapping[str, int]] = {
    "idle_notebook": 150, "not_released": 100, "checkpoint_stalls": 240, "crash_loop": 120, "out_of_memory": 90,
    "set_up": 90, "throttling": 60, "few_requests": 24 * MIN_PER_HOUR,
}  # fmt: skip
"""How long a job lasts at least of which a cause can be seen."""
CRASHES_WITHIN_MIN: Final = 20 * MIN_PER_HOUR
Array = npt.NDArray[np.float64]
PROFILED: Final = frozenset({
    "engine_active_share", "sm_active_share", "tensor_active_share", "dram_active_share", "fp32_active_share",
    "sm_occupancy_share", "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "nvlink_bytes_per_s", "throttle_mask",
})  # fmt: skip
"""Columns that no exporter has of AMD's boards: their gfx_activity is busy time, like GPU_UTIL."""
PRICE: Final = 2.5
PADDED_TOKENS: Final = 4e8
Row = dict[str, Any]


@dataclass(frozen=True)
class JobShape:
    """A job's GPUs, `gpus_of_node` of them to a node at most, how long it holds them, and the step of its samples."""

    board: str
    gpus: int
    minutes: int
    step_s: int
    gpus_of_node: int = 8
    start_ms: int = START_MS

    @property
    def steps(self) -> int:
        return self.minutes * S_PER_MIN // self.step_s

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpus_of_node)

    @property
    def has_nvlink(self) -> bool:
        """Whether its GPUs reach each other without PCIe, and somebody measures it."""
        return self.board in ("h100-sxm", "a100-sxm")

    @property
    def has_profiling(self) -> bool:
        """Whether its exporter reads profiling counters: those of AMD's boards report busy time, memory and power alone."""
        return self.board != "mi300x"


def draw_shape(rng: np.random.Generator, causes: Sequence[str]) -> JobShape:
    """A shape in which these causes can be: any board, 1 to 64 GPUs, 40 minutes to 3 days, samples every 10 to 60 seconds."""
    boards = [board for board in BOARDS if not (board == "l4" and "wrong_gpu" in causes)]
    board = str(rng.choice(boards, p=_normalize([BOARDS[b] for b in boards])))
    counts = [n for n in GPUS if (n >= 4 or not TAKES_SEVERAL & set(causes)) and (n <= 16 or board != "l4")]
    gpus = int(rng.choice(counts, p=_normalize([GPUS[n] for n in counts])))
    least = max((SHORTEST_MIN, *(LEAST_MIN.get(cause, 0) for cause in causes)))
    most = CRASHES_WITHIN_MIN if "crash_loop" in causes else LONGEST_MIN
    minutes = int(np.exp(rng.uniform(np.log(least), np.log(most))))
    step_s = int(rng.choice(STEPS_S))
    start_ms = START_MS + int(rng.integers(0, S_PER_HOUR)) * MS_PER_S
    shape = JobShape(board, gpus, minutes, step_s, 4 if board == "l4" else 8, start_ms)
    for coarser in STEPS_S:
        if shape.gpus * shape.steps > MOST_SAMPLES and coarser > shape.step_s:
            shape = replace(shape, step_s=coarser)
    return replace(shape, minutes=max(least, min(minutes, MOST_SAMPLES * shape.step_s // S_PER_MIN // gpus)))


def _normalize(weights: Sequence[float]) -> list[float]:
    return [weight / sum(weights) for weight in weights]


@dataclass
class JobScenario:
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
        return self.shape.gpus

    def count(self, minutes: float) -> int:
        return max(1, round(minutes * S_PER_MIN / self.shape.step_s))

    def noise(self, level: float, spread: float = 0.04) -> Array:
        steps = self.rng.normal(0, spread, self.shape.steps + 8)
        smooth = np.convolve(steps, np.ones(5) / 5, "same")[: self.shape.steps] * 2
        return np.clip(level * (1 + smooth), 0, 1)


def make_scenario(name: str, seed: int, causes: Sequence[str], shape: JobShape | None = None) -> JobScenario:
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
    scenario = JobScenario(
        name=name, rng=rng, shape=shape, compute=zero + rng.uniform(0.85, 0.97),
        comm=zero + (0.0 if alone else rng.uniform(0.0, 0.06)), copy=zero + rng.uniform(0.0, 0.02), traits=traits, wait=zero.copy(),
        cpu=each * rng.uniform(0.08, 0.6), io_wait=each * rng.uniform(0.0, 0.05), writes=each * rng.uniform(2e7, 3e8),
        net=each * (rng.uniform(1e9, 2e10) if nodes > 1 else rng.uniform(1e7, 3e8)), throttled=zero.copy(), causes=tuple(causes),
        attempts=[(0, shape.steps, "completed")],
    )  # fmt: skip
    scenario.compute[:, : scenario.count(scenario.rng.uniform(1, 5))] = 0.0
    every, length = scenario.count(scenario.rng.uniform(60, 300)), scenario.count(scenario.rng.uniform(1, 4))
    at = np.arange(scenario.shape.steps)
    scenario.compute *= np.where((at > every / 2) & (at % every < length), 0.5, 1.0)
    for cause in causes:
        CAUSES[cause](scenario)
    return scenario


def _lose(p: JobScenario, least: float = 0.3, most: float = 0.8) -> Array:
    lost: Array = p.compute * p.noise(p.rng.uniform(least, most))
    p.compute = p.compute - lost
    return lost


def _stop(p: JobScenario, steps: slice, gpus: slice = slice(None)) -> None:
    for part in (p.compute, p.comm, p.copy, p.wait):
        part[gpus, steps] = 0.0


def _starve(p: JobScenario) -> None:
    _lose(p)
    if p.rng.random() < 0.6:
        p.cpu = p.noise(p.rng.uniform(0.9, 0.99), 0.01)
    else:
        p.io_wait = p.noise(p.rng.uniform(0.15, 0.45))


def _copy(p: JobScenario) -> None:
    p.copy = p.copy + _lose(p, 0.4, 0.8)


def _shrink(p: JobScenario) -> None:
    p.traits.update(sm=p.rng.uniform(0.12, 0.45), occupancy=p.rng.uniform(0.05, 0.2), memory=p.rng.uniform(0.08, 0.45))


def _fill_memory(p: JobScenario) -> None:
    p.traits.update(sm=p.rng.uniform(0.12, 0.45), occupancy=p.rng.uniform(0.05, 0.2), memory=p.rng.uniform(0.87, 0.99))


def _use_fp32(p: JobScenario) -> None:
    p.traits.update(tensor=p.rng.uniform(0.0, 0.008), fp32=p.rng.uniform(0.3, 0.75))


def _communicate(p: JobScenario) -> None:
    lost = _lose(p, 0.35, 0.8)
    p.comm = p.comm + lost
    p.traits["nvlink_comm"] = p.rng.uniform(0.4, 0.9) / (2 if p.shape.nodes > 1 else 1)
    if p.shape.nodes > 1 and p.rng.random() < 0.7:  # adapters of the network are counted on most nodes, not on all
        p.net = p.net + lost.mean(0) * p.rng.uniform(1e11, 3e11)


def _launch(p: JobScenario) -> None:
    _lose(p, 0.25, 0.75)


def _stream(p: JobScenario) -> None:
    p.traits.update(dram=p.rng.uniform(0.78, 0.95), tensor=p.rng.uniform(0.01, 0.15))


def _wait(p: JobScenario, kept: Array | float, gpus: npt.NDArray[np.bool_] | slice = slice(None)) -> None:
    before = p.compute[gpus]
    p.compute[gpus] = before * kept
    p.wait[gpus] += before - p.compute[gpus]


def _lag(p: JobScenario) -> None:
    _wait(p, p.rng.uniform(0.4, 0.82), np.arange(p.gpus) != int(p.rng.integers(p.gpus)))


def _unbalance(p: JobScenario) -> None:
    _wait(p, p.rng.permutation(np.linspace(p.rng.uniform(0.3, 0.6), 1.0, p.gpus))[:, np.newaxis])


def _throttle(p: JobScenario) -> None:
    hot = p.rng.random(p.gpus) < p.rng.uniform(0.1, 1.0)
    hot[int(p.rng.integers(p.gpus))] = True
    first = int(p.rng.uniform(0, 0.6) * p.shape.steps)
    p.throttled[hot, first:] = 1.0
    if not hot.all():  # activity is counted in cycles, which become fewer: it is seen on those that wait
        _wait(p, np.where(np.arange(p.shape.steps) >= first, p.rng.uniform(0.55, 0.85), 1.0), ~hot)


def _leave_unused(p: JobScenario) -> None:
    _stop(p, slice(None), slice(int(p.rng.integers(1, p.gpus)), None))


def _forget(p: JobScenario) -> None:
    p.purpose = "notebook"
    _stop(p, slice(p.count(p.rng.uniform(10, p.shape.minutes - 80)), None))


def _keep(p: JobScenario) -> None:
    tail = p.rng.uniform(35, max(40.0, min(600.0, 0.6 * p.shape.minutes)))
    _stop(p, slice(p.shape.steps - p.count(tail), None))


def _crash(p: JobScenario) -> None:
    edges = np.linspace(0, p.shape.steps, int(p.rng.integers(4, 9)) + 1).astype(int)
    p.attempts = [(int(a), int(b) - p.count(2), "failed") for a, b in pairwise(edges)]
    _leave_gaps(p)


def _run_out(p: JobScenario) -> None:
    cut = int(p.rng.uniform(0.25, 0.8) * p.shape.steps)
    ending = str(p.rng.choice(["failed", "out_of_memory"]))
    p.attempts = [(0, cut, ending), (cut + p.count(2), p.shape.steps, "completed")]
    p.out_of_memory = [cut - 1]
    p.traits["memory"] = 0.98
    _leave_gaps(p)


def _leave_gaps(p: JobScenario) -> None:
    for _, after, _ in p.attempts[:-1]:
        _stop(p, slice(after, after + p.count(2)))


def _save(p: JobScenario) -> None:
    minutes = p.rng.uniform(2, 8)
    pause, every = p.count(minutes), p.count(minutes / p.rng.uniform(0.08, 0.25))
    step = np.arange(p.shape.steps)
    stops = (step > every / 2) & (step % every < pause)
    p.compute[:, stops] = p.comm[:, stops] = p.wait[:, stops] = 0.0
    p.writes = np.where(stops, p.rng.uniform(1e9, 4e9), p.writes)
    if p.rng.random() < 0.3:
        p.sections = [(int(s), int(s) + 1, "checkpoint") for s in step[stops]]


def _set_up(p: JobScenario) -> None:
    _stop(p, slice(0, p.count(p.rng.uniform(14, min(120.0, 0.5 * p.shape.minutes)))))


def _pad(p: JobScenario) -> None:
    p.padding = p.rng.uniform(0.22, 0.65)


def _idle_along(p: JobScenario) -> None:
    p.compute *= p.rng.uniform(0.1, 0.35)
    p.traits.update(sm=p.rng.uniform(0.2, 0.5), occupancy=p.rng.uniform(0.05, 0.2), memory=p.rng.uniform(0.03, 0.2))


def _spin(p: JobScenario) -> None:
    p.compute *= p.rng.uniform(0.0, 0.06)
    p.spin = p.rng.uniform(0.94, 1.0)
    p.traits.update(tensor=0.01)


def _await_requests(p: JobScenario) -> None:
    p.purpose = "serving"
    days = np.arange(p.shape.steps) * p.shape.step_s / S_PER_DAY
    wave = 0.5 + 0.5 * np.sin(2 * np.pi * (days + p.rng.random()))
    p.compute *= np.where(wave < p.rng.uniform(0.05, 0.35), 0.0, wave) * p.rng.uniform(0.3, 0.9)


CAUSES: Final[Mapping[str, Callable[[JobScenario], None]]] = {
    "over_allocation": _leave_unused, "idle_notebook": _forget, "not_released": _keep, "set_up": _set_up,
    "crash_loop": _crash, "out_of_memory": _run_out, "checkpoint_stalls": _save, "input_pipeline": _starve,
    "host_copies": _copy, "small_batch": _shrink, "memory_full": _fill_memory, "no_mixed_precision": _use_fp32,
    "communication": _communicate, "launch_bound": _launch, "hbm_bound": _stream, "straggler": _lag,
    "imbalance": _unbalance, "throttling": _throttle, "padding": _pad, "wrong_gpu": _idle_along,
    "busy_without_work": _spin, "few_requests": _await_requests,
}  # fmt: skip
"""What changes a healthy job, by the cause that a diagnosis should find."""


def measure(p: JobScenario) -> Mapping[str, Array]:
    t, rng, shape = p.traits, p.rng, p.shape
    compute, comm, copy = np.clip(p.compute, 0, 1), np.clip(p.comm, 0, 1), np.clip(p.copy, 0, 1)
    waits = comm + np.clip(p.wait, 0, 1)
    is_on = compute + waits + copy > IDLE_BELOW / 2
    engine = np.maximum(np.where(is_on, np.clip(compute + waits, 0, 1), 0.0), p.spin)

    def vary(values: Array) -> Array:
        return np.clip(values * rng.normal(1, 0.04, values.shape), 0, 1)

    sm = vary(compute * t["sm"] + waits * 0.12 + p.spin * 0.05)
    tensor = vary(compute * t["sm"] * t["tensor"])
    dram = vary(compute * t["dram"] + comm * 0.1 + p.spin * 0.01)
    # what crosses nodes, and all between boards without NVLink, goes through PCIe
    between = comm * t["over_pcie"] if shape.gpus > 1 and (shape.nodes > 1 or not shape.has_nvlink) else 0.0 * comm
    pcie = vary(np.where(is_on, t["pcie"], 0.0) + copy * 0.92 + between)
    nvlink = vary((compute * t["nvlink"] + comm * t.get("nvlink_comm", 0.4)) * (shape.gpus > 1))
    cool = np.where(p.throttled > 0, 0.75, 1.0)
    power = 0.13 + 0.1 * engine + t["power"] * cool * (0.4 * sm + 0.15 * dram + 0.35 * tensor)
    board = accelerator(shape.board)
    total = np.full(sm.shape, float(board.memory_bytes))
    columns = {
        "busy_share": np.round(np.clip(np.minimum(1.25 * engine + 0.3 * copy, 1.0), 0, 1), 2),
        "engine_active_share": vary(engine), "sm_active_share": sm, "tensor_active_share": tensor,
        "dram_active_share": dram, "fp32_active_share": vary(compute * t["fp32"]),
        "sm_occupancy_share": vary(compute * t["occupancy"] + waits * 0.08),
        "mem_used_bytes": np.clip(t["memory"], 0, 0.99) * total * np.where(is_on.any(1, keepdims=True), 1.0, 0.006),
        "mem_total_bytes": total, "power_w": board.value("tdp_w") * vary(np.minimum(power, 1.0)),
        "pcie_rx_bytes_per_s": pcie * board.value("pcie_bytes_per_s"),
        "pcie_tx_bytes_per_s": 0.1 * pcie * board.value("pcie_bytes_per_s"),
        "throttle_mask": p.throttled * 0x40,
    }  # fmt: skip
    if shape.has_nvlink:
        columns["nvlink_bytes_per_s"] = nvlink * (board.nvlink_bytes_per_s or 0.0)
    return {name: values for name, values in columns.items() if shape.has_profiling or name not in PROFILED}


def make_rows(
    scenarios: Sequence[JobScenario], signals: frozenset[str] | None = None, with_nodes: bool = True
) -> Iterator[TableBatch]:
    """All rows of some jobs. `signals`: the columns that samples have; without nodes nobody measures these, or asks jobs."""
    told = {"basis": "contracted", "price_per_gpu_hour": PRICE, "currency": "USD", "source": "simulated"}
    yield _as_batch("prices", [{"accelerator": board, **told} for board in BOARDS])
    small: dict[str, list[Row]] = {
        "devices": [], "allocations": [], "device_events": [], "job_sections": [], "progress": [],
    }  # fmt: skip
    for p in scenarios:
        _list_holdings(p, small)
        if with_nodes:
            _list_told(p, small)
    for name, rows in small.items():
        if rows:
            yield _as_batch(name, rows)
    for p in scenarios:
        if with_nodes:
            yield from (_sample_node(p, node) for node in range(p.shape.nodes))
        yield _sample(p, signals)


def _list_holdings(p: JobScenario, small: dict[str, list[Row]]) -> None:
    devices = _name_devices(p)
    for number, device in enumerate(devices):
        small["devices"].append({
            "device_id": device, "node": _name_node(p, number // p.shape.gpus_of_node), "accelerator": p.shape.board,
            "pool": p.shape.board, "from_utc": p.shape.start_ms, "to_utc": _at(p, p.shape.steps),
        })  # fmt: skip
        small["allocations"] += [
            {
                "job_id": p.name, "attempt": attempt, "device_id": device, "user": f"user-{p.name}", "team": "scenarios",
                "purpose": p.purpose, "from_utc": _at(p, first), "to_utc": _at(p, after), "end_state": state,
            }
            for attempt, (first, after, state) in enumerate(p.attempts)
        ]  # fmt: skip
    small["device_events"] += [
        {"device_id": devices[0], "at_utc": _at(p, step), "kind": "out_of_memory", "detail": "CUDA out of memory"}
        for step in p.out_of_memory
    ]


def _list_told(p: JobScenario, small: dict[str, list[Row]]) -> None:
    small["job_sections"] += [
        {"job_id": p.name, "from_utc": _at(p, first), "to_utc": _at(p, after), "kind": kind}
        for first, after, kind in p.sections
    ]
    if p.padding is not None:
        span = {"job_id": p.name, "from_utc": p.shape.start_ms, "to_utc": _at(p, p.shape.steps)}
        small["progress"] += [
            {**span, "unit": "padded_token", "amount": PADDED_TOKENS},
            {**span, "unit": "train_token", "amount": PADDED_TOKENS * (1 - p.padding)},
        ]


def _sample(p: JobScenario, signals: frozenset[str] | None) -> TableBatch:
    columns = {k: v for k, v in measure(p).items() if signals is None or k in signals}
    instants = np.array([_at(p, step) for step in range(p.shape.steps + 1)])
    made = pa.table(
        {
            "device_id": np.repeat(_name_devices(p), p.shape.steps),
            "from_utc": np.tile(instants[:-1], p.gpus),
            "to_utc": np.tile(instants[1:], p.gpus),
            **{name: values.reshape(-1) for name, values in columns.items()},
            "source": pa.array(["dcgm" if p.shape.has_profiling else "amd"] * (p.gpus * p.shape.steps)),
        }
    )
    schema = table("samples").schema
    return TableBatch("samples", made.cast(pa.schema([schema.field(name) for name in made.column_names])))


def _sample_node(p: JobScenario, node: int) -> TableBatch:
    steps = p.shape.steps
    instants = np.array([_at(p, step) for step in range(steps + 1)])
    made = pa.table(
        {
            "node": pa.array([_name_node(p, node)] * steps),
            "from_utc": instants[:-1],
            "to_utc": instants[1:],
            "source": pa.array(["node"] * steps),
            "cpu_busy_share": p.cpu,
            "io_wait_share": p.io_wait,
            "disk_write_bytes_per_s": p.writes,
            "net_tx_bytes_per_s": p.net,
        }
    )
    schema = table("node_samples").schema
    return TableBatch("node_samples", made.cast(pa.schema([schema.field(name) for name in made.column_names])))


def _name_devices(p: JobScenario) -> list[str]:
    return [f"{p.name}/gpu{n}" for n in range(p.gpus)]


def _name_node(p: JobScenario, node: int) -> str:
    return f"node-{p.name}-{node}"


def _at(p: JobScenario, step: int) -> int:
    return p.shape.start_ms + step * p.shape.step_s * MS_PER_S


def _as_batch(name: str, rows: list[Row]) -> TableBatch:
    return TableBatch(name, pa.Table.from_pylist(rows, schema=table(name).schema))
