"""No mixed precision: the SMs work hard and tensor cores do not."""

from typing import Final

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, claim_steps, share


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """SMs are full, tensor pipes empty, FP32 pipes busy."""
    sm, tensor = facts.level("sm_activity"), facts.level("tensor_activity")
    bad = (sm >= limits["sm"]) & (tensor < limits["tensor"]) & (facts.level("fp32_activity") > limits["fp32"])
    seconds = claim_steps(facts, bad, facts.active_s * (1 - 1 / limits["speed_up"]))
    if seconds is None:
        return None
    return Claim(
        seconds,
        0.5,
        0.9,
        (
            f"SM active {share(facts.mean('sm_activity', bad))}, tensor cores {share(facts.mean('tensor_activity', bad))},"
            f" FP32 pipes {share(facts.mean('fp32_activity', bad))}",
        ),
        ("work that is no matrix product (physics, graphs, preprocessing) has no use for tensor cores",),
        ("kernels by name in a trace",),
    )


NO_MIXED_PRECISION: Final = DiagnosisRule(
    "no_mixed_precision", "no mixed precision", "precision and kernels",
    ("sm_activity", "tensor_activity", "fp32_activity"), find,
    "torch.autocast('cuda', dtype=torch.bfloat16); at least torch.set_float32_matmul_precision('high')"
    " (TF32); pad shapes to multiples of 8 (64 best).",
    {
        "sm": Limit(0.5, "share", "SM activity at least", 0.01, 1),
        "tensor": Limit(0.02, "share", "tensor activity under which there is none", 0, 1),
        "fp32": Limit(0.2, "share", "FP32 activity over this", 0.01, 1),
        "speed_up": Limit(3.0, "times", "how much faster at most, half of what is saved at least", 1, 10),
    },
    "economics §5: SM ≥ 0.6, tensor < 0.02, FP32 > 0.2; speed-up 1.5–3",
)  # fmt: skip
