"""The causes of lost GPU time that a diagnosis knows, in the order in which they are judged."""

from typing import Final

from loadfactor.insight.diagnosis.rules.holding import (
    CRASH_LOOP,
    FEW_REQUESTS,
    IDLE_NOTEBOOK,
    NOT_RELEASED,
    OUT_OF_MEMORY,
    OVER_ALLOCATION,
    SET_UP,
)
from loadfactor.insight.diagnosis.rules.kernels import (
    BUSY_WITHOUT_WORK,
    HBM_BOUND,
    MEMORY_FULL,
    NO_MIXED_PRECISION,
    PADDING,
    SMALL_BATCH,
    THROTTLING,
    WRONG_GPU,
)
from loadfactor.insight.diagnosis.rules.rollouts import ROLLOUTS
from loadfactor.insight.diagnosis.rules.waiting import (
    CHECKPOINT_STALLS,
    COMMUNICATION,
    HOST_COPIES,
    IMBALANCE,
    INPUT_PIPELINE,
    LAUNCH_BOUND,
    STRAGGLER,
)

DIAGNOSES: Final = (
    OVER_ALLOCATION,
    IDLE_NOTEBOOK,
    NOT_RELEASED,
    FEW_REQUESTS,
    SET_UP,
    CRASH_LOOP,
    OUT_OF_MEMORY,
    CHECKPOINT_STALLS,
    ROLLOUTS,
    INPUT_PIPELINE,
    HOST_COPIES,
    SMALL_BATCH,
    MEMORY_FULL,
    NO_MIXED_PRECISION,
    COMMUNICATION,
    LAUNCH_BOUND,
    HBM_BOUND,
    STRAGGLER,
    IMBALANCE,
    THROTTLING,
    PADDING,
    WRONG_GPU,
    BUSY_WITHOUT_WORK,
)
