"""One live batch: what is checked before it is acknowledged, and how it becomes a row of the database and a batch again."""

import zlib
from dataclasses import dataclass

import pyarrow as pa

from loadfactor.base.errors import DamageError, InputError, no_such
from loadfactor.sources.base import Rows
from loadfactor.store.row_checks import validate_rows
from loadfactor.tables.charges import CHARGES
from loadfactor.tables.schema import TABLES

TABLE_SQL = """
CREATE TABLE batches (
  number INTEGER PRIMARY KEY, source TEXT NOT NULL, name TEXT NOT NULL, label TEXT NOT NULL,
  crc32 INTEGER NOT NULL, rows BLOB NOT NULL
)"""
INSERT_SQL = "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)"

LISTING = ("ec2", "gce", "kubernetes", "progress", "serving", "slurm")
"""Sources that list what there is, rather than watch it: of rows with one key the later one counts whole, its end too."""

Stored = tuple[int, str, str, str, int, bytes]
"""A row of the database: number, source, table, label, checksum of the others, Arrow IPC (lz4)."""


@dataclass(frozen=True)
class LiveBatch:
    """Rows of one table as a source delivered them: any columns of the table. `where` is their label in messages."""

    source: str
    table: str
    rows: pa.Table
    where: str


@dataclass(frozen=True)
class EncodedBatch:
    """A checked batch as bytes; its number comes with its commit."""

    source: str
    table: str
    where: str
    rows: bytes

    def numbered(self, number: int) -> Stored:
        """The row of the database."""
        crc = _checksum(number, self.source, self.table, self.where, self.rows)
        return number, self.source, self.table, self.where, crc, self.rows


def is_listing(source: str) -> bool:
    """Whether the live rows of a source are a list that it corrects.

    >>> is_listing("kubernetes:prod"), is_listing("dcgm:nodes")
    (True, False)
    """
    return source.partition(":")[0] in LISTING


def encode(batch: LiveBatch) -> EncodedBatch:
    """Check a batch and encode it. Raises InputError (SourceError with the row) for rows that no import would take."""
    if batch.table not in (known := [t.name for t in TABLES if t != CHARGES]):
        raise no_such("table", batch.table, known)
    if len(set(batch.rows.column_names)) < batch.rows.num_columns:
        raise InputError(f"{batch.where or batch.table}: a column of {batch.table} is there twice")
    validate_rows(Rows(batch.table, batch.rows, batch.where), 0)
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(batch.rows)
    source, where = (text.encode(errors="replace").decode() for text in (batch.source, batch.where))
    return EncodedBatch(source, batch.table, where, out.getvalue().to_pybytes())


def decode(row: Stored) -> tuple[int, LiveBatch]:
    """The number and the batch of a row. Raises DamageError when it is not what was stored."""
    number, source, table, where, crc, rows = row
    if _checksum(number, source, table, where, rows) != crc:
        raise DamageError(f"live batch {number} is not what was acknowledged")
    return number, LiveBatch(source, table, pa.ipc.open_stream(rows).read_all(), where)


def _checksum(number: int, source: str, table: str, where: str, rows: bytes) -> int:
    return zlib.crc32(rows, zlib.crc32(f"{number}\0{source}\0{table}\0{where}".encode()))
