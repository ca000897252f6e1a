"""A simulated fleet as files of our own tables, which are imported like anybody's.

One file per table, and for the samples one per day: `devices.parquet`, `samples/2026-10-19.parquet`, … or the same as CSV,
with instants written as `2026-10-19T00:01:00Z`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from loadfactor.base.errors import InputError
from loadfactor.base.units import MS_PER_DAY, MS_PER_S
from loadfactor.simulator.scenario import Scenario
from loadfactor.simulator.simulation import Simulation, simulate
from loadfactor.simulator.table_rows import TableBatch, make_tables
from loadfactor.tables.schema import table

Format = Literal["parquet", "csv"]


class _TableWriter(Protocol):
    def write_table(self, data: pa.Table) -> None: ...
    def close(self) -> None: ...


def write_tables(scenario: Scenario | Simulation, folder: Path, format: Format = "parquet") -> dict[str, int]:
    """Write the tables of a fleet into an empty or new folder; the number of rows of each.

    A batch at a time, so memory does not grow with the fleet. InputError when the folder already holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not an empty folder; name a new one")
    folder.mkdir(parents=True, exist_ok=True)
    sim = scenario if isinstance(scenario, Simulation) else simulate(scenario)
    written: dict[str, int] = {}
    for name, batches in groupby(_name_files(sim), key=lambda named: named[0]):
        path = folder / f"{name}.{format}"
        path.parent.mkdir(exist_ok=True)
        writer: _TableWriter | None = None
        for _, batch in batches:
            writer = writer or _open_writer(path, batch, format)
            writer.write_table(_write_times(batch) if format == "csv" else batch.data)
            written[batch.table] = written.get(batch.table, 0) + len(batch.data)
        if writer is not None:
            writer.close()
    return written


def _name_files(sim: Simulation) -> Iterator[tuple[str, TableBatch]]:
    """Every batch with the file it belongs in: the table's name, and for samples the day their intervals end on."""
    for batch in make_tables(sim):
        if batch.table == "samples":
            # An interval that ends at midnight belongs to the day before it.
            day_ms = (batch.data["to_utc"][0].as_py() - 1) // MS_PER_DAY * MS_PER_DAY
            yield f"samples/{datetime.fromtimestamp(day_ms / MS_PER_S, UTC):%Y-%m-%d}", batch
        else:
            yield batch.table, batch


def _open_writer(path: Path, first: TableBatch, format: Format) -> _TableWriter:
    if format == "csv":
        return pa_csv.CSVWriter(path, _write_times(first).schema)  # type: ignore[no-any-return]
    instants = [c.name for c in table(first.table).columns if c.kind == "instant" and c.name in first.data.column_names]
    other = [n for n in first.data.column_names if n not in instants]
    return pq.ParquetWriter(  # type: ignore[no-any-return]
        path,
        first.data.schema,
        compression="zstd",
        use_dictionary=other,
        column_encoding=dict.fromkeys(instants, "DELTA_BINARY_PACKED"),
    )


def _write_times(batch: TableBatch) -> pa.Table:
    """The batch with its instants as text that a person and a spreadsheet can read."""
    data = batch.data
    for column in table(batch.table).columns:
        if column.kind == "instant" and column.name in data.column_names:
            at = data[column.name].cast(pa.timestamp("ms", "UTC"))
            text = pc.strftime(at, "%Y-%m-%dT%H:%M:%SZ")
            data = data.set_column(data.column_names.index(column.name), column.name, text)
    return data
