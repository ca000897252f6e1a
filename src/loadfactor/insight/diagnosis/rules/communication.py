"""Bound by communication: kernels of collectives are resident and little is computed."""

from typing import Final

import numpy as np

from loadfactor.base.units import BYTES_PER_GB
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.gpus_compared import differ
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, claim_steps, share


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
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
    seconds = claim_steps(facts, bad)
    if seconds is None:
        return None
    most = np.fmax.reduce([facts.mean("gpu_link_saturation", bad), over_nodes * facts.mean("pcie_saturation", bad)])
    if most < limits["busy"] and differ(facts):
        return None  # GPUs that differ wait in collectives for each other
    sent = f", nodes send {float(np.nanmean(net[bad])) / BYTES_PER_GB:.3g} GB/s each" if has_net else ""
    return Claim(
        seconds,
        0.4,
        0.85 if most >= limits["busy"] else 0.6,
        (
            f"kernels are resident {share(facts.mean('engine_activity', bad))} of the time, SM active"
            f" {share(facts.mean('sm_activity', bad))}, tensor cores {share(facts.mean('tensor_activity', bad))}",
            f"the links between GPUs carry {share(facts.mean('gpu_link_saturation', bad))} of their peak{sent}",
        ),
        ("one slow GPU makes all others wait in collectives, too: see stragglers", "small batches keep SMs low, too"),
        ("traces of all ranks: exposed communication and who comes last",),
    )


COMMUNICATION: Final = DiagnosisRule(
    "communication", "communication", "communication", ("sm_activity", "engine_activity", "gpu_link_saturation"), find,
    "Tensor parallelism within a node; overlap (DDP bucket_cap_mb=100, FSDP prefetch); gradient"
    " accumulation ×4; BF16 gradients;"
    " GPUs of one switch.",
    {
        "sm": Limit(0.65, "share", "SM activity under which GPUs wait", 0.01, 1),
        "engine": Limit(0.8, "share", "time with kernels resident at least", 0.01, 1),
        "some": Limit(0.2, "share", "traffic of links between GPUs of their peak, mean, that may be the cause", 0.01, 1),
        "busy": Limit(0.3, "share", "the same that is hardly anything else", 0.01, 1),
        "net": Limit(5e9, "bytes/s", "sent by each node that may be the cause", 0),
    },
    "economics §5: links near their limit, or engine busy with tensor low; exposed ≥ 15 %",
)  # fmt: skip
