"""Copies between host and GPU: PCIe carries much while the GPUs have gaps."""

from typing import Final

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, claim_steps, share


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """PCIe is busy and the SMs are not, nor is a kernel resident: what kernels send over PCIe is communication."""
    sm, pcie = facts.level("sm_activity"), facts.level("pcie_saturation")
    bad = (sm < limits["sm"]) & (pcie >= limits["pcie"]) & ~(facts.level("engine_activity") >= limits["engine"])
    seconds = claim_steps(facts, bad)
    if seconds is None:
        return None
    return Claim(
        seconds,
        0.3,
        0.85,
        (
            f"PCIe carries {share(facts.mean('pcie_saturation', bad))} of its peak, SM active"
            f" {share(facts.mean('sm_activity', bad))}",
        ),
        ("copies that overlap with computing cost nothing: a trace shows the exposed ones",),
        ("a trace with copies (`loadfactor diagnose TRACE`)",),
    )


HOST_COPIES: Final = DiagnosisRule(
    "host_copies", "host–GPU copies", "I/O", ("sm_activity", "pcie_saturation"), find,
    "pin_memory=True and .to(device, non_blocking=True); one large copy instead of many; no"
    " .cpu()/.item() in the loop; less offloading.",
    {
        "sm": Limit(0.72, "share", "SM activity under which GPUs wait", 0.01, 1),
        "pcie": Limit(0.25, "share", "PCIe traffic of its peak in the busier direction", 0.01, 1),
        "engine": Limit(0.8, "share", "time with kernels resident from which on they send it", 0.01, 1),
    },
    "economics §5: gaps with PCIe bursts",
)  # fmt: skip
