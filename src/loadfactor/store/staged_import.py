"""Staging of an import: its rows wait in a folder of their own until all are validated, and leave no trace when it dies."""

import shutil
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from loadfactor.base.units import MS_PER_S
from loadfactor.sources.base import Gap, Rows
from loadfactor.store.row_checks import validate_rows
from loadfactor.store.samples_taken import take_samples
from loadfactor.store.staged_samples import ROWS_AT_ONCE, StagedSamples
from loadfactor.tables.schema import SAMPLES

_WRITTEN_ROWS: Final = 122_880  # of a small table, before they are written out


class StagedImport:
    """The staged rows of one import. Use as a context: leaving it removes the folder.

    `rows` counts the rows of each table, `gaps` what was not read as a measurement by file and reason; `inferred` are the tables
    of which rows were only inferred. Small tables are Parquet with the columns `import_no` and `seq` added, the number of a row
    within its import and table.
    """

    def __init__(
        self,
        folder: Path,
        source: str,
        step_s: float | None,
        lone_step_s: float | None,
        import_no: int,
        rows_at_once: int = ROWS_AT_ONCE,
        first_rows: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """`first_rows`: of tables that have rows of this import already, the number with which theirs go on."""
        self.folder, self.source, self.import_no = folder, source, import_no
        self.rows: dict[str, int] = defaultdict(int)
        self._first_rows = first_rows
        self.gaps: dict[tuple[str, str], int] = defaultdict(int)
        self.inferred: set[str] = set()
        steps = {
            name: None if s is None else round(s * MS_PER_S)
            for name, s in (("step_ms", step_s), ("lone_step_ms", lone_step_s))
        }
        self._samples = StagedSamples(folder, steps | {"import_no": import_no}, rows_at_once)
        self._files: dict[str, list[tuple[int, str, int]]] = defaultdict(list)  # by table: first seq, label, first row
        self._rows_of: dict[tuple[str, str], int] = defaultdict(int)  # by label and table
        self._buffers: dict[str, list[pa.Table]] = defaultdict(list)
        self._writers: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> "StagedImport":
        self.folder.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def take(self, item: Rows | Gap) -> None:
        """Validate one batch, or count one gap. Raises SourceError naming file, row, column and value that cannot be true."""
        if isinstance(item, Gap):
            self.gaps[item.where, item.what] += item.count
            return
        if item.inferred:
            self.inferred.add(item.table)
        first = self._first_rows.get(item.table, 0) + self.rows[item.table]
        known = self._rows_of[item.where, item.table]
        rows = validate_rows(item, known)
        if not known or self._files[item.table][-1][1] != item.where:
            self._files[item.table].append((first, item.where, known))
        self.rows[item.table] += rows.num_rows
        self._rows_of[item.where, item.table] += rows.num_rows
        if item.table == SAMPLES.name:
            rows = take_samples(rows, self.source, lambda what, count: self._count(item.where, what, count))
        rows = rows.append_column("seq", pa.array(np.arange(first, first + rows.num_rows)))
        if item.table == SAMPLES.name:
            self._samples.keep(rows)
        else:
            self._keep(item.table, rows)

    def finish(self) -> dict[str, Path]:
        """The small tables, each in a file, by name."""
        for name in list(self._buffers):
            self._write(name)
        for writer in self._writers.values():
            writer.close()
        paths = {name: self._path(name) for name in self._writers}
        self._writers = {}
        return paths

    def cells(self) -> Iterator[tuple[int, pa.Table]]:
        """The samples (AS_TAKEN) by day and device range, in that order, each once; a day is a number of days since 1970."""
        return self._samples.cells()

    def name_row(self, table: str, seq: int) -> str:
        """How messages name a row of this import: its file, and its number in that file from 1."""
        files = self._files[table]
        first, where, known = files[bisect_right(files, seq, key=lambda file: file[0]) - 1]
        return f"{where}: row {known + seq - first + 1}"

    def list_files(self, table: str) -> list[tuple[int, str]]:
        """The number of the first row of each file of a table, and its name, in order."""
        return [(first, where) for first, where, _ in self._files[table]]

    def _count(self, where: str, what: str, count: int) -> None:
        self.gaps[where, what] += count

    def _keep(self, table: str, rows: pa.Table) -> None:
        numbers = pa.array(np.full(rows.num_rows, self.import_no, dtype=np.int32))
        self._buffers[table].append(rows.add_column(rows.num_columns - 1, "import_no", numbers))
        if sum(part.num_rows for part in self._buffers[table]) >= _WRITTEN_ROWS:
            self._write(table)

    def _write(self, table: str) -> None:
        rows = pa.concat_tables(self._buffers.pop(table)).combine_chunks()
        if table not in self._writers:
            self._writers[table] = pq.ParquetWriter(self._path(table), rows.schema, compression="lz4")
        self._writers[table].write_table(rows)

    def _path(self, table: str) -> Path:
        return self.folder / f"{table}.parquet"
