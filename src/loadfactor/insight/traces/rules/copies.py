"""Copies that nothing hides: the GPU computes nothing while they run."""

from typing import Final

from loadfactor.base.units import BYTES_PER_GB, NS_PER_US, US_PER_S
from loadfactor.insight.traces.observed import Copies, ObservedDevice
from loadfactor.insight.traces.report import Sureness, TraceFinding
from loadfactor.insight.traces.rules.wording import LEAST_SHARE, saved, say_share, say_us, shorten

_LEAST_OF_EVENTS = 0.5
_WORTH_SAYING = 0.05
_PIN: Final = (
    "Pin the batches (pin_memory=True), copy them with non_blocking=True, batch small ones, keep tensors on the GPU."
)
_KEEP: Final = (
    "Keep what is copied again and again on the device, or fetch it on a second stream while the step before computes; donate"
    " buffers and keep their layout."
)


def find_exposed_copies(device: ObservedDevice) -> TraceFinding | None:
    """Exposed copies of at least a twentieth of the span, or of most of what the GPU did at all."""
    parts = device.partition
    share, of_busy = device.share(parts.memcpy_exposed_ns), parts.memcpy_exposed_ns / max(parts.busy_ns, 1)
    if share < LEAST_SHARE and (of_busy < _LEAST_OF_EVENTS or not device.copies):
        return None
    largest = device.copies[0]
    pageable = sum(copies.total_us for copies in device.copies if copies.is_pageable)
    sureness: Sureness = "high" if share >= LEAST_SHARE else "medium"
    evidence = [
        f"Copies that nothing hides take {say_us(parts.memcpy_exposed_ns / NS_PER_US)}, {say_share(share)} of the span and"
        f" {say_share(of_busy)} of the time in which the device did anything.",
        f"The largest: {_describe(largest)}.",
    ]
    if pageable > _WORTH_SAYING * sum(copies.total_us for copies in device.copies):
        evidence.append(f"Copies of pageable memory of the host take {say_us(pageable)}.")
    if parts.kernel_ns < parts.busy_ns / 2 and share >= LEAST_SHARE:
        evidence.append(
            f"Kernels ran for {say_share(device.share(parts.kernel_ns))} of the span: counters that know kernels"
            " alone show that much."
        )
    action = _KEEP if not largest.is_pageable else _PIN
    return TraceFinding(
        cause="copy_bound",
        class_="I/O",
        share=share,
        sureness=sureness,
        evidence=tuple(evidence),
        action=action,
        **saved(share, sureness),
        misleads="A model that is loaded when the window begins; managed memory, which shows as slow kernels instead.",
    )


def _describe(copies: Copies) -> str:
    said = f"{copies.count:,} of {shorten(copies.name)} in {say_us(copies.total_us)}"
    if copies.size_bytes and copies.total_us:
        rate = copies.size_bytes / BYTES_PER_GB / (copies.total_us / US_PER_S)
        said += f", {copies.size_bytes / BYTES_PER_GB:.3g} GB at {rate:.3g} GB/s"
    return said
