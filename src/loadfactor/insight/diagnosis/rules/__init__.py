"""The causes of lost GPU time that a diagnosis knows, one file each."""

from typing import Final

from loadfactor.insight.diagnosis.rules.busy_without_work import BUSY_WITHOUT_WORK
from loadfactor.insight.diagnosis.rules.checkpoint_stalls import CHECKPOINT_STALLS
from loadfactor.insight.diagnosis.rules.communication import COMMUNICATION
from loadfactor.insight.diagnosis.rules.crash_loop import CRASH_LOOP
from loadfactor.insight.diagnosis.rules.few_requests import FEW_REQUESTS
from loadfactor.insight.diagnosis.rules.hbm_bound import HBM_BOUND
from loadfactor.insight.diagnosis.rules.host_copies import HOST_COPIES
from loadfactor.insight.diagnosis.rules.idle_notebook import IDLE_NOTEBOOK
from loadfactor.insight.diagnosis.rules.imbalance import IMBALANCE
from loadfactor.insight.diagnosis.rules.input_pipeline import INPUT_PIPELINE
from loadfactor.insight.diagnosis.rules.launch_bound import LAUNCH_BOUND
from loadfactor.insight.diagnosis.rules.memory_full import MEMORY_FULL
from loadfactor.insight.diagnosis.rules.no_mixed_precision import NO_MIXED_PRECISION
from loadfactor.insight.diagnosis.rules.not_released import NOT_RELEASED
from loadfactor.insight.diagnosis.rules.out_of_memory import OUT_OF_MEMORY
from loadfactor.insight.diagnosis.rules.over_allocation import OVER_ALLOCATION
from loadfactor.insight.diagnosis.rules.padding import PADDING
from loadfactor.insight.diagnosis.rules.set_up import SET_UP
from loadfactor.insight.diagnosis.rules.small_batch import SMALL_BATCH
from loadfactor.insight.diagnosis.rules.straggler import STRAGGLER
from loadfactor.insight.diagnosis.rules.throttling import THROTTLING
from loadfactor.insight.diagnosis.rules.wrong_gpu import WRONG_GPU

DIAGNOSES: Final = (
    OVER_ALLOCATION,
    IDLE_NOTEBOOK,
    NOT_RELEASED,
    FEW_REQUESTS,
    SET_UP,
    CRASH_LOOP,
    OUT_OF_MEMORY,
    CHECKPOINT_STALLS,
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
