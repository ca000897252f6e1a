"""Staging of an import: its rows wait in a folder of their own until all are validated, and leave no trace when it dies.

Samples are cut by the UTC day they were taken on, so that each day is merged alone. At most `BUFFERED_ROWS` rows are in memory.
"""

import shutil
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from loadfactor.signals import PROFILED, find_failed_profiling
from loadfactor.sources.base import Gap, Rows
from loadfactor.store.row_checks import validate_rows
from loadfactor.tables import MEASUREMENTS
from loadfactor.units import MS_PER_DAY, MS_PER_S

BUFFERED_ROWS = 1_000_000
ROW_GROUP_ROWS = 122_880


Part = tuple[str, int | None]
"""A table, and for samples the UTC day (days since 1970)."""


class Staging:
    """The staged rows of one import. Use as a context: leaving it removes the folder."""

    def __init__(self, store: Path, source: str, step_s: float | None, lone_step_s: float | None) -> None:
        self.folder = store / f"staging-{uuid4().hex}"
        self.source = source
        self.steps_ms = {
            name: None if s is None else round(s * MS_PER_S)
            for name, s in (("step_ms", step_s), ("lone_step_ms", lone_step_s))
        }
        self.rows: dict[str, int] = defaultdict(int)
        self.gaps: dict[tuple[str, str], int] = defaultdict(int)
        self.inferred: set[str] = set()  # tables of which rows were only inferred
        self._rows_of: dict[tuple[str, str], int] = defaultdict(int)  # by file, for messages
        self._buffers: dict[Part, list[pa.Table]] = defaultdict(list)
        self._buffered: dict[Part, int] = defaultdict(int)
        self._writers: dict[Part, pq.ParquetWriter] = {}

    def __enter__(self) -> "Staging":
        self.folder.mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers.values():
            writer.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def take(self, item: Rows | Gap) -> None:
        """Validate one batch, or count one gap."""
        if isinstance(item, Gap):
            self.gaps[item.where, item.what] += item.count
            return
        if item.inferred:
            self.inferred.add(item.table)
        first = self.rows[item.table]
        validated = validate_rows(item, self._rows_of[item.where, item.table])
        self.rows[item.table] += validated.num_rows
        self._rows_of[item.where, item.table] += validated.num_rows
        validated = validated.append_column("seq", pa.array(range(first, first + validated.num_rows), pa.int64()))
        if item.table == "samples":
            for day, part in _by_day(self._sample(validated, item.where)):
                self._keep(("samples", day), part)
        else:
            self._keep((item.table, None), validated)

    def finish(self) -> dict[Part, Path]:
        """Write out what is buffered; the staged files by table and day."""
        for part in list(self._buffers):
            self._flush(part)
        for writer in self._writers.values():
            writer.close()
        paths = {part: self._path(part) for part in self._writers}
        self._writers = {}
        return paths

    def _sample(self, rows: pa.Table, where: str) -> pa.Table:
        """Samples as stored: energy as power, contradictory profiling dropped, the mask of what was measured, the fallback step."""
        began, taken = rows["from_utc"], rows["to_utc"]
        duration_s = pc.divide(pc.cast(pc.subtract(taken, began), pa.float64()), float(MS_PER_S))
        from_energy = pc.if_else(pc.greater(duration_s, 0), pc.divide(rows["energy_j"], duration_s), None)
        power = pc.coalesce(rows["power_w"], from_energy)
        columns = {name: rows[name] for name in MEASUREMENTS} | {"power_w": power}
        total = columns["mem_total_bytes"]
        columns["mem_total_bytes"] = pc.if_else(
            pc.greater(total, 0), total, None
        )  # a device without memory was not asked
        lost = pc.sum(pc.and_(pc.is_valid(rows["energy_j"]), pc.is_null(power))).as_py() or 0
        if lost:
            self.gaps[where, "energy without the start of its interval says nothing of power"] += lost
        failed = find_failed_profiling(columns)
        count = pc.sum(failed).as_py() or 0
        if count:
            self.gaps[where, "profiling counters read 0 while GPU_UTIL was high: not counted as idle"] += count
            for name in PROFILED:
                columns[name] = pc.if_else(failed, pa.scalar(None, pa.float64()), columns[name])
        mask = pa.array([0] * rows.num_rows, pa.int64())
        for bit, name in enumerate(MEASUREMENTS):
            mask = pc.add(mask, pc.multiply(pc.cast(pc.is_valid(columns[name]), pa.int64()), 1 << bit))
        return pa.table(
            {
                "device_id": rows["device_id"],
                "began_utc": began,
                "sampled_utc": taken,
                **{name: pa.array([step] * rows.num_rows, pa.int64()) for name, step in self.steps_ms.items()},
                "measured_mask": mask,
                **columns,
                "source": pc.fill_null(rows["source"], self.source),
                "seq": rows["seq"],
            }
        )

    def _keep(self, part: Part, rows: pa.Table) -> None:
        self._buffers[part].append(rows)
        self._buffered[part] += rows.num_rows
        if self._buffered[part] >= ROW_GROUP_ROWS:
            self._flush(part)
        elif sum(self._buffered.values()) > BUFFERED_ROWS:
            self._flush(max(self._buffered, key=lambda p: self._buffered[p]))

    def _flush(self, part: Part) -> None:
        rows = pa.concat_tables(self._buffers.pop(part)).combine_chunks()
        del self._buffered[part]
        if part not in self._writers:
            self._writers[part] = pq.ParquetWriter(self._path(part), rows.schema, compression="lz4")
        self._writers[part].write_table(rows)

    def _path(self, part: Part) -> Path:
        table, day = part
        return self.folder / (f"{table}.parquet" if day is None else f"{table}-{day}.parquet")


def _by_day(rows: pa.Table) -> list[tuple[int, pa.Table]]:
    """Samples split by the UTC day they end in; one that ends at midnight belongs to the day before."""
    days = pc.floor(pc.divide(pc.cast(pc.subtract(rows["sampled_utc"], 1), pa.float64()), float(MS_PER_DAY)))
    distinct = pc.unique(days).to_pylist()
    if len(distinct) == 1:
        return [(int(distinct[0]), rows)]
    return [(int(day), rows.filter(pc.equal(days, day))) for day in distinct]
