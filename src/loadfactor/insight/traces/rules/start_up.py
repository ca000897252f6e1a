"""Start-up inside the window: one gap that is no part of the loop, or first calls that load, tune or compile."""

import re
from typing import Final

from loadfactor.base.units import NS_PER_US
from loadfactor.insight.traces.judge import has_one_gap, longest_gap_share
from loadfactor.insight.traces.observed import ObservedDevice
from loadfactor.insight.traces.owners import Owner
from loadfactor.insight.traces.report import TraceFinding
from loadfactor.insight.traces.rules.wording import LEAST_SHARE, name_owners, say_share, say_us

_FIRST_CALLS: Final = re.compile(
    r"cudnn|cublas|miopen|hipblas|module_?load|library_?load|malloc|cudaFree|streamcreate|hostalloc|compile(?!d)|autotun|warm_?up",
    re.IGNORECASE,
)
_MOST_OF_IT: Final = 0.5
_ACTION: Final = (
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
                f"The longest gap is {say_share(longest_gap_share(device))} of the span; the GPU was idle for"
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
    """Whether an owner's time is mostly one stretch of something that loads, allocates, tunes or compiles."""
    once = owner.longest_us >= _MOST_OF_IT * owner.idle_us
    return once and bool(_FIRST_CALLS.search(f"{owner.name} {owner.call} {owner.phase}"))


def _say(share: float, evidence: tuple[str, ...]) -> TraceFinding:
    return TraceFinding(
        cause="start_up",
        class_="I/O",
        share=share,
        sureness="high",
        evidence=evidence,
        action=_ACTION,
        saved_share_low=0.0,
        saved_share_high=share,
        misleads="A window of a few steps: the loop itself may be well or badly filled, this trace does not tell.",
    )
