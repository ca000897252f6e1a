"""Causes for which GPUs wait: for data, copies, launches, checkpoints, links or the slowest among them."""

from dataclasses import replace
from typing import Final

import numpy as np

from loadfactor.base.units import BYTES_PER_GB, S_PER_MIN
from loadfactor.insight.alerts.rule import Limit
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob, Floats
from loadfactor.insight.diagnosis.rule import (
    LEAST_STEPS_S,
    Claim,
    DiagnosisRule,
    Limits,
    claim_steps,
    list_runs,
    lost_in,
    share,
)

NAMES: Final = {"sm_activity": "SM active", "engine_activity": "engine active", "gpu_util": "GPU_UTIL"}


def find_checkpoint_stalls(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """Sections say so; else stops of all GPUs at once that come at even intervals, with writing where nodes are measured."""
    reported = facts.sections.get("checkpoint")
    if reported is not None:
        if reported.mean() < limits["share"]:
            return None
        seconds = (facts.idle_s + facts.underused_s).clip(max=reported * facts.held_s)
        return Claim(
            seconds,
            (f"the job says that it saves checkpoints {share(reported.mean())} of its time",),
            confidence=0.95,
            against=("some of it may overlap with work: only what was idle or underused then is counted",),
            measure_next=("how long one save takes, and how often the job failed",),
        )
    if facts.is_serving:  # it stops when nobody asks
        return None
    works = facts.working
    active = np.flatnonzero(works)
    if not len(active):
        return None
    stopped = facts.held & ~works
    stopped[: active[0]] = stopped[active[-1] :] = False
    runs = list_runs(stopped)
    if len(runs) < limits["stalls"] or stopped.sum() < limits["share"] * works.sum():
        return None
    gaps = np.diff([first for first, _ in runs])
    if gaps.std() > limits["uneven"] * gaps.mean():
        return None
    confidence, evidence = None, []
    if facts.has("node disk_write_bytes_per_s"):
        written = facts.nodes["disk_write_bytes_per_s"]
        ratio = float(np.nanmean(written[stopped]) / max(float(np.nanmean(written[works])), 1.0))
        confidence = 0.9 if ratio >= limits["writes"] else 0.3
        evidence.append(f"nodes write {ratio:.1f} times as much then")
    every = float(gaps.mean()) * facts.step_s / S_PER_MIN
    long = float(np.mean([after - first for first, after in runs])) * facts.step_s / S_PER_MIN
    return Claim(
        facts.idle_s * stopped,
        (f"all GPUs stop {len(runs)} times, every {every:.0f} min for {long:.1f} min", *evidence),
        confidence=confidence,
    )


def find_input_pipeline(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """Waits for data that the job reports, else full processors or disks beside a low activity."""
    reported = facts.sections.get("data_wait")
    if reported is not None and reported.mean() >= limits["data_wait"]:
        seconds = (facts.idle_s + facts.underused_s).clip(max=reported * facts.held_s)
        return Claim(
            seconds,
            (f"the job says that it waits for data {share(reported.mean())} of its time",),
            low=0.8,
            confidence=0.95,
            against=("the first epoch waits longer than the next ones, with cold caches",),
            measure_next=("which part of loading takes the time: a trace of one step",),
        )
    if not facts.has("node cpu_busy_share"):
        return None
    active, cpu = facts.level(facts.activity), facts.level("node cpu_busy_share")
    io = facts.level("node io_wait_share") if facts.has("node io_wait_share") else 0 * cpu
    pcie = facts.level("pcie_saturation")
    bad = (active < limits["active"]) & ((cpu >= limits["cpu"]) | (io >= limits["io_wait"])) & ~(pcie > limits["pcie"])
    waiting = share(facts.mean("node io_wait_share", bad)) if facts.has("node io_wait_share") else "not known"
    claim = claim_steps(
        facts,
        bad,
        f"{NAMES[facts.activity]} {share(facts.mean(facts.activity, bad))} while processors of the node are busy"
        f" {share(facts.mean('node cpu_busy_share', bad))}, waiting for disks {waiting}",
    )
    return claim if claim is None or facts.activity == "sm_activity" else replace(claim, confidence=0.75)


def find_host_copies(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """PCIe is busy and the SMs are not, nor is a kernel resident: what kernels send over PCIe is communication."""
    sm, pcie = facts.level("sm_activity"), facts.level("pcie_saturation")
    bad = (sm < limits["sm"]) & (pcie >= limits["pcie"]) & ~(facts.level("engine_activity") >= limits["engine"])
    return claim_steps(
        facts,
        bad,
        f"PCIe carries {share(facts.mean('pcie_saturation', bad))} of its peak, SM active"
        f" {share(facts.mean('sm_activity', bad))}",
    )


def find_communication(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """The engine is busy, the SMs are not, and a link is: NVLink, PCIe where nothing else leads to other GPUs, or the network."""
    if len(facts.devices) < 2:
        return None
    sm, engine = facts.level("sm_activity"), facts.level("engine_activity")
    links, pcie = facts.level("gpu_link_saturation"), facts.level("pcie_saturation")
    over_nodes = len(set(facts.node_of)) > 1
    has_net = over_nodes and facts.has("node net_tx_bytes_per_s")
    net = facts.level("node net_tx_bytes_per_s") if has_net else np.full(len(sm), np.nan)
    moves = (links >= limits["some"]) | (net >= limits["net"]) | (over_nodes & (pcie >= limits["some"]))
    bad = (engine >= limits["engine"]) & (sm < limits["sm"]) & moves
    most = np.fmax.reduce([facts.mean("gpu_link_saturation", bad), over_nodes * facts.mean("pcie_saturation", bad)])
    if most < limits["busy"] and differ(facts):
        return None  # GPUs that differ wait in collectives for each other
    sent = f", nodes send {float(np.nanmean(net[bad])) / BYTES_PER_GB:.3g} GB/s each" if has_net and bad.any() else ""
    claim = claim_steps(
        facts,
        bad,
        f"kernels are resident {share(facts.mean('engine_activity', bad))} of the time, SM active"
        f" {share(facts.mean('sm_activity', bad))}, tensor cores {share(facts.mean('tensor_activity', bad))}",
        f"the links between GPUs carry {share(facts.mean('gpu_link_saturation', bad))} of their peak{sent}",
    )
    return claim if claim is None or most >= limits["busy"] else replace(claim, confidence=0.6)


def find_launch_bound(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """Gaps between kernels, although neither processors, disks nor PCIe are full and kernels fill the GPU."""
    if facts.is_serving:  # between requests there are gaps, too
        return None
    sm, engine = facts.level("sm_activity"), facts.level("engine_activity")
    cpu, io = facts.level("node cpu_busy_share"), facts.level("node io_wait_share")
    bad = (engine >= limits["least"]) & (engine <= limits["engine"]) & (sm >= limits["fill"] * engine)
    bad &= (cpu < limits["cpu"]) & ~(io >= limits["io_wait"]) & (facts.level("pcie_saturation") < limits["pcie"])
    if differ(facts):
        return None
    return claim_steps(
        facts,
        bad,
        f"the engine is active {share(facts.mean('engine_activity', bad))} of the time and full while it is (SM active"
        f" {share(facts.mean('sm_activity', bad))}); processors busy {share(facts.mean('node cpu_busy_share', bad))}, PCIe"
        f" {share(facts.mean('pcie_saturation', bad))}",
    )


def find_straggler(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """One GPU works while the others wait, or does far less than they do; the others are alike."""
    if len(facts.devices) < limits["gpus"]:
        return None
    working = facts.working
    value = facts.by_gpu("sm_activity", working)
    if np.isnan(value).any() or is_throttling(facts, value):
        return None
    order = np.argsort(value)
    ends = ((order[-1], order[:-1]), (order[0], order[1:]))
    for place, others in ends:
        middle, spread = float(np.median(value[others])), float(np.ptp(value[others]))
        far = abs(value[place] - middle)
        if middle > limits["used"] and far >= max(limits["distance"], limits["apart"] * spread):
            top = max(value[place], middle)
            seconds = lost_in(facts, working)
            if seconds is None or facts.works[place].sum() * facts.step_s < limits["used"]:
                return None
            lost = far / top
            return Claim(
                np.minimum(seconds, lost * facts.held_s),
                (
                    f"{facts.devices[place]}: SM active {share(float(value[place]))}, the other {len(others)} GPUs"
                    f" {share(middle)},"
                    f" alike within {share(spread)}",
                ),
            )
    return None


def find_imbalance(facts: DiagnosedJob, limits: Limits) -> Claim | None:
    """GPUs of a job differ, several of them on either side of the middle."""
    working = facts.working
    if len(facts.devices) < limits["gpus"] or not working.any():
        return None
    value = facts.by_gpu("sm_activity", working)
    if np.isnan(value).any() or value.min() < limits["used"] or is_throttling(facts, value):
        return None
    low, high = (float(np.partition(value, n)[n]) for n in (1, len(value) - 2))
    if np.ptp(value) < limits["spread"] or high - low < limits["inner"] * np.ptp(value):
        return None
    seconds = lost_in(facts, working)
    if seconds is None:
        return None
    lost = np.clip(1 - value / value.max(), 0, 1)[:, np.newaxis] * facts.held_s
    return Claim(
        np.minimum(seconds, lost),
        (
            f"SM active from {share(float(value.min()))} to {share(float(value.max()))} over {len(value)} GPUs;"
            f" without both ends {share(low)} to {share(high)}",
        ),
    )


CHECKPOINT_STALLS: Final = DiagnosisRule(
    "checkpoint_stalls", "checkpoint stalls", "I/O", (), find_checkpoint_stalls,
    low=0.6, confidence=0.6,
    against=("evaluation at even intervals on the processors looks alike",),
    measure_next=("sections of kind checkpoint (`loadfactor.track`)", "what nodes write to disks"),
    action="Save asynchronously (torch.distributed.checkpoint.async_save), to local NVMe first; every √(2 ×"
    " time to save × time between failures).",
    limits={
        "share": Limit(0.05, "share", "stopped time of all time", 0.01, 1),
        "stalls": Limit(4, "stops", "least stops", 2),
        "uneven": Limit(0.35, "share", "deviation of intervals from even ones at most", 0, 1),
        "writes": Limit(2.0, "times", "what nodes write then, of what they write otherwise", 1),
    },
    source="economics §5: periodic engine = 0 with write bursts, ≥ 5 %",
)  # fmt: skip

INPUT_PIPELINE: Final = DiagnosisRule(
    "input_pipeline", "input pipeline", "I/O", ("any activity", "node cpu_busy_share"), find_input_pipeline,
    low=0.4, confidence=0.9,
    against=("busy processors may do other work than loading data: a trace of one step tells",),
    measure_next=("sections of kind data_wait (`loadfactor.track`)",),
    action="DataLoader: num_workers = cores per GPU, prefetch_factor=4, persistent_workers=True, pin_memory=True; decode on the GPU"
    " (DALI), keep the data set on local NVMe.",
    limits={
        "data_wait": Limit(0.1, "share", "time in which the job says that it waits for data", 0.01, 1),
        "active": Limit(0.72, "share", "activity, by the best signal, under which GPUs wait", 0.01, 1),
        "cpu": Limit(0.85, "share", "processors busy, mean over the cores of the node", 0.1, 1),
        "io_wait": Limit(0.1, "share", "processor time spent waiting for disks", 0.01, 1),
        "pcie": Limit(0.25, "share", "PCIe traffic over which copies are the cause", 0.01, 1),
    },
    source="economics §5: CPU ≥ 90 % or disks high, data wait ≥ 10 % of the step, PCIe low",
)  # fmt: skip

HOST_COPIES: Final = DiagnosisRule(
    "host_copies", "host–GPU copies", "I/O", ("sm_activity", "pcie_saturation"), find_host_copies,
    low=0.3, confidence=0.85,
    against=("copies that overlap with computing cost nothing: a trace shows the exposed ones",),
    measure_next=("a trace with copies (`loadfactor diagnose TRACE`)",),
    action="pin_memory=True and .to(device, non_blocking=True); one large copy instead of many; no"
    " .cpu()/.item() in the loop; less offloading.",
    limits={
        "sm": Limit(0.72, "share", "SM activity under which GPUs wait", 0.01, 1),
        "pcie": Limit(0.25, "share", "PCIe traffic of its peak in the busier direction", 0.01, 1),
        "engine": Limit(0.8, "share", "time with kernels resident from which on they send it", 0.01, 1),
    },
    source="economics §5: gaps with PCIe bursts",
)  # fmt: skip

COMMUNICATION: Final = DiagnosisRule(
    "communication", "communication", "communication",
    ("sm_activity", "engine_activity", "gpu_link_saturation"), find_communication,
    low=0.4, confidence=0.85,
    against=("one slow GPU makes all others wait in collectives, too: see stragglers", "small batches keep SMs low, too"),
    measure_next=("traces of all ranks: exposed communication and who comes last",),
    action="Tensor parallelism within a node; overlap (DDP bucket_cap_mb=100, FSDP prefetch); gradient"
    " accumulation ×4; BF16 gradients;"
    " GPUs of one switch.",
    limits={
        "sm": Limit(0.65, "share", "SM activity under which GPUs wait", 0.01, 1),
        "engine": Limit(0.8, "share", "time with kernels resident at least", 0.01, 1),
        "some": Limit(0.2, "share", "traffic of links between GPUs of their peak, mean, that may be the cause", 0.01, 1),
        "busy": Limit(0.3, "share", "the same that is hardly anything else", 0.01, 1),
        "net": Limit(5e9, "bytes/s", "sent by each node that may be the cause", 0),
    },
    source="economics §5: links near their limit, or engine busy with tensor low; exposed ≥ 15 %",
)  # fmt: skip

LAUNCH_BOUND: Final = DiagnosisRule(
    "launch_bound", "launches and host code", "precision and kernels",
    ("sm_activity", "engine_activity", "pcie_saturation", "node cpu_busy_share", "node io_wait_share"), find_launch_bound,
    low=0.4, confidence=0.6,
    against=("waiting for data looks like this where neither all processors nor a disk is full (docs/hardware.md): a trace tells",),
    measure_next=("a trace with launches (`loadfactor diagnose TRACE`)",),
    action="torch.compile(mode='reduce-overhead') or CUDA graphs; fuse the optimizer (fused=True); no .item(),"
    " print or cudaStreamSynchronize in the loop.",
    limits={
        "least": Limit(0.1, "share", "time with the engine active at least", 0, 1),
        "engine": Limit(0.75, "share", "time with the engine active at most", 0.01, 1),
        "fill": Limit(0.6, "share", "SM activity of engine activity: kernels fill the GPU", 0.01, 1),
        "cpu": Limit(0.8, "share", "processors busy under which data loading is not the cause", 0.01, 1),
        "io_wait": Limit(0.1, "share", "time waiting for disks from which on data loading is the cause", 0.01, 1),
        "pcie": Limit(0.25, "share", "PCIe traffic under which copies are not the cause", 0.01, 1),
    },
    source="economics §5: engine 0.3–0.9, one core full, kernels < 20 µs",
)  # fmt: skip

STRAGGLER: Final = DiagnosisRule(
    "straggler", "straggler", "hardware", ("sm_activity",), find_straggler,
    low=0.4, confidence=0.9,
    against=("the program may give this rank other work (rank 0 that logs and saves)",),
    measure_next=("traces of all ranks: who comes last in collectives",),
    action="Drain the GPU's node and run the job without it; look for throttling, XIDs and a slow disk there;"
    " else give this rank less work.",
    limits={
        "gpus": Limit(3, "GPUs", "least GPUs of a job of which one can be told", 3),
        "distance": Limit(0.1, "share", "least difference of SM activity to the others", 0.01, 1),
        "apart": Limit(2.5, "times", "the same, of the difference among the others", 1),
        "used": Limit(0.05, "share", "SM activity under which a GPU is not used at all", 0, 1),
    },
    source="economics §5: one rank's busy time ≥ 1.1 × the median while others wait",
)  # fmt: skip

IMBALANCE: Final = DiagnosisRule(
    "imbalance", "unequal ranks", "communication", ("sm_activity",), find_imbalance,
    low=0.4, confidence=0.8,
    against=("stages of a pipeline differ by design at its ends",),
    measure_next=("time of a step by rank",),
    action="Divide work by cost, not by count: length-bucketed batches, layers by time over pipeline stages,"
    " capacity factor for experts.",
    limits={
        "gpus": Limit(4, "GPUs", "least GPUs of a job", 4),
        "spread": Limit(0.15, "share", "difference of SM activity over all GPUs", 0.01, 1),
        "inner": Limit(0.25, "share", "part of it that is left without one GPU at either end: else one GPU is the cause", 0, 1),
        "used": Limit(0.05, "share", "SM activity under which a GPU is not used at all", 0, 1),
    },
)  # fmt: skip


ALIKE: Final = 0.15
"""GPUs of a job whose SM activity differs by more wait for each other."""
USED: Final = 0.05
"""SM activity under which a GPU is not used at all, and waits for nobody."""
_THROTTLED: Final = 0.1
_AT_THE_TIME: Final = 0.1
_LEFT: Final = 0.5
"""Throttling explains a difference where so much of it at most is left among those that are throttled, and among the others."""


def differ(facts: DiagnosedJob) -> bool:
    """Whether GPUs of a job that are used do unequal work: then they wait for each other."""
    value = facts.by_gpu("sm_activity", facts.working)
    used = value[value >= USED]
    return bool(len(used) > 1 and np.ptp(used) > ALIKE)


def is_throttling(facts: DiagnosedJob, value: Floats) -> bool:
    """Whether some GPUs are throttled, which do what they can, and the others wait for them: which is the cause then."""
    if "throttled_share" not in facts.signals:
        return False
    throttled = facts.by_gpu("throttled_share", facts.working)
    if not np.ptp(throttled) > _THROTTLED:
        return False
    hot = throttled > (throttled.min() + throttled.max()) / 2
    calm = facts.working & ~np.logical_or.reduce(facts.signals["throttled_share"][hot] > _AT_THE_TIME, axis=0)
    if calm.sum() * facts.step_s >= LEAST_STEPS_S and np.ptp(facts.by_gpu("sm_activity", calm)) > _LEFT * np.ptp(value):
        return False  # they differ as much while none of them is throttled
    return bool(max(np.ptp(value[hot]), np.ptp(value[~hot])) <= _LEFT * np.ptp(value))
