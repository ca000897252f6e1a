"""The steps of GPUs, seen in the scrapes that the window holds, and the intervals that follow."""

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.gpu_scrapes.timeline import Timeline
from loadfactor.sources.parsing.steps import EXPORTER_STEP_S, is_within_reach, learn_step_of


class WindowSteps:
    """The step and the last scrape of each GPU."""

    def __init__(self, step_s: float | None) -> None:
        self._step_s = step_s
        self._step_ms: dict[int, int] = {}
        self._last_ms: dict[int, int] = {}

    def find_intervals(self, line: Timeline, times_ms: dict[int, NDArray[np.int64]]) -> None:
        """Steps and starts of the scrapes; `times_ms` are those known so far of each GPU, to see its step in."""
        steps: dict[bytes, int] = {}  # GPUs of one node are read at the same times
        begins = np.flatnonzero(line.is_first)
        for a, b in zip(begins.tolist(), [*begins[1:].tolist(), len(line.gpu)], strict=False):
            gpu = int(line.gpu[a])
            times = times_ms[gpu]
            if gpu not in self._step_ms or len(times) > 2:
                seen = times.tobytes()
                if seen not in steps:
                    steps[seen] = learn_step_of(times, self._step_s, EXPORTER_STEP_S)  # type: ignore[arg-type]
                self._step_ms[gpu] = steps[seen]
            at_ms, step_ms = line.at_ms[a:b], self._step_ms[gpu]
            before_ms = np.append(self._last_ms.get(gpu, -1), at_ms[:-1])
            near = (before_ms >= 0) & is_within_reach(at_ms, before_ms, step_ms)  # type: ignore[arg-type]
            line.start_ms[a:b] = np.where(near, before_ms, at_ms - step_ms)
            line.step_ms[a:b] = step_ms
            self._last_ms[gpu] = int(at_ms[-1])
