"""Rules that find causes of lost time in the trace of one device: `RULES` lists them in the order of this file."""

import re
from collections.abc import Sequence
from typing import Final, TypedDict

import numpy as np

from loadfactor.base.quantities import write_share
from loadfactor.base.units import BYTES_PER_GB, NS_PER_US, US_PER_MS, US_PER_S
from loadfactor.insight.traces.collectives import Skew
from loadfactor.insight.traces.judge import (
    Copies,
    ObservedDevice,
    has_one_gap,
    is_undecidable,
    longest_gap_share,
    undecidable_share,
)
from loadfactor.insight.traces.kernels import has_tensor_cores
from loadfactor.insight.traces.partition import Owner, measure_data_wait
from loadfactor.insight.traces.report import Sureness, TraceFinding
from loadfactor.tables.trace_events import TraceCapture

LEAST_SHARE: Final = 0.05
"""A part of the span below this is not named."""
_NAME: Final = 70


class Saved(TypedDict):
    """The least and the most that a fix would have saved, as shares of the span."""

    saved_share_low: float
    saved_share_high: float


def saved(share: float, sureness: Sureness) -> Saved:
    """The bounds of what could be saved: all of a part that is sure, from half of one that is likely, from nothing of another."""
    low = {"high": share, "medium": share / 2, "low": 0.0}[sureness]
    return {"saved_share_low": low, "saved_share_high": share}


def say_us(value: float) -> str:
    """A time as people read it.

    >>> say_us(9_934_052), say_us(1234.5), say_us(16)
    ('9.93 s', '1.23 ms', '16 µs')
    """
    if value >= US_PER_S:
        return f"{value / US_PER_S:,.3g} s"
    return f"{value / US_PER_MS:,.3g} ms" if value >= US_PER_MS else f"{value:,.3g} µs"


def shorten(name: str) -> str:
    """A name that fits a line."""
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def name_owners(owners: Sequence[Owner], most: int = 3) -> str:
    """The largest owners of idle time with their times."""
    named = []
    for owner in owners[:most]:
        inside = f" (in {shorten(owner.call)})" if owner.call else ""
        named.append(f"{shorten(owner.name)}{inside} {say_us(owner.idle_us)}")
    return ", ".join(named) if named else "nothing that was recorded"


_FEED_ACTION: Final = (
    "Give the DataLoader num_workers (4 to 8 a GPU, then measure), prefetch_factor, persistent_workers=True, pin_memory=True with"
    " .to(device, non_blocking=True); decode on the GPU, or keep shards on local disks; in tf.data map with AUTOTUNE and prefetch."
)


def find_input_pipeline(device: ObservedDevice) -> TraceFinding | None:
    """Idle time that calls of a data loader own."""
    waited = device.idle_us("data")
    share = device.share(waited * NS_PER_US)
    if share < LEAST_SHARE:
        return None
    of_host = waited * NS_PER_US / max(device.partition.idle_host_ns, 1)
    fetching = [owner for owner in device.owners if owner.waits_for == "data"]
    calls = sum(owner.events for owner in fetching)
    sureness: Sureness = "high" if of_host >= 0.3 and calls >= 3 else "medium"
    return TraceFinding(
        cause="input_pipeline",
        class_="I/O",
        share=share,
        sureness=sureness,
        evidence=(
            f"While the GPU was idle the host fetched data for {say_us(waited)}: {write_share(of_host, 1)} of the"
            " time it waited for"
            f" the host, in {calls:,} stretches.",
            f"Owners: {name_owners(fetching)}.",
        ),
        action=_FEED_ACTION,
        **saved(share, sureness),
        misleads="A first epoch with cold caches, or workers that share too few cores.",
    )


def find_starved_loop(capture: TraceCapture) -> TraceFinding | None:
    """The same of a trace without a GPU: `share` is then of the loop's steps, not of the span of a device."""
    waited = measure_data_wait(capture)
    if waited is None or waited.share < LEAST_SHARE:
        return None
    return TraceFinding(
        cause="input_pipeline",
        class_="I/O",
        share=waited.share,
        sureness="medium",
        evidence=(
            f"In {waited.steps:,} steps of {say_us(waited.steps_ns / NS_PER_US)} together the loop waited for data for"
            f" {say_us(waited.data_ns / NS_PER_US)}, {write_share(waited.share, 1)} of them: {', '.join(waited.names[:2])}.",
            "The trace has no GPU events: whether a GPU had other work meanwhile is not known.",
        ),
        action=_FEED_ACTION,
        **saved(waited.share, "medium"),
        misleads="A first epoch with cold caches; work that is queued on a GPU hides a wait of the host.",
    )


