"""Rows of a table as rules of tagging make them, in a file of their own: a portion at a time, so that memory does not grow."""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loadfactor.store.entry import TAGGED, ChangeRows
from loadfactor.store.sample_files import read
from loadfactor.store.session import Session

ROWS_AT_ONCE: Final = 250_000


def tag_relation(session: Session, name: str, rows: str, tag: ChangeRows | None, path: Path) -> str:
    """SQL: rows of a table as rules tag them, written to a new file; as they are where no rule can speak of them."""
    if tag is None or name not in TAGGED:
        return rows
    write_tagged(session, name, rows, tag, path)
    return read([path])


def write_tagged(session: Session, name: str, rows: str, tag: ChangeRows, path: Path) -> int:
    """Write rows of a table, SQL, to a new file as rules tag them; how many of them that changes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    reader = session.raw.execute(f"SELECT * FROM {rows}").to_arrow_reader(ROWS_AT_ONCE)
    changed = 0
    with pq.ParquetWriter(path, reader.schema, compression="lz4") as writer:
        for batch in reader:
            before = pa.Table.from_batches([batch])
            after = tag(name, before)
            changed += _count_changed(before, after)
            writer.write_table(after)
    return changed


def _count_changed(before: pa.Table, after: pa.Table) -> int:
    """How many rows differ."""
    different = pa.scalar(False)
    for column in before.column_names:
        old, new = before[column], after[column]
        if old is not new and not old.equals(new):
            apart = pc.fill_null(pc.not_equal(old, new), True)
            both_null = pc.and_(pc.is_null(old), pc.is_null(new))
            different = pc.or_(different, pc.and_not(apart, both_null))
    return 0 if isinstance(different, pa.Scalar) else pc.sum(different).as_py() or 0
