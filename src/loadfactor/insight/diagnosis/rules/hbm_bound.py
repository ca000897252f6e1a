"""Bound by the bandwidth of memory: it moves data nearly as fast as it can."""

from typing import Final

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, claim_steps, share


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """Memory is near its practical peak and tensor cores wait."""
    bad = (facts.level("dram_activity") >= limits["dram"]) & (facts.level("tensor_activity") < limits["tensor"])
    seconds = claim_steps(facts, bad, facts.active_s * (1 - 1 / limits["speed_up"]))
    if seconds is None:
        return None
    return Claim(
        seconds,
        0.1,
        0.85,
        (
            f"DRAM active {share(facts.mean('dram_activity', bad))} (0.8 is the practical peak), tensor cores"
            f" {share(facts.mean('tensor_activity', bad))}",
        ),
        ("decoding tokens and embeddings are bound by memory however they are written: then the GPU is well used",),
        ("the roofline of the top kernels in a trace",),
    )


HBM_BOUND: Final = DiagnosisRule(
    "hbm_bound", "memory bandwidth", "precision and kernels", ("dram_activity", "tensor_activity"), find,
    "Larger batches; fused kernels (torch.compile, FlashAttention); quantized weights; or a cheaper GPU"
    " with the same bandwidth.",
    {
        "dram": Limit(0.6, "share", "DRAM activity at least", 0.01, 1),
        "tensor": Limit(0.2, "share", "tensor activity under which computing is not the limit", 0, 1),
        "speed_up": Limit(2.0, "times", "how much faster at most", 1, 10),
    },
    "economics §5: DRAM ≥ 0.6, tensor < 0.2",
)  # fmt: skip