_FIRST_CALLS: Final = re.compile(
    r"cudnn|cublas|miopen|hipblas|module_?load|library_?load|malloc|cudaFree|streamcreate|hostalloc|compile(?!d)|autotun|warm_?up",
    re.IGNORECASE,
)
_MOST_OF_IT: Final = 0.5
_START_UP_ACTION: Final = (
    "Leave the first steps out of the window (schedule(wait=…, warmup=…, active=…)) and judge again; in production keep compile and"
    " kernel caches in the image."
)


def find_start_up(device: ObservedDevice) -> TraceFinding | None:
    """The whole idle time where one gap dominates, else what first calls own."""
    if has_one_gap(device):
        share = device.share(device.partition.idle_ns)
        return _say(
            share,
            (
                f"The longest gap is {write_share(longest_gap_share(device), 1)} of the span; the GPU was idle for"
                f" {say_us(device.partition.idle_ns / NS_PER_US)} in all.",
                f"While it waited for the host: {name_owners(device.owners)}.",
            ),
        )
    first = [owner for owner in device.owners if is_first_call(owner)]
    share = device.share(sum(owner.idle_us for owner in first) * NS_PER_US)
    if share < LEAST_SHARE:
        return None
    return _say(share, (f"Calls that take long once and are short afterwards hold the host: {name_owners(first)}.",))


def is_first_call(owner: Owner) -> bool:
    """Whether an owner's time is mostly one interval of something that loads, allocates, tunes or compiles."""
    once = owner.longest_us >= _MOST_OF_IT * owner.idle_us
    return once and bool(_FIRST_CALLS.search(f"{owner.name} {owner.call} {owner.phase}"))


