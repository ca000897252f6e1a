"""Bound by the host: kernels are short, and the GPU waits for launches or synchronizations."""

from typing import Final

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.gpus_compared import differ
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, claim_steps, share


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """Gaps between kernels, although neither processors, disks nor PCIe are full and kernels fill the GPU."""
    if facts.is_serving:  # between requests there are gaps, too
        return None
    sm, engine = facts.level("sm_activity"), facts.level("engine_activity")
    cpu, io = facts.level("node cpu_busy_share"), facts.level("node io_wait_share")
    bad = (engine >= limits["least"]) & (engine <= limits["engine"]) & (sm >= limits["fill"] * engine)
    bad &= (cpu < limits["cpu"]) & ~(io >= 0.1) & (facts.level("pcie_saturation") < limits["pcie"])
    seconds = None if differ(facts) else claim_steps(facts, bad)
    if seconds is None:
        return None
    return Claim(
        seconds,
        0.4,
        0.75,
        (
            f"the engine is active {share(facts.mean('engine_activity', bad))} of the time and full while it is (SM active"
            f" {share(facts.mean('sm_activity', bad))}); processors busy {share(facts.mean('node cpu_busy_share', bad))}, PCIe"
            f" {share(facts.mean('pcie_saturation', bad))}",
        ),
        ("data from far away without a busy disk looks like this: a trace tells them apart",),
        ("a trace with launches (`loadfactor diagnose TRACE`)",),
    )


LAUNCH_BOUND: Final = DiagnosisRule(
    "launch_bound", "launches and host code", "precision and kernels",
    ("sm_activity", "engine_activity", "pcie_saturation", "node cpu_busy_share", "node io_wait_share"), find,
    "torch.compile(mode='reduce-overhead') or CUDA graphs; fuse the optimizer (fused=True); no .item(),"
    " print or cudaStreamSynchronize in the loop.",
    {
        "least": Limit(0.1, "share", "time with the engine active at least", 0, 1),
        "engine": Limit(0.75, "share", "time with the engine active at most", 0.01, 1),
        "fill": Limit(0.6, "share", "SM activity of engine activity: kernels fill the GPU", 0.01, 1),
        "cpu": Limit(0.8, "share", "processors busy under which data loading is not the cause", 0.01, 1),
        "pcie": Limit(0.25, "share", "PCIe traffic under which copies are not the cause", 0.01, 1),
    },
    "economics §5: engine 0.3–0.9, one core full, kernels < 20 µs",
)  # fmt: skip
