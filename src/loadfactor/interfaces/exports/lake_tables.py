"""Tables that other systems read, written a day at a time: folders of Parquet or CSV, Delta Lake, Iceberg.

Every table has a column `date`, by which it is partitioned. A day is replaced in one step, so that a reader sees that of
before or the new one; in folders of plain files a new file and the removal of the old one are two steps.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from uuid import uuid4
from warnings import catch_warnings, filterwarnings

from loadfactor.base.errors import InputError
from loadfactor.store import disk

if TYPE_CHECKING:
    import pyarrow as pa

TableFormat = Literal["parquet", "csv", "delta", "iceberg"]
NAMESPACE: Final = "loadfactor"
CATALOG: Final = "catalog.db"


class LakeTable(Protocol):
    """A table that is written."""

    def replace(self, day: str, rows: "pa.Table") -> None:
        """Put rows in place of what the table has of a day (2026-10-05); nothing in its place where there are no rows."""


class FolderTable:
    """Files of Parquet or CSV, one a day, in folders `date=2026-10-05`."""

    def __init__(self, folder: Path, suffix: Literal["parquet", "csv"]) -> None:
        self._folder, self._suffix = folder, suffix

    def replace(self, day: str, rows: "pa.Table") -> None:
        folder = self._folder / f"date={day}"
        before = list(folder.glob(f"*.{self._suffix}"))
        if rows.num_rows:
            disk.make_folder(folder)
            name = f"part-{uuid4().hex}.{self._suffix}"
            beside = folder / f".{name}.tmp"  # readers skip what begins with a point
            self._write(rows.drop_columns("date"), beside)
            disk.sync_file(beside)
            disk.rename(beside, folder / name)
        for path in (*before, *folder.glob(".*.tmp")):
            disk.remove(path)
        if folder.is_dir():
            disk.sync_folder(folder)
            if not rows.num_rows:
                shutil.rmtree(folder, ignore_errors=True)

    def _write(self, rows: "pa.Table", path: Path) -> None:
        if self._suffix == "csv":
            from pyarrow import csv

            csv.write_csv(rows, path)
        else:
            from pyarrow import parquet

            parquet.write_table(rows, path, compression="zstd")


class DeltaTable:
    """A table of Delta Lake; a day is one commit. New columns are added to its schema."""

    def __init__(self, folder: Path) -> None:
        self._write: Callable[..., None] = _import("deltalake").write_deltalake
        self._folder = folder

    def replace(self, day: str, rows: "pa.Table") -> None:
        exists = (self._folder / "_delta_log").is_dir()
        if not rows.num_rows and not exists:
            return
        which = {"predicate": f"date = '{day}'"} if exists else {}
        self._write(
            str(self._folder),
            rows,
            mode="overwrite",
            schema_mode="merge" if exists else None,
            partition_by=["date"],
            **which,
        )


class IcebergTable:
    """A table of Iceberg in a catalog of its own, a file of SQLite beside it; a day is one snapshot."""

    def __init__(self, folder: Path, name: str) -> None:
        sql = _import("pyiceberg.catalog.sql")
        folder.mkdir(parents=True, exist_ok=True)
        places = {"uri": f"sqlite:///{folder / CATALOG}", "warehouse": folder.as_uri()}
        self._catalog = sql.SqlCatalog(NAMESPACE, **places)
        self._catalog.create_namespace_if_not_exists(NAMESPACE)
        self._name = f"{NAMESPACE}.{name}"

    def replace(self, day: str, rows: "pa.Table") -> None:
        expressions = _import("pyiceberg.expressions")
        if not self._catalog.table_exists(self._name):
            if not rows.num_rows:
                return
            table = self._catalog.create_table(self._name, rows.schema)
            with table.update_spec() as spec:
                spec.add_identity("date")
            table.append(rows)
            return
        table = self._catalog.load_table(self._name)
        with table.update_schema() as schema:
            schema.union_by_name(rows.schema)
        with catch_warnings():
            filterwarnings("ignore", "Delete operation did not match any records")  # the day is new
            table.overwrite(rows, overwrite_filter=expressions.EqualTo("date", day))


def open_table(output: Path, name: str, kind: TableFormat) -> LakeTable:
    """The table of this name under a folder, in which that of the ledger lies itself. Raises InputError without its library."""
    folder = output if name == "ledger" else output / name
    if kind == "delta":
        return DeltaTable(folder)
    if kind == "iceberg":
        return IcebergTable(output, name)
    return FolderTable(folder, kind)


def _import(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{module.partition('.')[0]} is not installed: `pip install 'loadfactor[lakehouse]'`, or take --format parquet"
        ) from error
