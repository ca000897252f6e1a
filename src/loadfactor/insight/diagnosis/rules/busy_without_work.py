"""High utilization that is not work: kernels are resident, and nothing is computed or moved."""

from typing import Final

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, claim_steps, share


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """GPU_UTIL is high; SMs, tensor cores, memory and links are not."""
    sm, resident = facts.level("sm_activity"), facts.level("gpu_util")
    bad = (resident >= limits["gpu_util"]) & (sm < limits["sm"]) & (facts.level("tensor_activity") < limits["tensor"])
    bad &= (facts.level("power_of_limit") < limits["power"]) & ~(facts.level("nvlink_saturation") > 0.2)
    bad &= ~(facts.level("dram_activity") > limits["dram"])
    seconds = claim_steps(facts, bad)
    if seconds is None:
        return None
    return Claim(
        seconds,
        0.5,
        0.85,
        (
            f"GPU_UTIL {share(facts.mean('gpu_util', bad))}, SM active {share(facts.mean('sm_activity', bad))}, tensor cores"
            f" {share(facts.mean('tensor_activity', bad))}, {share(facts.mean('power_of_limit', bad))} of the board's power",
        ),
        ("a collective that waits for a rank elsewhere looks like this on every other rank",),
        ("a trace: which kernel is resident",),
    )


BUSY_WITHOUT_WORK: Final = DiagnosisRule(
    "busy_without_work", "busy without work", "user error",
    ("gpu_util", "sm_activity", "tensor_activity", "power_of_limit", "dram_activity"), find,
    "Look at what is resident (`py-spy dump`, a trace): a kernel that polls, a hung collective (set NCCL"
    " timeouts), a burn-in or keep-alive script.",
    {
        "gpu_util": Limit(0.9, "share", "GPU_UTIL at least", 0.1, 1),
        "sm": Limit(0.3, "share", "SM activity under this", 0.01, 1),
        "tensor": Limit(0.02, "share", "tensor activity under this", 0, 1),
        "power": Limit(0.45, "share", "power of the board's limit under this", 0.05, 1),
        "dram": Limit(0.15, "share", "DRAM activity at most", 0, 1),
    },
    "economics §4: GPU_UTIL is 100 % on a nearly empty chip",
)  # fmt: skip
