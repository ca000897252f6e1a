"""The work of GPUs in an export of Nsight Systems: kernels, copies, memsets, and whole replays of CUDA graphs."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.sources.traces.kinds import refine_kinds
from loadfactor.sources.traces.nsight_names import ExportNames
from loadfactor.sources.traces.tables import NULL, Tables
from loadfactor.tables.trace_events import GpuEvents, GpuKind

Int64s = NDArray[np.int64]

_PREFIX: Final = "CUPTI_ACTIVITY_KIND_"
_SHARED: Final = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_NAMES: Final = ("demangledName", "shortName", "mangledName")
_GRID: Final = ("gridX", "gridY", "gridZ")
_COPY: Final = ("copyKind", "srcKind", "dstKind")


def find_tables(tables: Tables, kind: str) -> list[str]:
    """The tables of a kind, whatever the version in their names."""
    pattern = re.compile(rf"^{_PREFIX}{kind}(_V\d+)?$")
    return [name for name in tables.names() if pattern.match(name)]


def read_columns(tables: Tables, table: str, columns: Sequence[str]) -> Int64s:
    """These columns; NULL throughout where the table has not got one."""
    known = set(tables.columns(table))
    there = [column for column in columns if column in known]
    read = tables.numbers(table, there) if there else np.empty((0, 0), np.int64)
    found = np.full((len(read), len(columns)), NULL, np.int64)
    for place, column in enumerate(there):
        found[:, columns.index(column)] = read[:, place]
    return found


class GpuTables:
    """All work: `events` without their launches, and the process and correlation number of each."""

    def __init__(self, tables: Tables, names: ExportNames) -> None:
        parts = [
            *(self._read(tables, table, names, GpuKind.COMPUTE) for table in find_tables(tables, "KERNEL")),
            *(self._read(tables, table, names, GpuKind.MEMCPY) for table in find_tables(tables, "MEMCPY2?")),
            *(self._read(tables, table, names, GpuKind.MEMSET) for table in find_tables(tables, "MEMSET")),
            *(self._read_graphs(tables, table, names) for table in find_tables(tables, "GRAPH_TRACE")),
        ]
        shared = np.concatenate([part[0] for part in parts]) if parts else np.empty((0, len(_SHARED)), np.int64)
        kind, name, size, blocks = (
            np.concatenate([part[k] for part in parts]) if parts else np.empty(0, np.int64) for k in (1, 2, 3, 4)
        )
        whole = (shared[:, 0] != NULL) & (shared[:, 1] != NULL) & (shared[:, 1] >= shared[:, 0])
        shared, kind, name, size, blocks = shared[whole], kind[whole], name[whole], size[whole], blocks[whole]
        self.process = np.where(shared[:, 5] == NULL, 0, shared[:, 5])
        self.has_process = bool((shared[:, 5] != NULL).any())
        self.correlation = shared[:, 4]
        devices, device = np.unique(np.where(shared[:, 2] == NULL, 0, shared[:, 2]), return_inverse=True)
        self.devices = devices.tolist()
        count = len(shared)
        number = name.astype(np.int32)
        self.events = GpuEvents(
            start_ns=shared[:, 0],
            end_ns=shared[:, 1],
            kind=refine_kinds(kind.astype(np.int8), number, names.names),
            name=number,
            device=device.astype(np.int32),
            stream=np.where(shared[:, 3] == NULL, -1, shared[:, 3]),
            launch=np.full(count, -1, np.int32),
            size=size,
            blocks=blocks,
            group=np.full(count, -1, np.int32),
            flops=np.full(count, np.nan, np.float32),
            moved=np.full(count, np.nan, np.float32),
        )

    def _read(
        self, tables: Tables, table: str, names: ExportNames, kind: GpuKind
    ) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
        rows = read_columns(tables, table, (*_SHARED, "bytes", *_NAMES, *_GRID, *_COPY))
        count, shared = len(rows), rows[:, : len(_SHARED)]
        size = np.where(rows[:, 6] == NULL, -1, rows[:, 6])
        grid = rows[:, 10:13]
        blocks = np.where((grid > 0).all(axis=1), np.prod(np.clip(grid, 1, 1 << 20), axis=1), -1)
        if kind == GpuKind.COMPUTE:
            ids = np.where(rows[:, 7] != NULL, rows[:, 7], np.where(rows[:, 8] != NULL, rows[:, 8], rows[:, 9]))
            name = names.number_all(ids)
        elif kind == GpuKind.MEMCPY:
            name = names.number_copies(rows[:, 13:16])
        else:
            name = np.full(count, names.number("Memset"), np.int32)
        return shared, np.full(count, int(kind), np.int64), name.astype(np.int64), size, blocks

    def _read_graphs(
        self, tables: Tables, table: str, names: ExportNames
    ) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
        """Whole replays, which Nsight records instead of their kernels by default; what was in them is unknown."""
        shared = read_columns(tables, table, _SHARED)
        count, nothing = len(shared), np.full(len(shared), -1, np.int64)
        name = np.full(count, names.number("CUDA graph (kernels not recorded)"), np.int64)
        return shared, np.full(count, int(GpuKind.COMPUTE), np.int64), name, nothing, nothing
