"""What rules of diagnoses read of one job: its GPUs step by step, its nodes, sections, attempts, events and work."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import S_PER_MIN

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
SMOOTH_S = 10 * S_PER_MIN
"""Signals of a job are read as means over so long, so that single checkpoints and noise are no symptom."""


@dataclass(frozen=True)
class JobAttempt:
    """One time at which the job held GPUs: its steps [first, after), and how it ended."""

    first: int
    after: int
    end_state: str | None


@dataclass(frozen=True)
class DiagnosedJob:
    """Arrays are GPUs × steps of `step_s` seconds; seconds of GPU time in `held_s` and its parts, shares in `signals`.

    A signal that was not measured is NaN, one that nobody measured is not there; `gpu_link_saturation` is that of NVLink, of PCIe
    where a board has none. `nodes` and `sections` are by step: means over the nodes of the job, and the share of the step that the
    job said it was in a section.
    """

    job: str
    purpose: str | None
    devices: tuple[str, ...]
    node_of: tuple[str | None, ...]
    start_ms: int
    step_s: int
    held_s: Floats
    idle_s: Floats
    underused_s: Floats
    unobserved_s: Floats
    signals: Mapping[str, Floats]
    nodes: Mapping[str, Floats]
    sections: Mapping[str, Floats]
    attempts: tuple[JobAttempt, ...]
    failed_alike: int
    """Attempts of the job, and jobs of its user and team in the same day, that failed."""
    out_of_memory: tuple[int, ...]
    """The steps in which it ran out of memory."""
    padding: float | None
    """Padded ÷ all tokens."""
    cost: float | None
    answered: Floats | None = None
    """What it answered by step, in tokens or requests; None where nobody tells."""

    @property
    def is_serving(self) -> bool:
        """Whether it answers requests: then it waits for them, and holds memory for what may come."""
        return self.purpose in SERVING

    @property
    def is_interactive(self) -> bool:
        """Whether somebody sits before it."""
        return self.purpose in INTERACTIVE

    @cached_property
    def works(self) -> Flags:
        """Where a GPU is held and does something."""
        observed = self.held_s - self.unobserved_s
        return (observed > 0) & (self.idle_s < 0.5 * observed)

    @cached_property
    def working(self) -> Flags:
        """The steps in which any GPU works."""
        found: Flags = np.logical_or.reduce(self.works, axis=0)
        return found

    @cached_property
    def held(self) -> Flags:
        """The steps in which any GPU is held."""
        found: Flags = np.logical_or.reduce(self.held_s > 0, axis=0)
        return found

    @cached_property
    def is_idle(self) -> Flags:
        """Where a GPU is held and known to do nothing."""
        return (self.held_s > 0) & (self.idle_s >= 0.5 * self.held_s)

    @cached_property
    def active_s(self) -> Floats:
        """Held and observed, less idle and underused."""
        return np.clip(self.held_s - self.unobserved_s - self.idle_s - self.underused_s, 0, None)

    @cached_property
    def lost_s(self) -> Floats:
        """Idle, underused, active without tensor cores where both are measured, or for padding, and all of attempts that failed."""
        without = np.zeros_like(self.held_s)
        tensor = self.signals.get("tensor_activity")
        if tensor is not None:
            without = np.nan_to_num(np.clip(self.active_s - tensor * self.held_s, 0, None))
        lost = self.idle_s + self.underused_s + np.maximum(without, (self.padding or 0.0) * self.active_s)
        for attempt in self.attempts:
            if attempt.end_state in FAILED:
                steps = slice(attempt.first, attempt.after)
                lost[:, steps] = (self.held_s - self.unobserved_s)[:, steps]
        return np.minimum(lost, self.held_s - self.unobserved_s)

    @cached_property
    def activity(self) -> str:
        """The best signal of activity that was measured for half of the held time at least; any of them is `any activity`."""
        return next((name for name in ACTIVITY if self.has(name)), ACTIVITY[-1])

    def has(self, name: str) -> bool:
        """Whether a signal of GPUs, of nodes (`node …`) or sections was measured for half of the held time at least."""
        if name == "any activity":
            return self.has(self.activity)
        if name == "sections":
            return bool(self.sections)
        if name.startswith("node "):
            found = self.nodes.get(name.removeprefix("node "))
            return found is not None and bool(np.mean(~np.isnan(found)) > 0.5)
        values = self.signals.get(name)
        is_held = self.held_s > 0
        return values is not None and bool(is_held.any()) and bool(np.mean(~np.isnan(values[is_held])) > 0.5)

    def level(self, name: str) -> Floats:
        """A signal by step: the mean of GPUs that work, smoothed; NaN where it is not known or nothing works."""
        if name.startswith("node "):
            return self._smooth(self.nodes[name.removeprefix("node ")])
        values = self.signals.get(name)
        if values is None:
            return np.full(self.held_s.shape[1], np.nan)
        is_known = self.works & ~np.isnan(values)
        weight = np.where(is_known, self.held_s, 0).sum(0)
        total = np.where(is_known, values * self.held_s, 0).sum(0)
        return self._smooth(np.divide(total, weight, out=np.full(len(total), np.nan), where=weight > 0))

    def by_gpu(self, name: str, steps: Flags) -> Floats:
        """A signal by GPU: its mean over some steps while it is held; NaN where it is not known."""
        values = self.signals[name][:, steps]
        weight = np.where(np.isnan(values), 0.0, self.held_s[:, steps])
        total = np.nansum(values * weight, axis=1)
        means: Floats = np.divide(total, weight.sum(1), out=np.full(len(total), np.nan), where=weight.sum(1) > 0)
        return means

    def mean(self, name: str, steps: Flags) -> float:
        """The mean of a signal by step over some of them; NaN where it is not known."""
        values = self.level(name)[steps]
        return float(np.nanmean(values)) if np.any(~np.isnan(values)) else float("nan")

    def _smooth(self, values: Floats) -> Floats:
        """The mean over what is known around each step; not known stays so."""
        width = max(1, round(SMOOTH_S / self.step_s))
        kernel = np.ones(width)
        is_known = ~np.isnan(values)
        around = np.convolve(is_known.astype(np.float64), kernel, "full")[width // 2 :][: len(values)]
        total = np.convolve(np.where(is_known, values, 0.0), kernel, "full")[width // 2 :][: len(values)]
        return np.where(is_known, total / np.maximum(around, 1), np.nan)


ACTIVITY = ("sm_activity", "engine_activity", "gpu_util")
"""Signals of activity, the one that says most first; the others are optimistic."""
SERVING = ("serving", "inference")
INTERACTIVE = ("notebook", "interactive", "debug")
"""Purposes of jobs, as sources and rules of tagging say them."""
FAILED = ("failed", "node_fail", "out_of_memory")
"""End states of attempts whose work counts as lost where nothing says that it was kept."""
