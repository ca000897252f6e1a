"""The GPUs wait for data: sections say so, or the processors or disks of the nodes are full while the GPUs have gaps."""

from typing import Final

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, claim_steps, share

NAMES: Final = {"sm_activity": "SM active", "engine_activity": "engine active", "gpu_util": "GPU_UTIL"}


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """Waits for data that the job reports, else full processors or disks beside a low activity."""
    said = facts.sections.get("data_wait")
    if said is not None and said.mean() >= limits["data_wait"]:
        seconds = (facts.idle_s + facts.underused_s).clip(max=said * facts.held_s)
        return Claim(
            seconds,
            0.8,
            0.95,
            (f"the job says that it waits for data {share(said.mean())} of its time",),
            ("the first epoch waits longer than the next ones, with cold caches",),
            ("which part of loading takes the time: a trace of one step",),
        )
    if not facts.has("node cpu_busy_share"):
        return None
    is_optimistic = facts.activity != "sm_activity"
    active, cpu = facts.level(facts.activity), facts.level("node cpu_busy_share")
    io = facts.level("node io_wait_share") if facts.has("node io_wait_share") else 0 * cpu
    pcie = facts.level("pcie_saturation")
    bad = (active < limits["active"]) & ((cpu >= limits["cpu"]) | (io >= limits["io_wait"])) & ~(pcie > limits["pcie"])
    claimed = claim_steps(facts, bad)
    if claimed is None:
        return None
    waiting = share(facts.mean("node io_wait_share", bad)) if facts.has("node io_wait_share") else "not known"
    return Claim(
        claimed,
        0.4,
        0.75 if is_optimistic else 0.9,
        (
            f"{NAMES[facts.activity]} {share(facts.mean(facts.activity, bad))} while processors of the node are busy"
            f" {share(facts.mean('node cpu_busy_share', bad))}, waiting for disks {waiting}",
        ),
        ("busy processors may do other work than loading data: a trace of one step tells",),
        ("sections of kind data_wait (`loadfactor.track`)",),
    )


INPUT_PIPELINE: Final = DiagnosisRule(
    "input_pipeline", "input pipeline", "I/O", ("any activity", "node cpu_busy_share"), find,
    "DataLoader: num_workers = cores per GPU, prefetch_factor=4, persistent_workers=True, pin_memory=True; decode on the GPU"
    " (DALI), keep the data set on local NVMe.",
    {
        "data_wait": Limit(0.1, "share", "time in which the job says that it waits for data", 0.01, 1),
        "active": Limit(0.72, "share", "activity, by the best signal, under which GPUs wait", 0.01, 1),
        "cpu": Limit(0.85, "share", "processors busy, mean over the cores of the node", 0.1, 1),
        "io_wait": Limit(0.1, "share", "processor time spent waiting for disks", 0.01, 1),
        "pcie": Limit(0.25, "share", "PCIe traffic over which copies are the cause", 0.01, 1),
    },
    "economics §5: CPU ≥ 90 % or disks high, data wait ≥ 10 % of the step, PCIe low",
)  # fmt: skip
