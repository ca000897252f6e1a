"""The clock."""

import time

from loadfactor.base.units import MS_PER_S


def now_ms() -> int:
    """Now, in ms since 1970 UTC."""
    return int(time.time() * MS_PER_S)
