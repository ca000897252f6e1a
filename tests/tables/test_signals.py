"""The one rule for profiling counters that read 0 while the GPU worked."""

import pyarrow as pa
import pytest

from loadfactor.tables.schema import IDLE_BELOW
from loadfactor.tables.signals import find_failed_profiling


@pytest.mark.parametrize(
    ("busy", "sm", "engine", "tensor", "at_work", "failed"),
    [
        (0.9, 0.0, 0.0, 0.0, False, True),
        (IDLE_BELOW, None, 0.0, None, False, True),
        (0.049, 0.0, 0.0, 0.0, False, False),  # idle: zeros are what an idle GPU measures
        (None, 0.0, 0.0, 0.0, True, True),  # its power says that it worked
        (0.9, 0.0, 0.2, 0.0, False, False),  # not all are 0
        (0.9, None, None, 0.0, False, False),  # work without tensor cores has tensor activity 0
        (0.9, None, None, None, False, False),
    ],
)
def test_zeros_of_a_working_gpu_are_no_measurement(
    busy: float | None, sm: float | None, engine: float | None, tensor: float | None, at_work: bool, failed: bool
) -> None:
    """SM or engine was measured, everything measured is 0, and GPU_UTIL or the caller says that the GPU worked."""
    values = {"busy_share": busy, "sm_active_share": sm, "engine_active_share": engine, "tensor_active_share": tensor}
    columns = {name: pa.array([value], pa.float64()) for name, value in values.items()}
    assert find_failed_profiling(columns, pa.array([at_work])).to_pylist() == [failed]
