"""Constants that the planner's equations were fitted to, one data file a topic, each value with what it was fitted on."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from loadfactor.catalog.facts import read_toml


@dataclass(frozen=True)
class TrainingConstants:
    """The constants of training.toml by name; meaning, unit and what each was fitted on are written there."""

    matmul_share: float
    matmul_share_hopper: float
    matmul_share_blackwell: float
    matmul_share_systolic: float
    usual_kernel_share: float
    narrow_share: float
    row_scaling_share: float
    grouped_share: float
    matmul_half_per_ridge: float
    memory_share: float
    flash_share: float
    flash_backward_share: float
    flash2_share: float
    flash2_backward_share: float
    flash2_ported_share: float
    flash3_share: float
    flash3_backward_share: float
    flash_systolic_share: float
    attention_half_seq: float
    launch_s: float
    scale_up_share: float
    scale_out_share: float
    scale_up_latency_s: float
    scale_out_latency_s: float
    shard_adapters: float
    tensor_overlap_share: float
    data_overlap_share: float
    step_overhead_s: float
    straggler_share: float
    overlap_slowdown_share: float
    prefetch_miss_share: float


@cache
def read_training_constants() -> TrainingConstants:
    """The constants of the training equations as the data file gives them."""
    return TrainingConstants(**{name: float(entry["value"]) for name, entry in read_constants("training.toml").items()})


def read_constants(name: str) -> Mapping[str, Mapping[str, Any]]:
    """Every entry of one data file of this package: value, meaning, what it was fitted on."""
    return read_toml(__name__, name)
