"""Over-allocation: GPUs are held and never used."""

from typing import Final

import numpy as np

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """Some GPUs are idle in all of their time while others of the job work, or all are."""
    observed = facts.held_s - facts.unobserved_s
    is_unused = (facts.active_s.sum(1) < limits["used"] * observed.sum(1)) & (observed.sum(1) > limits["least_s"])
    if not is_unused.any():
        return None
    if is_unused.all() and (
        facts.is_interactive or any(a.end_state in ("failed", "out_of_memory") for a in facts.attempts)
    ):
        return None
    names = ", ".join(np.array(facts.devices)[is_unused][:4])
    return Claim(
        np.where(is_unused[:, np.newaxis], facts.idle_s, 0.0),
        1.0,
        0.95,
        (f"{int(is_unused.sum())} of {len(facts.devices)} GPUs did nothing in all of their time: {names}",),
        ("GPUs kept for a later phase; jobs that have only begun",),
        ("the processes on each GPU (`nvidia-smi pmon`), and the world size in the log of the job",),
    )


OVER_ALLOCATION: Final = DiagnosisRule(
    "over_allocation", "GPUs never used", "user error", (), find,
    "Ask for as many GPUs as the program uses: --nproc_per_node, CUDA_VISIBLE_DEVICES, device_map; or start a process on each.",
    {
        "used": Limit(0.01, "share", "activity under which a GPU is not used", 0, 1),
        "least_s": Limit(1800, "s", "least time that it is held", 0),
    },
    "economics §5: a GPU under 1 % all run while another works",
)  # fmt: skip
