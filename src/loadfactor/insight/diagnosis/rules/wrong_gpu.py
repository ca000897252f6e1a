"""The wrong GPU: a job that needs little of any of it."""

from typing import Final

import numpy as np

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, share


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """Little of the SMs, the memory and the links, all the time, with kernels now and then."""
    held = facts.held
    sm, memory, engine, pcie = (
        float(np.nanmean(facts.by_gpu(name, held)))
        for name in ("sm_activity", "mem_utilization", "engine_activity", "pcie_saturation")
    )
    cpu, io = (facts.mean(f"node {name}", held) for name in ("cpu_busy_share", "io_wait_share"))
    is_small = limits["least"] < sm < limits["sm"] and memory < limits["memory"] and engine < limits["engine"]
    if not is_small or pcie > limits["pcie"] or cpu >= limits["cpu"] or io >= limits["io_wait"]:
        return None
    return Claim(
        facts.idle_s + facts.underused_s, 0.2, 0.76,
        (f"over its life SM active {share(sm)}, memory in use {share(memory)}, engine active {share(engine)}",),
        ("small for a while, as while a data set is tried out",),
        ("samples/s on a slice or a smaller GPU",),
    )  # fmt: skip


WRONG_GPU: Final = DiagnosisRule(
    "wrong_gpu", "wrong GPU", "user error",
    ("sm_activity", "engine_activity", "mem_utilization", "pcie_saturation", "node cpu_busy_share", "node io_wait_share"), find,
    "A MIG slice (1g or 2g), a smaller GPU (L4, T4), several such jobs on one GPU by MPS, or no GPU at all.",
    {
        "sm": Limit(0.2, "share", "SM activity at most", 0.01, 1),
        "memory": Limit(0.25, "share", "memory in use at most", 0.01, 1),
        "engine": Limit(0.45, "share", "time with the engine active at most", 0.01, 1),
        "least": Limit(0.01, "share", "SM activity under which nothing is done at all", 0, 1),
        "pcie": Limit(0.3, "share", "PCIe traffic over which copies are the cause", 0.01, 1),
        "cpu": Limit(0.8, "share", "processors busy over which data loading is the cause", 0.01, 1),
        "io_wait": Limit(0.1, "share", "time waiting for disks over which data loading is the cause", 0.01, 1),
    },
    "economics §5: SM < 0.2 and memory < 25 % over life",
)  # fmt: skip
