"""Writing a file of samples: encodings that are small and that DuckDB decodes fast, and the store's description in the footer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from loadfactor.store import disk
from loadfactor.store.sample_columns import ON_DISK

ROW_GROUP_ROWS: Final = 122_880
"""Rows that DuckDB decodes at a time on one thread."""

_BY_DIFFERENCE: Final = {"to_utc": "DELTA_BINARY_PACKED"}
"""Instants differ from row to row by the step: a dictionary of them overflows, differences take a byte."""
_SEARCHED: Final = ["device_id", "hour_utc", "to_utc"]
"""Columns whose least and greatest value let a reader pass over a row group."""


def write_samples(rows: pa.Table, path: Path, footer: Mapping[str, str]) -> None:
    """Write rows (ON_DISK) as Parquet with these texts in its footer, and make them survive a power loss."""
    with pq.ParquetWriter(
        path,
        ON_DISK,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in ON_DISK.names if name not in _BY_DIFFERENCE],
        column_encoding=dict(_BY_DIFFERENCE),
        write_statistics=_SEARCHED,
        max_rows_per_page=ROW_GROUP_ROWS,  # a page for each of a few thousand rows costs DuckDB a tenth of its time
    ) as writer:
        writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        writer.add_key_value_metadata(dict(footer))
    disk.sync_file(path)
