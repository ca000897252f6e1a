"""Times of work on a device: events of the GPU, or the clock of the host where there is none."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

MOST_CALLS, FEWEST_CALLS = 200, 3
SHORT_S = 2e-3


def now_ms() -> int:
    """Epoch milliseconds, as telemetry has them."""
    return int(time.time() * 1000)


def wait(device: torch.device) -> None:
    """Until the device has done all that was queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Stopwatch:
    """Marks between pieces of work; `seconds` is the time between one mark and the next."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[Any] = []

    def mark(self) -> None:
        """Here."""
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Waits for the device."""
        wait(self._device)
        pairs = zip(self._marks, self._marks[1:], strict=False)
        if self._device.type == "cuda":
            return [a.elapsed_time(b) / 1000 for a, b in pairs]
        return [b - a for a, b in pairs]


def time_calls(device: torch.device, call: Callable[[], object], window_s: float) -> dict[str, Any]:
    """Seconds of a call, the median of as many as fit the window: `seconds`, `calls` and `at_ms`, when it was."""
    for _ in range(2):
        call()
    wait(device)
    start = time.perf_counter()
    call()
    wait(device)
    one_s = max(time.perf_counter() - start, 1e-7)
    together = max(int(SHORT_S / one_s), 1)  # marks between short calls would be timed with them
    marks = int(min(max(window_s / one_s / together, FEWEST_CALLS), MOST_CALLS))
    watch, from_ms = Stopwatch(device), now_ms()
    watch.mark()
    for _ in range(marks):
        for _ in range(together):
            call()
        watch.mark()
    seconds = statistics.median(watch.seconds()) / together
    return {"seconds": seconds, "calls": marks * together, "at_ms": [from_ms, now_ms()]}


def keep_busy(device: torch.device, call: Callable[[], object], window_s: float) -> dict[str, Any]:
    """Repeat a call for so long; `calls`, `seconds` of all together, and `at_ms`, when it was."""
    call()
    wait(device)
    calls, start, from_ms = 0, time.perf_counter(), now_ms()
    while time.perf_counter() - start < window_s:
        for _ in range(4):
            call()
        calls += 4
        wait(device)
    return {"calls": calls, "seconds": time.perf_counter() - start, "at_ms": [from_ms, now_ms()]}
