"""The kinds of work of the simulated fleet, as one table.

The levels are chosen to look like published fleets (large training near 80 % SM active, small-batch jobs near 30 %, notebooks
that mostly hold memory); they are this simulation's assumptions and claim nothing about any real team.
"""

from dataclasses import dataclass
from typing import Final, Literal

from loadfactor.base.units import S_PER_HOUR

Shape = Literal["steady", "sawtooth", "notebook", "serving"]
SHAPES: Final[tuple[Shape, ...]] = ("steady", "sawtooth", "notebook", "serving")


@dataclass(frozen=True)
class Workload:
    """One kind of work. Shares are of one; `mfu_share` is what its tokens need of the accelerator's peak while it computes."""

    name: str
    purpose: str
    shape: Shape
    gpus: tuple[int, ...]  # how many it asks for, equally likely
    hours: float  # median length, before the scenario scales all batch work to the load it wants
    hours_sigma: float  # of the logarithm
    sm_share: float
    noise_share: float
    engine_gap_share: float  # how much of the time without SM activity the engine is active all the same
    tensor_ratio: float  # of SM active
    dram_ratio: float
    mem_share: float
    startup_s: int  # image pull and loading, before the first kernel
    checkpoint_s: int  # 0: keeps nothing
    crash_share: float  # dies of its own fault
    tail_share: float  # sits idle after its work is done
    main_pool_share: float  # odds of asking for the larger pool
    params: float = 0  # of the network, 0 where FLOPs are not known
    mfu_share: float = 0
    tokens_per_step: int = 0
    samples_per_gpu_s: float = 0
    samples_per_step: int = 0
    samples_per_epoch: int = 0


WORKLOADS: Final = (
    Workload(
        "pretrain",
        "training",
        "steady",
        (16, 32, 64),
        hours=14,
        hours_sigma=0.7,
        sm_share=0.84,
        noise_share=0.02,
        engine_gap_share=0.8,
        tensor_ratio=0.62,
        dram_ratio=0.55,
        mem_share=0.91,
        startup_s=420,
        checkpoint_s=S_PER_HOUR,
        crash_share=0.12,
        tail_share=0.1,
        main_pool_share=1.0,
        params=7.2e9,
        mfu_share=0.40,
        tokens_per_step=2**21,
    ),
    Workload(
        "finetune",
        "training",
        "steady",
        (4, 8, 8, 16),
        hours=5,
        hours_sigma=0.8,
        sm_share=0.71,
        noise_share=0.035,
        engine_gap_share=0.75,
        tensor_ratio=0.52,
        dram_ratio=0.6,
        mem_share=0.84,
        startup_s=240,
        checkpoint_s=S_PER_HOUR // 2,
        crash_share=0.1,
        tail_share=0.2,
        main_pool_share=0.75,
        params=8.0e9,
        mfu_share=0.31,
        tokens_per_step=2**19,
    ),
    Workload(
        "small-batch",
        "training",
        "steady",
        (1, 2, 4, 8),
        hours=6,
        hours_sigma=0.9,
        sm_share=0.30,
        noise_share=0.03,
        engine_gap_share=0.6,
        tensor_ratio=0.3,
        dram_ratio=0.5,
        mem_share=0.33,
        startup_s=120,
        checkpoint_s=S_PER_HOUR // 2,
        crash_share=0.08,
        tail_share=0.2,
        main_pool_share=0.3,
        params=1.3e9,
        mfu_share=0.11,
        tokens_per_step=2**15,
    ),
    Workload(
        "vision-starved",
        "training",
        "sawtooth",
        (1, 4, 8),
        hours=7,
        hours_sigma=0.7,
        sm_share=0.78,
        noise_share=0.04,
        engine_gap_share=0.3,
        tensor_ratio=0.35,
        dram_ratio=0.6,
        mem_share=0.55,
        startup_s=180,
        checkpoint_s=S_PER_HOUR,
        crash_share=0.06,
        tail_share=0.15,
        main_pool_share=0.35,
        samples_per_gpu_s=410,
        samples_per_step=2048,
        samples_per_epoch=1_281_167,
    ),
    Workload(
        "sweep",
        "training",
        "steady",
        (1, 1, 1, 2),
        hours=1.6,
        hours_sigma=1.0,
        sm_share=0.52,
        noise_share=0.06,
        engine_gap_share=0.6,
        tensor_ratio=0.4,
        dram_ratio=0.45,
        mem_share=0.4,
        startup_s=90,
        checkpoint_s=0,
        crash_share=0.15,
        tail_share=0.1,
        main_pool_share=0.4,
        samples_per_gpu_s=900,
        samples_per_step=512,
        samples_per_epoch=50_000,
    ),
    Workload(
        "batch-inference",
        "batch-inference",
        "steady",
        (1, 2, 4),
        hours=3,
        hours_sigma=0.8,
        sm_share=0.63,
        noise_share=0.05,
        engine_gap_share=0.85,
        tensor_ratio=0.3,
        dram_ratio=1.15,
        mem_share=0.88,
        startup_s=180,
        checkpoint_s=S_PER_HOUR // 4,
        crash_share=0.04,
        tail_share=0.1,
        main_pool_share=0.5,
    ),
    Workload(
        "notebook",
        "notebook",
        "notebook",
        (1,),
        hours=7,
        hours_sigma=0.5,
        sm_share=0.42,
        noise_share=0.08,
        engine_gap_share=0.5,
        tensor_ratio=0.25,
        dram_ratio=0.5,
        mem_share=0.27,
        startup_s=60,
        checkpoint_s=0,
        crash_share=0,
        tail_share=0,
        main_pool_share=0.05,
    ),
    Workload(
        "serving",
        "serving",
        "serving",
        (1, 2, 8),
        hours=0,  # as long as the simulation
        hours_sigma=0,
        sm_share=0.58,
        noise_share=0.03,
        engine_gap_share=0.7,
        tensor_ratio=0.22,
        dram_ratio=1.25,
        mem_share=0.92,
        startup_s=300,
        checkpoint_s=0,
        crash_share=0,
        tail_share=0,
        main_pool_share=0,
    ),
)


def find_workload(name: str) -> int:
    """The place of a workload in WORKLOADS; KeyError when there is none of that name."""
    for i, w in enumerate(WORKLOADS):
        if w.name == name:
            return i
    raise KeyError(name)
