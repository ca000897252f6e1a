"""Samples of one import waiting to be settled: by UTC day, in memory while they are few, else in files of the staging folder.

Memory follows `rows_at_once` and not the size of a day: a day with more rows is divided into ranges of devices, of about equal
rows, in one more pass over its file. A device is never divided.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.units import MS_PER_DAY
from loadfactor.store.sample_columns import AS_TAKEN

ROWS_AT_ONCE: Final = 3_000_000
"""Samples that are settled together; each takes up to about 400 bytes of memory while it is."""
BUFFERED_ROWS: Final = 500_000
"""Samples that wait in memory once an import has more than are settled together; the fullest day is written out first."""

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
            wanted = AS_TAKEN.field(name).type
            if name in self._constants:
                columns[name] = pa.repeat(pa.scalar(self._constants[name], wanted), len(columns["sampled_utc"]))
            elif name not in columns:
                tables = (*_read(path, name), *waiting)
                chunks = [chunk for table in tables for chunk in table[name].chunks]
                waiting = [table.drop_columns(name) for table in waiting]
                columns[name] = _concatenate(chunks, wanted, names.get(name))
        path.unlink(missing_ok=True)
        return pa.table(columns).select(AS_TAKEN.names).cast(AS_TAKEN)


def _concatenate(chunks: list[pa.Array], wanted: pa.DataType, names: tuple[pa.Array, Codes] | None) -> pa.Array:
    """A column in one piece; where it has names, the chunks are their numbers."""
    if names is not None:
        texts, rank = names
        return pa.DictionaryArray.from_arrays(pa.array(rank[np.concatenate([c.to_numpy() for c in chunks])]), texts)
    if all(chunk.null_count == len(chunk) for chunk in chunks):
        return pa.nulls(sum(len(chunk) for chunk in chunks), wanted)
    return pa.concat_arrays([chunk.cast(wanted) for chunk in chunks])


def _split(rows: pa.Table, numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each number, in order of the numbers; slices of the table where it lies in that order."""
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
