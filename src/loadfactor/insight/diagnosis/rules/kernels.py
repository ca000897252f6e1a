"""Causes in kernels and in the GPU itself: it is resident and computes too little, or is the wrong one for its work."""

from dataclasses import replace
from typing import Final

import numpy as np

from loadfactor.insight.alerts.rule import Limit
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob, Flags
from loadfactor.insight.diagnosis.rule import Claim, DiagnosisRule, Limits, claim_steps, share
from loadfactor.insight.diagnosis.rules.waiting import differ

MOST_NAMED: Final = 4


def _find_unfilled(facts: DiagnosedJob, limits: Limits, memory: Flags) -> Claim | None:
    """Kernels that do not fill the GPU in steps with such a memory in use."""
    sm, engine = facts.level("sm_activity"), facts.level("engine_activity")
    computing = np.fmax(facts.level("tensor_activity"), facts.level("fp32_activity"))
    bad = (sm <= limits["sm"]) & (engine >= limits["engine"]) & memory & (computing >= limits["computing"] * sm)
    bad &= ~(facts.level("sm_occupancy") > limits["occupancy"]) & ~(facts.level("pcie_saturation") > limits["pcie"])
    if differ(facts):
        return None
    return claim_steps(
        facts,
        bad,
        f"kernels run {share(facts.mean('engine_activity', bad))} of the time on few multiprocessors: SM active"
        f" {share(facts.mean('sm_activity', bad))}, occupancy {share(facts.mean('sm_occupancy', bad))}",
        f"memory in use {share(facts.mean('mem_utilization', bad))}",
    )


