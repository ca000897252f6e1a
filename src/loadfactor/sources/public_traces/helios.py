"""Decoder of Helios' `cluster_sequence_vc`: the state of a virtual cluster minute by minute (SenseTime, 2020)."""

from collections.abc import Sequence

import pandas as pd

from loadfactor.base.units import S_PER_MIN
from loadfactor.sources.demand import GPUS, JOBS, Floats, StateTrace, read_numbers

NODE_GPUS = 8


def matches(header: Sequence[str]) -> bool:
    """True for the per-minute state of a virtual cluster."""
    return {"total_gpu_num", "running_gpu_num", "pending_gpu_num", "pending_gpu_num_noless_8"} <= set(header)


def decode(frame: pd.DataFrame, name: str) -> StateTrace:
    """The counts; `noless_8` is large, `less_8` small."""

    def column(key: str) -> Floats:
        return read_numbers(frame, key, name, JOBS if "job" in key else GPUS)

    return StateTrace(
        name,
        float(S_PER_MIN),
        NODE_GPUS,
        total_gpus=column("total_gpu_num"),
        running_large_gpus=column("running_gpu_num_noless_8"),
        running_small_gpus=column("running_gpu_num_less_8"),
        running_small_jobs=column("running_job_num_less_8"),
        pending_large_gpus=column("pending_gpu_num_noless_8"),
        pending_large_jobs=column("pending_job_num_noless_8"),
        pending_small_gpus=column("pending_gpu_num_less_8"),
        pending_small_jobs=column("pending_job_num_less_8"),
    )
