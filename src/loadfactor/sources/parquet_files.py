"""Parquet from outside, opened only if what its footer claims can be true of a file of its size.

Texts stay in their dictionaries until they are measured: one of them may stand for gigabytes.
"""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import (
    MOST_INPUT_BYTES,
    MOST_INPUT_ROWS,
    MOST_TEXT_BYTES,
    MOST_UNPACKED_TIMES,
)
from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_MIB


def open_parquet(source: pa.NativeFile, label: str) -> pq.ParquetFile:
    """Open a Parquet file for reading. Raises SourceError if it unpacks to too much, and what Arrow raises of damage."""
    metadata = pq.read_metadata(source)
    _check_claims(label, metadata, source.size())
    columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    texts = [column.path for column in columns if column.logical_type.type == "STRING" and "." not in column.path]
    # Buffered and not read ahead: memory stays flat where a writer put everything into one row group.
    return pq.ParquetFile(
        source, metadata=metadata, buffer_size=BYTES_PER_MIB, pre_buffer=False, memory_map=False, read_dictionary=texts
    )


def read_whole(source: pa.NativeFile, label: str, columns: list[str] | None) -> pa.Table:
    """Read some columns of a Parquet file at once, or all. Raises SourceError as `open_parquet`, and if they are too large."""
    with open_parquet(source, label) as file:
        if file.metadata.num_rows > MOST_INPUT_ROWS:
            raise SourceError(f"{label} has {file.metadata.num_rows:,} rows, and at most {MOST_INPUT_ROWS:,} are read")
        table = file.read(columns)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if sum(map(measure_texts, column.chunks)) > MOST_INPUT_BYTES:
            raise SourceError(f"{label}: texts of {name} are more than {MOST_INPUT_BYTES / BYTES_PER_GIB:g} GiB")
    return pa.table([unpack_texts(column) for column in table.columns], names=table.column_names)


def check_texts(label: str, batch: pa.RecordBatch, row: int) -> None:
    """Raise SourceError if the texts of a batch are longer than names can be; `row` is the number of its first row."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if measure_texts(column) > MOST_TEXT_BYTES:
            raise SourceError(
                f"{label}: rows {row:,} to {row + len(column) - 1:,}: texts of {name} are more than "
                f"{MOST_TEXT_BYTES // BYTES_PER_MIB:,} MiB; check what stands there"
            )


def measure_texts(column: pa.Array) -> int:
    """Measure the bytes that texts in a dictionary unpack to; 0 of any other column."""
    if not pa.types.is_dictionary(column.type) or not pa.types.is_string(column.type.value_type):
        return 0
    if not len(column.dictionary):
        return 0
    sizes = pc.binary_length(column.dictionary).take(column.indices)
    return int(pc.sum(pc.cast(sizes, pa.int64())).as_py() or 0)


def unpack_texts(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Unpack texts that are in a dictionary; any other column stays as it is."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _check_claims(label: str, metadata: pq.FileMetaData, file_bytes: int) -> None:
    """Raise SourceError if a column, all of them or the number of rows is far beyond what is stored."""
    unpacked_bytes = 0
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            unpacked_bytes += chunk.total_uncompressed_size
            if chunk.total_uncompressed_size > max(MOST_TEXT_BYTES, MOST_UNPACKED_TIMES * chunk.total_compressed_size):
                raise SourceError(
                    f"{label}: {chunk.path_in_schema} unpacks to more than {MOST_UNPACKED_TIMES} times its size, which no table"
                    " does; check that it is the right file"
                )
    if unpacked_bytes > max(MOST_INPUT_BYTES, MOST_UNPACKED_TIMES * file_bytes):
        raise SourceError(
            f"{label} unpacks to more than {MOST_UNPACKED_TIMES} times its size, which no table does;"
            " check that it is the right file"
        )
    if metadata.num_rows > max(MOST_INPUT_ROWS, MOST_UNPACKED_TIMES * file_bytes):
        raise SourceError(
            f"{label} claims {metadata.num_rows:,} rows in {file_bytes:,} bytes, which no table has;"
            " check that it is the right file"
        )
