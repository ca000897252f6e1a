"""Tables that other systems read, written a day at a time: folders of Parquet or CSV, Delta Lake, Iceberg.

Every table has a column `date`, by which it is partitioned. A day is replaced in one step, so that a reader sees that of
before or the new one; in folders of plain files a new file and the removal of the old one are two steps.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from uuid import uuid4
from warnings import catch_warnings, filterwarnings

from loadfactor.base.errors import InputError
from loadfactor.base.paths import read_url
from loadfactor.store import disk

if TYPE_CHECKING:
    import pyarrow as pa

    from loadfactor.store.objects import Objects

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

    def __init__(self, objects: "Objects", folder: str, suffix: Literal["parquet", "csv"]) -> None:
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


class DeltaTable:
    """A table of Delta Lake; a day is one commit. New columns are added to its schema."""

    def __init__(self, place: str) -> None:
        """`place`: a folder, or a URL."""
        self._deltalake: Any = _import("deltalake")
        self._place = place
        self._options: dict[str, str] = {}
        if read_url(place) is not None:
            from loadfactor.store.objects import allows_plain_http

            self._options = {"AWS_ALLOW_HTTP": "true"} if allows_plain_http() else {}

    def replace(self, day: str, rows: "pa.Table") -> None:
        exists = self._deltalake.DeltaTable.is_deltatable(self._place, self._options)
        if not rows.num_rows and not exists:
            return
        which = {"predicate": f"date = '{day}'"} if exists else {}
        self._deltalake.write_deltalake(
            self._place,
            rows,
            mode="overwrite",
            schema_mode="merge" if exists else None,
            partition_by=["date"],
            storage_options=self._options,
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


def _import(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{module.partition('.')[0]} is not installed: `pip install 'loadfactor[lakehouse]'`, or take --format parquet"
        ) from error
