"""Communication that no computing hides, as one rank sees it, and as several ranks beside each other see it."""

from collections.abc import Sequence
from typing import Final

from loadfactor.base.units import NS_PER_US
from loadfactor.insight.traces.collectives import Skew
from loadfactor.insight.traces.observed import ObservedDevice
from loadfactor.insight.traces.report import Sureness, TraceFinding
from loadfactor.insight.traces.rules.wording import LEAST_SHARE, saved, say_share, say_us

STRAGGLES: Final = 0.5
_FEWEST: Final = 20
_MOVING: Final = 0.1


def find_exposed_communication(device: ObservedDevice) -> TraceFinding | None:
    """Exposed communication, of which one rank cannot tell whether it moved data or waited."""
    parts = device.partition
    share = device.share(parts.comm_exposed_ns)
    if share < LEAST_SHARE:
        return None
    overlap = 1 - parts.comm_exposed_ns / parts.comm.length_ns
    return TraceFinding(
        cause="comm_exposed",
        class_="communication",
        share=share,
        sureness="medium",
        evidence=(
            f"Communication that no computing hides takes {say_us(parts.comm_exposed_ns / NS_PER_US)},"
            f" {say_share(share)} of the span;"
            f" {say_share(overlap)} of all communication is hidden.",
            "One rank does not tell whether data moved or others were waited for: give the traces of several ranks together.",
        ),
        action=(
            "Look at the other ranks first. Then overlap more: DDP bucket_cap_mb, gradient_as_bucket_view; FSDP prefetch; Megatron"
            " --overlap-grad-reduce --overlap-param-gather; keep tensor parallelism inside the fast links."
        ),
        **saved(share, "medium"),
        misleads="Waiting for a late rank looks like moving data: kernels of collectives spin until everybody is there.",
    )


def find_rank_waits(skew: Skew | None, devices: Sequence[ObservedDevice]) -> TraceFinding | None:
    """One rank that the others wait for; or, where the transfers themselves take long, those."""
    if skew is None or not devices:
        return None
    straggler = skew.straggler
    if (
        straggler is not None
        and skew.collectives >= _FEWEST
        and straggler.caused_share is not None
        and straggler.caused_share >= STRAGGLES
    ):
        return _say_straggler(skew, straggler.rank, devices)
    transfer = skew.transfer_us * NS_PER_US / max(device.partition.span_ns for device in devices)
    if transfer < _MOVING:
        return None
    share = sum(device.share(device.partition.comm_exposed_ns) for device in devices) / len(devices)
    moving = min(share, transfer)
    return TraceFinding(
        cause="comm_transfer",
        class_="communication",
        share=moving,
        sureness="medium",
        evidence=(
            f"In {skew.collectives:,} collectives that {len(skew.ranks)} ranks have in common the shortest durations sum to"
            f" {say_us(skew.transfer_us)}: that much is transfer, whoever was late.",
        ),
        action=(
            "Overlap communication with computing (bucket_cap_mb, FSDP prefetch, --overlap-grad-reduce), reduce in 16"
            " bits, keep tensor"
            " parallelism inside the fast links; then NCCL_DEBUG=INFO: the right adapters, GPUDirect RDMA."
        ),
        **saved(moving, "medium"),
        misleads="All ranks late alike, which no difference between them shows.",
    )


def _say_straggler(skew: Skew, rank: int, devices: Sequence[ObservedDevice]) -> TraceFinding:
    others = [device for device in devices if device.capture.rank != rank]
    own = [device for device in devices if device.capture.rank == rank]
    exposed = [device.share(device.partition.comm_exposed_ns) for device in others]
    share = sum(exposed) / len(exposed) if exposed else 0.0
    caused = next(item for item in skew.ranks if item.rank == rank)
    waited = caused.caused_us / max(len(others), 1)
    span = max(device.span_us for device in others) if others else 1.0
    sureness: Sureness = "high" if skew.clocks_agree else "medium"
    evidence = [
        f"The other {len(others)} ranks spend {say_share(share)} of their spans in communication that nothing hides;"
        f" in {skew.collectives:,}"
        f" collectives that all have in common the transfers themselves take {say_us(skew.transfer_us)}.",
        f"Rank {rank} came last for {say_us(caused.caused_us)} of {say_us(skew.wait_us)} of waiting"
        f" ({say_share(caused.caused_share or 0.0)}); ends of collectives agree to {say_us(skew.end_spread_us)}.",
    ]
    if own:
        idle = own[0].partition
        evidence.append(
            f"Rank {rank} itself was idle for its host for {say_us((idle.idle_host_ns + idle.idle_launch_ns) / NS_PER_US)}."
        )
    return TraceFinding(
        cause="comm_wait_straggler",
        class_="hardware",
        share=share,
        sureness=sureness,
        evidence=tuple(evidence),
        action=(
            f"Find what slows rank {rank}: its host (core pinning, a neighbour, Python), clocks, power cap, memory"
            " errors; drain the node if"
            " it stays. The links are not what the others wait for."
        ),
        saved_share_low=min(waited / span, share) / 2,
        saved_share_high=min(waited / span, share),
        misleads="One window of a few steps; a rank whose profiler started late; data that are longer on that rank.",
    )


def is_explained(skew: Skew | None) -> bool:
    """Whether one rank explains most of the waiting, so that exposed communication is no cause of its own."""
    straggler = skew.straggler if skew is not None else None
    return (
        straggler is not None
        and skew is not None
        and skew.collectives >= _FEWEST
        and (straggler.caused_share or 0.0) >= STRAGGLES
    )
