"""Columns of stored samples, in a file and before they are sorted; `sample_layout` says what they mean."""

from typing import Final

import pyarrow as pa

from loadfactor.tables.columns import arrow_type
from loadfactor.tables.schema import MEASUREMENTS, SAMPLES

_MEASURED: Final = {name: arrow_type(SAMPLES.column(name).kind) for name in MEASUREMENTS}

ON_DISK: Final = pa.schema(
    {
        "device_id": pa.dictionary(pa.int32(), pa.string()),
        "hour_utc": pa.int64(),  # the hour the row lies in
        "to_utc": pa.int64(),  # end of the row: the end of its hour, or the instant the sample was taken
        "late_ms": pa.int64(),  # from there to the instant the sample was taken
        "reach_ms": pa.int64(),  # from the start, as given, or from the previous sample, to that instant; null: neither is known
        "given": pa.bool_(),  # whether the start was given
        "step_ms": pa.int64(),  # nominal step, as the importer stated it
        "lone_step_ms": pa.int64(),  # what the source usually does, for want of anything better
        "measured_mask": pa.int64(),
        **_MEASURED,
        "source": pa.dictionary(pa.int32(), pa.string()),
        "import_no": pa.int32(),  # the import that brought it; null: several imports speak of this sample
    }
)
"""Columns of a file of samples. Rows are in order of device_id, then of the sample's instant, its source, and to_utc."""

AS_TAKEN: Final = pa.schema(
    {
        "device_id": pa.dictionary(pa.int32(), pa.string()),
        "source": pa.dictionary(pa.int32(), pa.string()),
        "began_utc": pa.int64(),
        "sampled_utc": pa.int64(),
        "step_ms": pa.int64(),
        "lone_step_ms": pa.int64(),
        "measured_mask": pa.int64(),
        **_MEASURED,
        "import_no": pa.int32(),
        "seq": pa.int64(),  # number of the row within its import
    }
)
"""Columns of samples as they were taken, before they are sorted, merged and cut."""
