"""Traces without a GPU: how much of its steps a training loop waited for data, by the thread that runs the steps."""

from dataclasses import dataclass

import numpy as np

from loadfactor.insight.traces.intervals import unite
from loadfactor.insight.traces.owners import wait_of
from loadfactor.tables.trace_events import HostKind, TraceCapture


@dataclass(frozen=True)
class StepWait:
    """What a loop waited for data within its steps: the union of events that fetch data; steps and waits of their thread alone."""

    steps: int
    steps_ns: int
    data_ns: int
    names: tuple[str, ...]

    @property
    def share(self) -> float:
        """The share of the steps in which it waited."""
        return self.data_ns / self.steps_ns


def measure_data_wait(capture: TraceCapture) -> StepWait | None:
    """The wait of the thread with most steps; None where a trace has no steps that last."""
    host = capture.host
    steps = {step.name for step in capture.steps}
    is_step = np.isin(host.name, [number for number, name in enumerate(capture.names) if name in steps])
    is_step &= (host.kind == HostKind.ANNOTATION) & (host.end_ns > host.start_ns)
    if not is_step.any():
        return None
    thread = np.bincount(host.thread[is_step]).argmax()
    own = np.nonzero(is_step & (host.thread == thread))[0]
    own = own[np.argsort(host.start_ns[own], kind="stable")]
    windows = unite(host.start_ns[own], host.end_ns[own])
    fetches = [number for number, name in enumerate(capture.names) if name not in steps and wait_of(name) == "data"]
    waits = np.nonzero((host.thread == thread) & np.isin(host.name, fetches))[0]
    waits = waits[np.argsort(host.start_ns[waits], kind="stable")]
    united = unite(host.start_ns[waits], host.end_ns[waits])
    data_ns = int((united.length_until(windows.end_ns) - united.length_until(windows.start_ns)).sum())
    found = tuple(dict.fromkeys(capture.names[host.name[row]] for row in waits[united.first].tolist()))
    return StepWait(len(own), windows.length_ns, data_ns, found)
