"""Staging of an import: its rows wait in a folder of their own until all are validated, and leave no trace when it dies.

Samples of one import waiting to be normalized: by UTC day, in memory while they are few, else in files of the staging folder.

Memory follows `rows_at_once` and not the size of a day: a day with more rows is divided into ranges of devices, of about equal
rows, in one more pass over its file. A device is never divided.
"""

import shutil
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import MOST_GPUS, shorten
from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.sources.base import Gap, Rows
from loadfactor.store.normalize import AS_TAKEN
from loadfactor.store.row_checks import validate_rows
from loadfactor.tables.schema import DEVICES, MEASUREMENTS, SAMPLES
from loadfactor.tables.signals import PROFILED, find_failed_profiling

ROWS_AT_ONCE: Final = 3_000_000
"""Samples that are normalized together; each takes up to about 400 bytes of memory while it is. More of one device on one day,
one every 29 ms, are rows repeated without end: they are refused."""
BUFFERED_ROWS: Final = 500_000
"""Samples that wait in memory once an import has more than are normalized together; the fullest day is written out first."""

_NUMBERED: Final = ("device_id", "source")
_FAST: Final = pa.ipc.IpcWriteOptions(compression="lz4")

Codes = npt.NDArray[np.int32]


class StagedSamples:
    """Samples by UTC day. `constants` are the columns of AS_TAKEN that are the same in every row of the import."""

    def __init__(self, folder: Path, constants: dict[str, int | None], rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._folder, self._constants, self._rows_at_once = folder, constants, rows_at_once
        self._columns = [name for name in AS_TAKEN.names if name not in constants]
        self._codes: dict[str, dict[str, int]] = {name: {} for name in _NUMBERED}  # in order of first sight
        self._rows: dict[int, int] = defaultdict(int)
        self._buffers: dict[int, list[pa.Table]] = defaultdict(list)
        self._buffered: dict[int, int] = defaultdict(int)
        self._spilled: set[int] = set()

    def keep(self, rows: pa.Table) -> None:
        """Let rows wait that have all columns of AS_TAKEN but the constants; a sample at midnight belongs to the day before."""
        for name in _NUMBERED:
            rows = rows.set_column(rows.column_names.index(name), name, self._number(name, rows[name]))
        for day, part in _split(rows.select(self._columns), (rows["sampled_utc"].to_numpy() - 1) // MS_PER_DAY):
            if part.num_rows < rows.num_rows // 2:  # a slice would keep the whole batch in memory
                part = part.take(pa.array(np.arange(part.num_rows)))
            self._buffers[day].append(part)
            self._buffered[day] += part.num_rows
            self._rows[day] += part.num_rows
        if sum(self._rows.values()) > self._rows_at_once:  # fewer take no more memory than settling them will
            while sum(self._buffered.values()) > min(BUFFERED_ROWS, self._rows_at_once):
                self._spill(max(self._buffered, key=lambda d: self._buffered[d]))

    def cells(self) -> Iterator[tuple[int, pa.Table]]:
        """Day (days since 1970) and its samples (AS_TAKEN), in order of day, then of device range. What was yielded is gone.

        Let go of a table, and of what was made of it, before asking for the next one, or both are in memory.
        """
        names = {name: _sorted_names(codes) for name, codes in self._codes.items()}
        for day, rows in sorted(self._rows.items()):
            if rows <= self._rows_at_once:
                yield day, self._join(self._path(day), self._buffers.pop(day, []), names)
            else:
                for path in self._divide(day, rows, names["device_id"][1]):
                    yield day, self._join(path, [], names)

    def _number(self, name: str, column: pa.ChunkedArray) -> pa.Array:
        """Texts as numbers in order of first sight."""
        codes = self._codes[name]
        found = column.combine_chunks()
        if not pa.types.is_dictionary(found.type):
            found = found.dictionary_encode()
        own = [codes.setdefault(text, len(codes)) for text in found.dictionary.to_pylist()]
        return pa.array(np.array(own, dtype=np.int32)[found.indices.to_numpy()])

    def _spill(self, day: int) -> None:
        _append(self._path(day), pa.concat_tables(self._buffers.pop(day)))
        del self._buffered[day]

    def _path(self, day: int) -> Path:
        return self._folder / f"samples-{day}.arrow"

    def _divide(self, day: int, rows: int, rank: Codes) -> list[Path]:
        """The rows of a day in one file for each range of devices, in order; ranges have about equal rows."""
        counts = np.zeros(len(rank), dtype=np.int64)
        waiting = self._buffers.pop(day, [])
        for table in (*_read(self._path(day), "device_id"), *waiting):
            counts += np.bincount(rank[table["device_id"].to_numpy()], minlength=len(rank))
        if counts.max() > ROWS_AT_ONCE:
            device = _sorted_names(self._codes["device_id"])[0][int(counts.argmax())]
            raise SourceError(
                f"{int(counts.max()):,} samples of device {shorten(str(device))} on one day, more than {ROWS_AT_ONCE:,}; check"
                " whether rows are repeated"
            )
        ranges = -(-rows // self._rows_at_once)
        range_of = ((np.cumsum(counts) - counts) * ranges // rows)[rank]
        paths = [self._folder / f"samples-{day}-{n}.arrow" for n in range(ranges)]
        for table in chain(_read(self._path(day)), waiting):
            for n, part in _split(table, range_of[table["device_id"].to_numpy()]):
                _append(paths[n], part)
        self._path(day).unlink(missing_ok=True)
        return [path for path in paths if path.exists()]

    def _join(self, path: Path, waiting: list[pa.Table], names: dict[str, tuple[pa.Array, Codes]]) -> pa.Table:
        """The rows of a file, which is removed, and those that wait in memory. Column by column: nothing is there twice."""
        columns: dict[str, pa.Array] = {}
        for name in ("sampled_utc", *AS_TAKEN.names):
            needed = AS_TAKEN.field(name).type
            if name in self._constants:
                columns[name] = pa.repeat(pa.scalar(self._constants[name], needed), len(columns["sampled_utc"]))
            elif name not in columns:
                tables = (*_read(path, name), *waiting)
                chunks = [chunk for table in tables for chunk in table[name].chunks]
                waiting = [table.drop_columns(name) for table in waiting]
                columns[name] = _concatenate(chunks, needed, names.get(name))
        path.unlink(missing_ok=True)
        return pa.table(columns).select(AS_TAKEN.names).cast(AS_TAKEN)


def _concatenate(chunks: list[pa.Array], needed: pa.DataType, names: tuple[pa.Array, Codes] | None) -> pa.Array:
    """A column in one piece; where it has names, the chunks are their numbers."""
    if names is not None:
        texts, rank = names
        return pa.DictionaryArray.from_arrays(pa.array(rank[np.concatenate([c.to_numpy() for c in chunks])]), texts)
    if all(chunk.null_count == len(chunk) for chunk in chunks):
        return pa.nulls(sum(len(chunk) for chunk in chunks), needed)
    return pa.concat_arrays([chunk.cast(needed) for chunk in chunks])


def _split(rows: pa.Table, numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.Table]]:
    if not len(numbers):
        return
    if not np.all(numbers[1:] >= numbers[:-1]):
        order = np.argsort(numbers, kind="stable")
        rows, numbers = rows.take(pa.array(order)), numbers[order]
    edges = np.append(np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])), len(numbers))
    for start, end in pairwise(edges.tolist()):
        yield int(numbers[start]), rows.slice(start, end - start)


