"""Bound by communication: kernels of collectives are resident and little is computed."""

from typing import Final

from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits, claim_steps, share


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """The engine is busy, the SMs are not, and a link is; or power says that kernels wait."""
    if len(facts.devices) < 2:
        return None
    sm, engine = facts.level("sm_activity"), facts.level("engine_activity")
    nvlink, net = (
        facts.level("nvlink_saturation"),
        facts.level("node net_tx_bytes_per_s") if facts.has("node net_tx_bytes_per_s") else None,
    )
    moves = nvlink >= limits["nvlink"]
    if net is not None:
        moves |= net >= limits["net"]
    bad = (engine >= limits["engine"]) & (sm < limits["sm"]) & moves
    seconds = claim_steps(facts, bad)
    if seconds is None:
        return None
    return Claim(
        seconds,
        0.4,
        0.85,
        (
            f"kernels are resident {share(facts.mean('engine_activity', bad))} of the time, SM active"
            f" {share(facts.mean('sm_activity', bad))}, tensor cores {share(facts.mean('tensor_activity', bad))}",
            f"NVLink carries {share(facts.mean('nvlink_saturation', bad))} of its peak",
        ),
        ("one slow GPU makes all others wait in collectives, too: see stragglers",),
        ("traces of all ranks: exposed communication and who comes last",),
    )


COMMUNICATION: Final = DiagnosisRule(
    "communication", "communication", "communication", ("sm_activity", "engine_activity", "nvlink_saturation"), find,
    "Tensor parallelism within a node; overlap (DDP bucket_cap_mb=100, FSDP prefetch); gradient"
    " accumulation ×4; BF16 gradients;"
    " GPUs of one switch.",
    {
        "sm": Limit(0.65, "share", "SM activity under which GPUs wait", 0.01, 1),
        "engine": Limit(0.8, "share", "time with kernels resident at least", 0.01, 1),
        "nvlink": Limit(0.2, "share", "NVLink traffic of its peak, mean", 0.01, 1),
        "net": Limit(5e9, "bytes/s", "sent by the node", 0),
    },
    "economics §5: links near their limit, or engine busy with tensor low; exposed ≥ 15 %",
)  # fmt: skip
