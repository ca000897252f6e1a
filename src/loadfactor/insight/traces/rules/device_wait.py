"""Idle time of which the trace does not tell the cause: what came next was launched before it, or outside of the trace."""

import re
from typing import Final

import numpy as np

from loadfactor.base.units import NS_PER_US
from loadfactor.insight.traces.judge import has_one_gap, is_undecidable, undecidable_share
from loadfactor.insight.traces.observed import ObservedDevice
from loadfactor.insight.traces.report import TraceFinding
from loadfactor.insight.traces.rules.wording import saved, say_us

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
