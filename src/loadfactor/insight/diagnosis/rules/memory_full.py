"""Bound by the capacity of memory: the batch is small because no larger one fits."""

from typing import Final

import numpy as np

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.gpus_compared import differ
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, claim_steps, share


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """Kernels that do not fill the GPU, and memory is full."""
    if facts.is_serving:  # engines take all memory for the caches of requests
        return None
    sm, engine = facts.level("sm_activity"), facts.level("engine_activity")
    memory, occupancy = facts.level("mem_utilization"), facts.level("sm_occupancy")
    bad = (sm <= limits["sm"]) & (engine >= limits["engine"]) & (memory > limits["memory"])
    computing = np.fmax(facts.level("tensor_activity"), facts.level("fp32_activity"))
    bad &= computing >= limits["computing"] * sm
    bad &= ~(occupancy > limits["occupancy"]) & ~(facts.level("pcie_saturation") > 0.3)
    seconds = None if differ(facts) else claim_steps(facts, bad)
    if seconds is None:
        return None
    return Claim(
        seconds,
        0.3,
        0.7,
        (
            f"kernels run {share(facts.mean('engine_activity', bad))} of the time on few multiprocessors: SM active"
            f" {share(facts.mean('sm_activity', bad))}, occupancy {share(facts.mean('sm_occupancy', bad))}",
            f"memory in use {share(facts.mean('mem_utilization', bad))}",
        ),
        ("frameworks that take all memory at start (JAX) look like this: look at peak memory allocated",),
        ("samples/s at two batch sizes: utilization is not throughput",),
    )


MEMORY_FULL: Final = DiagnosisRule(
    "memory_full", "memory full, batch small", "model and batch",
    ("sm_activity", "engine_activity", "tensor_activity", "sm_occupancy", "mem_utilization"), find,
    "Activation checkpointing, ZeRO/FSDP sharding, optimizer in 8 bit, BF16; or GPUs with more memory.",
    {
        "sm": Limit(0.5, "share", "SM activity at most", 0.01, 1),
        "engine": Limit(0.7, "share", "time with the engine active at least", 0.01, 1),
        "memory": Limit(0.8, "share", "memory in use over this", 0.01, 1),
        "computing": Limit(0.15, "share", "activity of tensor cores or FP32 pipes, of SM activity: less is no computing", 0, 1),
        "occupancy": Limit(0.25, "share", "occupancy at most", 0.01, 1),
    },
    "ICSE'24: utilization ≤ 50 % and peak memory > 80 %",
)  # fmt: skip
