"""Ways to spoil the data of a scene: samples that are missing, that come late, and signals that nobody measures."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from loadfactor.simulator.faults.measure import PROFILED
from loadfactor.simulator.faults.scene import Expectation, Flags, Scene

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
