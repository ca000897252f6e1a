"""Validated samples as the store takes them: energy as power, failed profiling dropped, and the mask of what was measured."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.units import MS_PER_S
from loadfactor.tables.schema import MEASUREMENTS, SAMPLES
from loadfactor.tables.signals import PROFILED, find_failed_profiling

CountGap = Callable[[str, int], None]
"""Told what was not taken as a measurement, and how many times."""


def take_samples(rows: pa.Table, source: str, count_gap: CountGap) -> pa.Table:
    """A validated batch of samples with the columns of AS_TAKEN that its rows decide; `source` fills in for an empty source.

    Each rule looks closely only at a batch that has something it may concern.
    """
    columns = {name: rows[name] for name in MEASUREMENTS}
    if _has_any(rows["energy_j"]):
        columns["power_w"] = _power_from_energy(rows, count_gap)
    total = columns["mem_total_bytes"]
    if _has_any(total) and pc.min(total).as_py() <= 0:  # a device without memory was not asked
        columns["mem_total_bytes"] = pc.if_else(pc.greater(total, 0), total, None)
    if _has_any(columns["busy_share"]) and any(_has_any(columns[name]) for name in PROFILED):
        failed = find_failed_profiling(columns)
        count = pc.sum(failed).as_py() or 0
        if count:
            count_gap("profiling counters read 0 while GPU_UTIL was high: not counted as idle", count)
            for name in PROFILED:
                columns[name] = pc.if_else(failed, pa.scalar(None, SAMPLES.schema.field(name).type), columns[name])
    return pa.table(
        {
            "device_id": rows["device_id"],
            "source": pc.fill_null(rows["source"], source) if rows["source"].null_count else rows["source"],
            "began_utc": rows["from_utc"],
            "sampled_utc": rows["to_utc"],
            "measured_mask": _mask(columns, rows.num_rows),
            **columns,
        }
    )


def _power_from_energy(rows: pa.Table, count_gap: CountGap) -> pa.ChunkedArray:
    duration_s = pc.divide(pc.cast(pc.subtract(rows["to_utc"], rows["from_utc"]), pa.float64()), float(MS_PER_S))
    from_energy = pc.if_else(pc.greater(duration_s, 0), pc.divide(rows["energy_j"], duration_s), None)
    power = pc.coalesce(rows["power_w"], from_energy)
    lost = pc.sum(pc.and_(pc.is_valid(rows["energy_j"]), pc.is_null(power))).as_py() or 0
    if lost:
        count_gap("energy without the start of its interval says nothing of power", lost)
    return power


def _mask(columns: dict[str, pa.ChunkedArray], rows: int) -> pa.Array:
    """Bit i: MEASUREMENTS[i] was measured."""
    always = sum(1 << bit for bit, name in enumerate(MEASUREMENTS) if columns[name].null_count == 0)
    mask = np.full(rows, always, dtype=np.int64)
    for bit, name in enumerate(MEASUREMENTS):
        if 0 < columns[name].null_count < rows:
            mask |= np.asarray(columns[name].is_valid()).astype(np.int64) << bit
    return pa.array(mask)


def _has_any(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count < len(column))
