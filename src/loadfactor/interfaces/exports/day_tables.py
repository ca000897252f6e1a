"""Tables that other systems read, written a day at a time: folders of Parquet or CSV.

Every table has a column `date`, by which it is partitioned. A new file of a day and the removal of the old one are two steps.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, Protocol
from uuid import uuid4

from loadfactor.store import disk

if TYPE_CHECKING:
    import pyarrow as pa

    from loadfactor.store.objects import Objects

TableFormat = Literal["parquet", "csv"]


class DayTable(Protocol):
    """A table that is written."""

    def replace(self, day: str, rows: "pa.Table") -> None:
        """Put rows in place of what the table has of a day (2026-10-05); nothing in its place where there are no rows."""


class FolderTable:
    """Files of Parquet or CSV, one a day, in folders `date=2026-10-05`."""

    def __init__(self, folder: Path, suffix: TableFormat) -> None:
        self._folder, self._suffix = folder, suffix

    def replace(self, day: str, rows: "pa.Table") -> None:
        folder = self._folder / f"date={day}"
        before = list(folder.glob(f"*.{self._suffix}"))
        if rows.num_rows:
            disk.make_folder(folder)
            name = f"part-{uuid4().hex}.{self._suffix}"
            beside = folder / f".{name}.tmp"  # readers skip what begins with a point
            _write_part(rows.drop_columns("date"), beside)
            disk.sync_file(beside)
            disk.rename(beside, folder / name)
        for path in (*before, *folder.glob(".*.tmp")):
            disk.remove(path)
        if folder.is_dir():
            disk.sync_folder(folder)
            if not rows.num_rows:
                shutil.rmtree(folder, ignore_errors=True)


class ObjectsTable:
    """The same in a bucket, an object a day."""

    def __init__(self, objects: "Objects", folder: str, suffix: TableFormat) -> None:
        self._objects, self._folder, self._suffix = objects, folder, suffix

    def replace(self, day: str, rows: "pa.Table") -> None:
        folder = f"{self._folder}date={day}"
        before = [name for name, _ in self._objects.list(folder)]
        if rows.num_rows:
            with TemporaryDirectory(prefix="loadfactor-export-") as there:
                part = Path(there) / f"part-{uuid4().hex}.{self._suffix}"
                _write_part(rows.drop_columns("date"), part)
                self._objects.put(f"{folder}/{part.name}", part)
        for name in before:
            self._objects.remove(name)


def _write_part(rows: "pa.Table", path: Path) -> None:
    """Write rows in the format that the path contains, before what it ends with while it is not whole."""
    if ".csv" in path.suffixes:
        from pyarrow import csv

        csv.write_csv(rows, path)
    else:
        from pyarrow import parquet

        parquet.write_table(rows, path, compression="zstd")
