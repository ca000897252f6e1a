"""The clock: what time it is, and when it was set."""

import time
from datetime import UTC, datetime
from typing import Final, overload

from loadfactor.base.units import MS_PER_MIN, MS_PER_S

LARGEST_SKEW_MS: Final = MS_PER_MIN
"""What is further ahead of the clock was written while the clock was ahead."""
_LEAST_STEP_S: Final = 5.0


def now_ms() -> int:
    """Now, in ms since 1970 UTC."""
    return int(time.time() * MS_PER_S)


@overload
def format_utc(at_ms: int) -> str: ...


@overload
def format_utc(at_ms: None) -> None: ...


def format_utc(at_ms: int | None) -> str | None:
    """Format ms since 1970 UTC as ISO 8601; None stays None.

    >>> format_utc(1_772_409_600_000)
    '2026-03-02T00:00:00.000Z'
    """
    if at_ms is None:
        return None
    at = datetime.fromtimestamp(at_ms / MS_PER_S, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ClockWatch:
    """Sees by the monotonic clock when the clock is set. A machine that slept looks like a clock that was set forward."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def read_step(self) -> float:
        """By how many seconds the clock was set since the last call; 0 where only small amounts were made good."""
        before, self._offset_s = self._offset_s, time.time() - time.monotonic()
        step_s = self._offset_s - before
        return step_s if abs(step_s) >= _LEAST_STEP_S else 0.0
