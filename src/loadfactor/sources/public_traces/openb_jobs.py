"""Decoder of Alibaba's openb pods (cluster-trace-gpu-v2023) as jobs to plan for: shares of a GPU in thousandths."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import Limits
from loadfactor.base.units import MILLIGPUS_PER_GPU, S_PER_DAY
from loadfactor.sources.demand import GPUS, TIME_S, JobTrace, read_numbers

SPARSE_SHARE = 0.005  # a beginning with fewer of the pods than this, over more of the time than LONG_SHARE, is left out
LONG_SHARE = 0.25


def matches(header: Sequence[str]) -> bool:
    """True for the pod list's header."""
    return {"num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time"} <= set(header)


def decode(frame: pd.DataFrame, name: str) -> JobTrace:
    """GPU pods that were scheduled and ended, from the day the trace is dense.

    The pod list begins with months that hold a handful of pods; a demand over them would be near zero, so they are left out, and
    the note says how many and how long.
    """
    read_numbers(frame, "num_gpu", name, GPUS)
    read_numbers(frame, "gpu_milli", name, Limits(at_least=0, at_most=MILLIGPUS_PER_GPU))
    read_numbers(frame, "creation_time", name, TIME_S)
    for column in ("deletion_time", "scheduled_time"):
        read_numbers(frame, column, name, TIME_S, may_be_empty=True)
    pods = frame[frame["num_gpu"] > 0]
    never = pods["scheduled_time"].isna()
    ended = pods[~never & (pods["deletion_time"] > pods["scheduled_time"])].sort_values("creation_time", kind="stable")
    if ended.empty:
        raise SourceError(f"{name}: no GPU pod was scheduled and ended")
    created = ended["creation_time"].to_numpy(dtype=np.float64)
    dense_from = created[int(len(created) * SPARSE_SHARE)]
    head = created < dense_from
    notes = [f"{int(never.sum())} pods never scheduled"]
    if head.any() and dense_from - created[0] > LONG_SHARE * (created[-1] - created[0]):
        notes.append(f"{int(head.sum())} pods of the sparse first {dense_from / S_PER_DAY:.0f} days")
        ended = ended[~head]
        created = created[~head]
    scheduled = ended["scheduled_time"].to_numpy(dtype=np.float64)
    whole = ended["num_gpu"].to_numpy(dtype=np.float64)
    share = ended["gpu_milli"].to_numpy(dtype=np.float64) / MILLIGPUS_PER_GPU
    return JobTrace(
        name,
        submit_s=created,
        gpus=np.where(whole == 1, share, whole),
        duration_s=ended["deletion_time"].to_numpy(dtype=np.float64) - scheduled,
        published_wait_s=scheduled - created,
        left_out=tuple(notes),
    )
