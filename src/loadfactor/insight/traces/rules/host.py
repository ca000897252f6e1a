"""The GPU waits for its host: launches come too late, or the host stops to wait for the GPU in between."""

from loadfactor.base.units import NS_PER_US, PERCENT
from loadfactor.insight.traces.judge import has_one_gap
from loadfactor.insight.traces.observed import ObservedDevice
from loadfactor.insight.traces.report import Sureness, TraceFinding
from loadfactor.insight.traces.rules.start_up import is_first_call
from loadfactor.insight.traces.rules.wording import LEAST_SHARE, name_owners, saved, say_share, say_us

_SURE_SHARE = 0.13


def find_host_bound(device: ObservedDevice) -> TraceFinding | None:
    """Idle time before and in launches, less what data, synchronization and first calls own."""
    if has_one_gap(device):
        return None
    host = [
        owner
        for owner in device.owners
        if owner.waits_for in ("host", "start_up", "collective") and not is_first_call(owner)
    ]
    idle_us = sum(owner.idle_us for owner in host) + device.partition.idle_launch_ns / NS_PER_US
    share = device.share(idle_us * NS_PER_US)
    if share < LEAST_SHARE:
        return None
    median = sorted(device.kernel_us)[len(device.kernel_us) // 2] if len(device.kernel_us) else 0.0
    sureness: Sureness = "high" if share >= _SURE_SHARE else "medium"
    return TraceFinding(
        cause="host_bound",
        class_="precision and kernels",
        share=share,
        sureness=sureness,
        evidence=(
            f"Nothing was queued on the GPU for {say_us(sum(owner.idle_us for owner in host))} until the next launch"
            " was called, and for"
            f" {say_us(device.partition.idle_launch_ns / NS_PER_US)} more until it began; the median kernel lasts {median:.3g} µs.",
            f"Meanwhile the launching thread was in {name_owners(host)}.",
        ),
        action=(
            'torch.compile(mode="reduce-overhead") or CUDA graphs; fused or foreach optimizers; fewer small operators'
            " and hooks; pin the"
            " process to the cores beside its GPU. Repeat without record_shapes and with_stack first: the profiler"
            " slows the host itself."
        ),
        **saved(share, sureness),
        misleads="The profiler's own cost on the host; a rank that waits for others elsewhere.",
    )


def find_synchronization(device: ObservedDevice) -> TraceFinding | None:
    """Idle time that begins while the host waits for the GPU and then has to launch anew."""
    waited = device.idle_us("synchronization")
    share = device.share(waited * NS_PER_US)
    if share < LEAST_SHARE:
        return None
    waiting = [owner for owner in device.owners if owner.waits_for == "synchronization"]
    calls = sum(owner.events for owner in waiting)
    of_host = waited * NS_PER_US / max(device.partition.idle_host_ns, 1)
    return TraceFinding(
        cause="synchronization",
        class_="user error",
        share=share,
        sureness="high" if calls >= 3 else "medium",
        evidence=(
            f"The host was in synchronizing calls for {say_us(waited)} while the GPU was idle:"
            f" {PERCENT * of_host:.1f} % of the time it"
            f" waited for the host, {say_share(share)} of the span.",
            f"Owners: {name_owners(waiting)}.",
        ),
        action=(
            "Keep losses on the device and log every n steps; no .item(), .cpu(), nonzero or data-dependent shapes in"
            " the loop; copy with"
            " non_blocking=True."
        ),
        **saved(share, "high" if calls >= 3 else "medium"),
        misleads="A synchronization at the end of a step waits for useful work: only idle time under it counts here.",
    )
