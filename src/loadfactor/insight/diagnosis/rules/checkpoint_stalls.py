"""Checkpoint stalls: all GPUs stop again and again while a checkpoint is written."""

from typing import Final

import numpy as np

from loadfactor.base.units import S_PER_MIN
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, share
from loadfactor.insight.diagnosis.runs import list_runs


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """Sections say so; else stops of all GPUs at once that come at even intervals, with writing where nodes are measured."""
    said = facts.sections.get("checkpoint")
    if said is not None:
        if said.mean() < limits["share"]:
            return None
        seconds = (facts.idle_s + facts.underused_s).clip(max=said * facts.held_s)
        return Claim(
            seconds,
            0.6,
            0.95,
            (f"the job says that it saves checkpoints {share(said.mean())} of its time",),
            ("some of it may overlap with work: only what was idle or underused then is counted",),
            ("how long one save takes, and how often the job failed",),
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
    sureness, evidence = 0.6, []
    if facts.has("node disk_write_bytes_per_s"):
        written = facts.nodes["disk_write_bytes_per_s"]
        ratio = float(np.nanmean(written[stopped]) / max(float(np.nanmean(written[works])), 1.0))
        sureness = 0.9 if ratio >= limits["writes"] else 0.3
        evidence.append(f"nodes write {ratio:.1f} times as much then")
    every = float(gaps.mean()) * facts.step_s / S_PER_MIN
    long = float(np.mean([after - first for first, after in runs])) * facts.step_s / S_PER_MIN
    return Claim(
        facts.idle_s * stopped,
        0.6,
        sureness,
        (f"all GPUs stop {len(runs)} times, every {every:.0f} min for {long:.1f} min", *evidence),
        ("evaluation at even intervals on the processors looks alike",),
        ("sections of kind checkpoint (`loadfactor.track`)", "what nodes write to disks"),
    )


CHECKPOINT_STALLS: Final = DiagnosisRule(
    "checkpoint_stalls", "checkpoint stalls", "I/O", (), find,
    "Save asynchronously (torch.distributed.checkpoint.async_save), to local NVMe first; every √(2 ×"
    " time to save × time between failures).",
    {
        "share": Limit(0.05, "share", "stopped time of all time", 0.01, 1),
        "stalls": Limit(4, "stops", "least stops", 2),
        "uneven": Limit(0.35, "share", "deviation of intervals from even ones at most", 0, 1),
        "writes": Limit(2.0, "times", "what nodes write then, of what they write otherwise", 1),
    },
    "economics §5: periodic engine = 0 with write bursts, ≥ 5 %",
)  # fmt: skip