def _say(share: float, evidence: tuple[str, ...]) -> TraceFinding:
    return TraceFinding(
        cause="start_up",
        class_="I/O",
        share=share,
        sureness="high",
        evidence=evidence,
        action=_START_UP_ACTION,
        saved_share_low=0.0,
        saved_share_high=share,
        misleads="A window of a few steps: the loop itself may be well or badly filled, this trace does not tell.",
    )


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
            f" {write_share(of_host, 1)} of the time it"
            f" waited for the host, {write_share(share, 1)} of the span.",
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
        f"Copies that nothing hides take {say_us(parts.memcpy_exposed_ns / NS_PER_US)}, {write_share(share, 1)} of the span and"
        f" {write_share(of_busy, 1)} of the time in which the device did anything.",
        f"The largest: {_describe(largest)}.",
    ]
    if pageable > _WORTH_SAYING * sum(copies.total_us for copies in device.copies):
        evidence.append(f"Copies of pageable memory of the host take {say_us(pageable)}.")
    if parts.kernel_ns < parts.busy_ns / 2 and share >= LEAST_SHARE:
        evidence.append(
            f"Kernels ran for {write_share(device.share(parts.kernel_ns), 1)} of the span: counters that know kernels"
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
    text = f"{copies.count:,} of {shorten(copies.name)} in {say_us(copies.total_us)}"
    if copies.size_bytes and copies.total_us:
        rate = copies.size_bytes / BYTES_PER_GB / (copies.total_us / US_PER_S)
        text += f", {copies.size_bytes / BYTES_PER_GB:.3g} GB at {rate:.3g} GB/s"
    return text


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
            f" {write_share(share, 1)} of the span;"
            f" {write_share(overlap, 1)} of all communication is hidden.",
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
        f"The other {len(others)} ranks spend {write_share(share, 1)} of their spans in communication that nothing hides;"
        f" in {skew.collectives:,}"
        f" collectives that all have in common the transfers themselves take {say_us(skew.transfer_us)}.",
        f"Rank {rank} came last for {say_us(caused.caused_us)} of {say_us(skew.wait_us)} of waiting"
        f" ({write_share(caused.caused_share or 0.0, 1)}); ends of collectives agree to {say_us(skew.end_spread_us)}.",
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
        rank=rank,
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


_GRAPH: Final = re.compile(r"graph_?launch", re.IGNORECASE)


def find_device_wait(device: ObservedDevice) -> TraceFinding | None:
    """The undecidable part, where it is the largest that is no computing."""
    if not is_undecidable(device) or has_one_gap(device):
        return None
    parts, share = device.partition, undecidable_share(device)
    names = device.capture.names
    launches = device.capture.host.name[np.unique(device.gpu.launch[device.gpu.launch >= 0])]
    graphs = sum(int((launches == number).sum()) for number in np.unique(launches) if _GRAPH.search(names[number]))
    evidence = [
        f"For {say_us(parts.idle_device_ns / NS_PER_US)} the GPU was idle though its next work was launched already: it waited for"
        " another stream or a copy, or did work that was not recorded.",
    ]
    if parts.idle_unknown_ns:
        evidence.append(
            f"Of {say_us(parts.idle_unknown_ns / NS_PER_US)} the launch of what came next is not in the trace."
        )
    if graphs:
        evidence.append(
            f"{graphs:,} launches of CUDA graphs: work inside graphs may be unrecorded, so this idle time is no proof."
        )
    return TraceFinding(
        cause="device_wait_or_unrecorded",
        class_="precision and kernels",
        share=share,
        sureness="low",
        evidence=tuple(evidence),
        action=(
            "Record again before acting: with the nodes of graphs visible (or graphs off), with all streams and"
            " copies, and with launches"
            " from before the window."
        ),
        **saved(share, "low"),
        misleads="Graphs whose nodes the profiler left out; copies that it does not record.",
    )


PLAIN: Final = 0.3
FULL: Final = 0.8
_LOW_GAIN, _HIGH_GAIN = 1.5, 3.0
"""How many times as fast products become in 16 bits, usually."""


def find_plain_products(device: ObservedDevice) -> TraceFinding | None:
    """Matrix products of at least 30 % of computing, none of them on tensor cores by its name."""
    precision = device.precision
    if precision is None or not has_tensor_cores(device.device.accelerator) or has_one_gap(device):
        return None
    plain = precision.plain_product_share
    if plain < PLAIN or precision.tensor_core_share > plain / 2:
        return None
    computing = device.share(device.partition.compute.length_ns)
    if computing < LEAST_SHARE:
        return None
    sureness: Sureness = "high" if precision.tensor_core_share == 0 and precision.unknown_share < PLAIN else "medium"
    bounds = [plain * computing * (1 - 1 / gain) for gain in (_LOW_GAIN, _HIGH_GAIN)]
    return TraceFinding(
        cause="precision_fp32",
        class_="precision and kernels",
        share=computing,
        sureness=sureness,
        evidence=(
            f"Computing takes {say_us(device.partition.compute.length_ns / NS_PER_US)}, {write_share(computing, 1)} of the span;"
            f" {write_share(plain, 1)} of it are matrix products whose kernels by their names use no tensor cores"
            f" ({write_share(precision.tensor_core_share, 1)} do).",
        ),
        action=(
            "Mixed precision: bf16 autocast, on V100, T4 and RTX 20 float16 with GradScaler;"
            ' torch.set_float32_matmul_precision("high") for TF32 on A100 and later; channels_last for convolutions.'
            " Check convergence."
        ),
        saved_share_low=bounds[0],
        saved_share_high=bounds[1],
        misleads="Work that needs 32 or 64 bits; kernels whose names say nothing.",
    )


def find_full(device: ObservedDevice) -> TraceFinding | None:
    """Little else than computing, and that not plainly in 32 bits."""
    computing = device.share(device.partition.compute.length_ns)
    if computing < FULL or find_plain_products(device) is not None:
        return None
    precision = device.precision
    cores = f"; {write_share(precision.tensor_core_share, 1)} of it on tensor cores at least" if precision else ""
    return TraceFinding(
        cause="compute",
        class_="precision and kernels",
        share=computing,
        sureness="medium",
        evidence=(f"Computing takes {write_share(computing, 1)} of the span{cores}.",),
        action=(
            "Only smaller levers are left around the kernels. In them: FlashAttention, fused operators, fp8 on H100"
            " and later, a better"
            " layout; compare the achieved FLOP/s with the peak."
        ),
        saved_share_low=0.0,
        saved_share_high=0.0,
        misleads="A GPU can compute all the time and far below its peak.",
    )


RULES = (
    find_input_pipeline,
    find_start_up,
    find_host_bound,
    find_synchronization,
    find_exposed_copies,
    find_exposed_communication,
    find_device_wait,
    find_plain_products,
    find_full,
)
"""Each takes an ObservedDevice and gives a TraceFinding or None."""
