"""The profiled activity signals, and the one rule that says when the profiler has failed.

DCGM's profiling counters read 0 while another tool holds them. A GPU that works cannot have all of them at 0, so such zeros are
no measurement: decoders and the checks of an import both ask here.
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.tables.schema import IDLE_BELOW

PROFILED: Final = ("sm_active_share", "engine_active_share", "tensor_active_share")
"""Measurements of the profiler that cannot all be 0 on a working GPU."""


def find_failed_profiling(columns: Mapping[str, Any], at_work: pa.Array | None = None) -> pa.Array:
    """The samples (boolean, no nulls) whose profiled signals, SM or engine among them, all read 0 while the GPU worked.

    It worked where GPU_UTIL is at or above the idle threshold, or where the caller knows it otherwise (`at_work`, boolean).
    `columns` holds `busy_share` and PROFILED as arrays of shares, null where not measured.
    """
    working = pc.fill_null(pc.greater_equal(columns["busy_share"], IDLE_BELOW), False)
    if at_work is not None:
        working = pc.or_(working, at_work)
    measured = pc.or_(pc.is_valid(columns["sm_active_share"]), pc.is_valid(columns["engine_active_share"]))
    failed = pc.and_(working, measured)
    for name in PROFILED:
        failed = pc.and_(failed, pc.fill_null(pc.equal(columns[name], 0), True))
    return failed