def _sorted_names(codes: dict[str, int]) -> tuple[pa.Array, Codes]:
    """The texts in order, and the place of each number in it."""
    texts = pa.array(list(codes), pa.string())
    order = np.asarray(pc.array_sort_indices(texts))
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return texts.take(pa.array(order)), rank


def _append(path: Path, table: pa.Table) -> None:
    """Add a table to a file of Arrow streams, one behind the other; a column without any value takes no place."""
    for i, name in enumerate(table.column_names):
        if table[name].null_count == table.num_rows:
            table = table.set_column(i, name, pa.nulls(table.num_rows))
    with pa.OSFile(str(path), "ab") as file, pa.ipc.new_stream(file, table.schema, options=_FAST) as stream:
        stream.write_table(table)


def _read(path: Path, only: str | None = None) -> Iterator[pa.Table]:
    """The tables that a file of Arrow streams holds, or one of their columns."""
    if not path.exists():
        return
    with pa.memory_map(str(path)) as file:
        while (start := file.tell()) < file.size():
            options = None
            if only is not None:
                with pa.ipc.open_stream(file) as stream:
                    options = pa.ipc.IpcReadOptions(included_fields=[stream.schema.get_field_index(only)])
                file.seek(start)
            with pa.ipc.open_stream(file, options=options) as stream:
                yield stream.read_all()


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
    if _has_any(total) and pc.min(total).as_py() <= 0:  # a device without memory was not requested
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
    always = sum(1 << bit for bit, name in enumerate(MEASUREMENTS) if columns[name].null_count == 0)
    mask = np.full(rows, always, dtype=np.int64)
    for bit, name in enumerate(MEASUREMENTS):
        if 0 < columns[name].null_count < rows:
            mask |= np.asarray(columns[name].is_valid()).astype(np.int64) << bit
    return pa.array(mask)


def _has_any(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count < len(column))


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
        leaves_out: bool = False,
    ) -> None:
        """`first_rows`: of tables that have rows of this import already, the number with which theirs go on.

        `leaves_out`: measurements that cannot be true are left out and counted, and refuse nothing.
        """
        self._leaves_out = leaves_out
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
        rows = validate_rows(item, known, self.take if self._leaves_out else None)
        if not known or self._files[item.table][-1][1] != item.where:
            self._files[item.table].append((first, item.where, known))
        self.rows[item.table] += rows.num_rows
        if item.table == DEVICES.name and self.rows[item.table] > MOST_GPUS:
            raise SourceError(f"{item.where}: more than {MOST_GPUS:,} rows of devices; check whether rows are repeated")
        self._rows_of[item.where, item.table] += rows.num_rows
        if item.table == SAMPLES.name:
            rows = take_samples(rows, self.source, lambda what, count: self._count(item.where, what, count))
        rows = rows.append_column("seq", pa.array(np.arange(first, first + rows.num_rows)))
        if item.table == SAMPLES.name:
            self._samples.keep(rows)
        else:
            self._keep(item.table, rows)

    def leave_out(self, name: str, why: str, rows: int) -> None:
        """Count staged rows of a table as a gap."""
        self.gaps[name, why] += rows
        self.rows[name] -= rows
        if not self.rows[name]:
            del self.rows[name]

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
