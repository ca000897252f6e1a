"""The peak memory of this process, as Linux keeps it; it can begin anew, so that each phase of a benchmark has its own."""

import re
from pathlib import Path

from loadfactor.base.units import BYTES_PER_KIB

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_PEAK = "5"
"""What proc(5) says to write there so that the peak is what is resident now."""


def begin_peak() -> None:
    """Forget the peak so far."""
    _CLEAR.write_text(_PEAK, encoding="ascii")


def find_peak_bytes() -> int:
    """Bytes resident at most since the process or `begin_peak` began. What getrusage tells can be the peak of the parent."""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", _STATUS.read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise OSError(f"{_STATUS} says no VmHWM; peaks can be measured on Linux alone")
    return int(found[1]) * BYTES_PER_KIB
