"""The GPU waits for data: while it was idle, the thread that launches its work fetched the next batch."""

from typing import Final

from loadfactor.base.units import NS_PER_US, PERCENT
from loadfactor.insight.traces.host_waits import measure_data_wait
from loadfactor.insight.traces.observed import ObservedDevice
from loadfactor.insight.traces.report import Sureness, TraceFinding
from loadfactor.insight.traces.rules.wording import LEAST_SHARE, name_owners, saved, say_us
from loadfactor.tables.trace_events import TraceCapture

_ACTION: Final = (
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
            f"While the GPU was idle the host fetched data for {say_us(waited)}: {PERCENT * of_host:.1f} % of the"
            " time it waited for"
            f" the host, in {calls:,} stretches.",
            f"Owners: {name_owners(fetching)}.",
        ),
        action=_ACTION,
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
            f" {say_us(waited.data_ns / NS_PER_US)}, {PERCENT * waited.share:.1f} % of them: {', '.join(waited.names[:2])}.",
            "The trace has no GPU events: whether a GPU had other work meanwhile is not known.",
        ),
        action=_ACTION,
        **saved(waited.share, "medium"),
        misleads="A first epoch with cold caches; work that is queued on a GPU hides a wait of the host.",
    )
