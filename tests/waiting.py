"""Waiting for what a process, a server or a thread comes to."""

import time
from collections.abc import Callable
from typing import Final

LONGEST_S: Final = 240.0
"""For anything that is waited for: so long a slow machine with other things to do may take. A test that fails ends then."""


def wait_until(holds: Callable[[], object], describe: Callable[[], object] = lambda: "it did not come") -> None:
    """Until something holds; where it does not, `describe` says what is there instead."""
    end = time.monotonic() + LONGEST_S
    while not holds():
        assert time.monotonic() < end, describe()
        time.sleep(0.1)
