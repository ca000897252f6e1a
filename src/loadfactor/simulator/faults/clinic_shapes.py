"""Shapes of the jobs of a clinic: which GPUs they hold, on how many nodes, for how long, and how often these are sampled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from loadfactor.base.units import MIN_PER_HOUR, MS_PER_HOUR, MS_PER_S, S_PER_HOUR, S_PER_MIN

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
        """How many samples each of its GPUs has."""
        return self.minutes * S_PER_MIN // self.step_s

    @property
    def nodes(self) -> int:
        """How many nodes it is on."""
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