def find_small_batch(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """Kernels that do not fill the GPU, beside free memory."""
    claim = _find_unfilled(facts, limits, facts.level("mem_utilization") <= limits["memory"])
    if claim is None or not facts.is_serving:
        return claim
    return replace(claim, confidence=0.6, against=("when serving: too few requests look alike",))


def find_memory_full(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """Kernels that do not fill the GPU, and memory is full."""
    if facts.is_serving:  # engines take all memory for the caches of requests
        return None
    return _find_unfilled(facts, limits, facts.level("mem_utilization") > limits["memory"])


def find_no_mixed_precision(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """SMs are full, tensor pipes empty, FP32 pipes busy."""
    sm, tensor = facts.level("sm_activity"), facts.level("tensor_activity")
    bad = (sm >= limits["sm"]) & (tensor < limits["tensor"]) & (facts.level("fp32_activity") > limits["fp32"])
    return claim_steps(
        facts,
        bad,
        f"SM active {share(facts.mean('sm_activity', bad))}, tensor cores {share(facts.mean('tensor_activity', bad))},"
        f" FP32 pipes {share(facts.mean('fp32_activity', bad))}",
        of=facts.active_s * (1 - 1 / limits["speed_up"]),
    )


def find_hbm_bound(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """Memory is near its practical peak and tensor cores wait."""
    bad = (facts.level("dram_activity") >= limits["dram"]) & (facts.level("tensor_activity") < limits["tensor"])
    return claim_steps(
        facts,
        bad,
        f"DRAM active {share(facts.mean('dram_activity', bad))} (0.8 is the practical peak), tensor cores"
        f" {share(facts.mean('tensor_activity', bad))}",
        of=facts.active_s * (1 - 1 / limits["speed_up"]),
    )


def find_throttling(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """A clock event reason slows GPUs down for a part of the time, and not only the limit of their power: every H100 that
    computes in 16 bits works at it (docs/hardware.md).
    """
    if facts.slowed_by == {"sw_power_cap"}:
        return None
    throttled = facts.signals["throttled_share"]
    is_slow = facts.works & (throttled > limits["slow"])
    working = facts.works.sum(1)
    of_gpu = np.divide(is_slow.sum(1), working, out=np.zeros(len(working)), where=working > 0)
    hot = of_gpu >= limits["share"]
    if not hot.any():
        return None
    observed = facts.held_s - facts.unobserved_s
    is_slow &= hot[:, np.newaxis]
    # in a job that waits for its slowest GPU, all GPUs lose what one loses
    steps = is_slow.any(0) if len(facts.devices) > 1 else is_slow[0]
    seconds = limits["lost"] * observed * (facts.works & steps)
    return Claim(
        seconds,
        (
            f"{int(hot.sum())} of {len(facts.devices)} GPUs are throttled {share(float(of_gpu[hot].mean()))} of their working time:"
            f" {', '.join(np.array(facts.devices)[hot][:MOST_NAMED])}",
        ),
    )


def find_padding(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """The job reports padded tokens."""
    if facts.padding is None or facts.padding < limits["share"]:
        return None
    return Claim(
        facts.padding * facts.active_s, (f"{share(facts.padding)} of the tokens that were computed are padding",)
    )


def find_wrong_gpu(facts: DiagnosedJob, limits: Limits) -> Claim | None:
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
        facts.idle_s + facts.underused_s,
        (f"over its life SM active {share(sm)}, memory in use {share(memory)}, engine active {share(engine)}",),
    )


def find_busy_without_work(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """GPU_UTIL is high; SMs, tensor cores, memory and links are not."""
    sm, resident = facts.level("sm_activity"), facts.level("gpu_util")
    bad = (resident >= limits["gpu_util"]) & (sm < limits["sm"]) & (facts.level("tensor_activity") < limits["tensor"])
    bad &= (facts.level("power_of_limit") < limits["power"]) & ~(facts.level("nvlink_saturation") > limits["nvlink"])
    bad &= ~(facts.level("dram_activity") > limits["dram"])
    return claim_steps(
        facts,
        bad,
        f"GPU_UTIL {share(facts.mean('gpu_util', bad))}, SM active {share(facts.mean('sm_activity', bad))}, tensor cores"
        f" {share(facts.mean('tensor_activity', bad))}, {share(facts.mean('power_of_limit', bad))} of the board's power",
    )


_UNFILLED_NEEDS: Final = ("sm_activity", "engine_activity", "tensor_activity", "sm_occupancy", "mem_utilization")
_UNFILLED: Final = {
    "sm": Limit(0.5, "share", "SM activity at most", 0.01, 1),
    "engine": Limit(0.7, "share", "time with the engine active at least", 0.01, 1),
    "computing": Limit(
        0.15, "share", "activity of tensor cores or FP32 pipes, of SM activity: less is no computing", 0, 1
    ),
    "occupancy": Limit(0.25, "share", "occupancy at most", 0.01, 1),
    "pcie": Limit(0.3, "share", "PCIe traffic over which copies are the cause", 0.01, 1),
}

SMALL_BATCH: Final = DiagnosisRule(
    "small_batch", "small batch", "model and batch", _UNFILLED_NEEDS, find_small_batch,
    low=0.3, confidence=0.85,
    against=("convergence may fix the batch",),
    measure_next=("samples/s at two batch sizes: utilization is not throughput",),
    action="Double the batch until memory is used 90 % or samples/s stops growing; scale the learning rate;"
    " pack several jobs on a GPU (MIG, MPS) otherwise.",
    limits={
        **_UNFILLED,
        "memory": Limit(0.5, "share", "memory in use at most", 0.01, 1),
    },
    source="ICSE'24: utilization ≤ 50 % and peak memory ≤ 50 %",
)  # fmt: skip

MEMORY_FULL: Final = DiagnosisRule(
    "memory_full", "memory full, batch small", "model and batch", _UNFILLED_NEEDS, find_memory_full,
    low=0.3, confidence=0.7,
    against=("frameworks that take all memory at start (JAX) look like this: look at peak memory allocated",),
    measure_next=("samples/s at two batch sizes: utilization is not throughput",),
    action="Activation checkpointing, ZeRO/FSDP sharding, optimizer in 8 bit, BF16; or GPUs with more memory.",
    limits={
        **_UNFILLED,
        "memory": Limit(0.8, "share", "memory in use over this", 0.01, 1),
    },
    source="ICSE'24: utilization ≤ 50 % and peak memory > 80 %",
)  # fmt: skip

NO_MIXED_PRECISION: Final = DiagnosisRule(
    "no_mixed_precision", "no mixed precision", "precision and kernels",
    ("sm_activity", "tensor_activity", "fp32_activity"), find_no_mixed_precision,
    low=0.5, confidence=0.9,
    against=("work that is no matrix product (physics, graphs, preprocessing) has no use for tensor cores",),
    measure_next=("kernels by name in a trace",),
    action="torch.autocast('cuda', dtype=torch.bfloat16); at least torch.set_float32_matmul_precision('high')"
    " (TF32); pad shapes to multiples of 8 (64 best).",
    limits={
        "sm": Limit(0.5, "share", "SM activity at least", 0.01, 1),
        "tensor": Limit(0.05, "share", "tensor activity under which there is none: attention in 32 bits has 0.03", 0, 1),
        "fp32": Limit(0.2, "share", "FP32 activity over this", 0.01, 1),
        "speed_up": Limit(3.0, "times", "how much faster at most, half of what is saved at least", 1, 10),
    },
    source="economics §5: SM ≥ 0.6, FP32 > 0.2, speed-up 1.5–3; docs/hardware.md: 0.97, 0.03 and 0.64 on an H100",
)  # fmt: skip

HBM_BOUND: Final = DiagnosisRule(
    "hbm_bound", "memory bandwidth", "precision and kernels", ("dram_activity", "tensor_activity"), find_hbm_bound,
    low=0.1, confidence=0.85,
    against=("decoding tokens and embeddings are bound by memory however they are written: then the GPU is well used",),
    measure_next=("the roofline of the top kernels in a trace",),
    action="Larger batches; fused kernels (torch.compile, FlashAttention); quantized weights; or a cheaper GPU"
    " with the same bandwidth.",
    limits={
        "dram": Limit(0.6, "share", "DRAM activity at least", 0.01, 1),
        "tensor": Limit(0.2, "share", "tensor activity under which computing is not the limit", 0, 1),
        "speed_up": Limit(2.0, "times", "how much faster at most", 1, 10),
    },
    source="economics §5: DRAM ≥ 0.6, tensor < 0.2",
)  # fmt: skip

THROTTLING: Final = DiagnosisRule(
    "throttling", "throttling", "hardware", ("throttled_share",), find_throttling,
    low=0.2, confidence=0.85,
    against=("a cap of power that somebody set is no fault: it saves energy",),
    measure_next=("SM clocks and temperatures of these GPUs beside their neighbours",),
    action="Clean filters and fans, move the job; `nvidia-smi -q -d PERFORMANCE` says which reason; raise the"
    " cap (`nvidia-smi -pl`) if it is set too low.",
    limits={
        "slow": Limit(0.5, "share", "of a step from which on a GPU counts as throttled in it", 0.01, 1),
        "share": Limit(0.1, "share", "throttled time of a GPU that works", 0.01, 1),
        "lost": Limit(0.3, "share", "work lost while throttled, at most", 0.01, 1),
    },
    source="economics §5: violation counters rising, clocks under 90 %",
)  # fmt: skip

PADDING: Final = DiagnosisRule(
    "padding", "padding", "model and batch", (), find_padding,
    low=0.5, confidence=0.95,
    against=("attention that skips padding does not compute it",),
    measure_next=("lengths of the samples as a histogram",),
    action="Group samples by length, pack several into one sequence (variable-length FlashAttention), pad to"
    " the batch's longest, not to the limit.",
    limits={"share": Limit(0.2, "share", "padded of all tokens", 0.01, 1)},
    source="economics §5: ≥ 20 % padded",
)  # fmt: skip

WRONG_GPU: Final = DiagnosisRule(
    "wrong_gpu", "wrong GPU", "user error",
    ("sm_activity", "engine_activity", "mem_utilization", "pcie_saturation", "node cpu_busy_share", "node io_wait_share"),
    find_wrong_gpu,
    low=0.2, confidence=0.76,
    against=("small for a while, as while a data set is tried out",),
    measure_next=("samples/s on a slice or a smaller GPU",),
    action="A MIG slice (1g or 2g), a smaller GPU (L4, T4), several such jobs on one GPU by MPS, or no GPU at all.",
    limits={
        "sm": Limit(0.2, "share", "SM activity at most", 0.01, 1),
        "memory": Limit(0.25, "share", "memory in use at most", 0.01, 1),
        "engine": Limit(0.45, "share", "time with the engine active at most", 0.01, 1),
        "least": Limit(0.01, "share", "SM activity under which nothing is done at all", 0, 1),
        "pcie": Limit(0.3, "share", "PCIe traffic over which copies are the cause", 0.01, 1),
        "cpu": Limit(0.8, "share", "processors busy over which data loading is the cause", 0.01, 1),
        "io_wait": Limit(0.1, "share", "time waiting for disks over which data loading is the cause", 0.01, 1),
    },
    source="economics §5: SM < 0.2 and memory < 25 % over life",
)  # fmt: skip

BUSY_WITHOUT_WORK: Final = DiagnosisRule(
    "busy_without_work", "busy without work", "user error",
    ("gpu_util", "sm_activity", "tensor_activity", "power_of_limit", "dram_activity"), find_busy_without_work,
    low=0.5, confidence=0.85,
    against=("a collective that waits for a rank elsewhere looks like this on every other rank",),
    measure_next=("a trace: which kernel is resident",),
    action="Look at what is resident (`py-spy dump`, a trace): a kernel that polls, a hung collective (set NCCL"
    " timeouts), a burn-in or keep-alive script.",
    limits={
        "gpu_util": Limit(0.9, "share", "GPU_UTIL at least", 0.1, 1),
        "sm": Limit(0.3, "share", "SM activity under this", 0.01, 1),
        "tensor": Limit(0.02, "share", "tensor activity under this", 0, 1),
        "power": Limit(0.45, "share", "power of the board's limit under this", 0.05, 1),
        "nvlink": Limit(0.2, "share", "NVLink traffic of its peak at most, where it is measured", 0, 1),
        "dram": Limit(0.15, "share", "DRAM activity at most", 0, 1),
    },
    source="economics §4: GPU_UTIL is 100 % on a nearly empty chip",
)  # fmt: skip
