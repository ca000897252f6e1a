"""How fast are samples imported? Parquet of a simulated fleet, over the floor: parsing the same files and writing them once.

`import_over_floor` is processor time of the import (validated, staged by day, settled, written, synced) over that of reading the
same files with pyarrow and writing the rows, which lie sorted, once as Parquet with zstd. Both run in a process of their own;
`import_peak_rss_gib` is the most memory of the first import in it. Simulating the fleet is not counted.
"""

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from loadfactor import simulator as simulated
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.own_tables import SOURCE
from loadfactor.store.sample_writer import write_samples
from loadfactor.store.settle import settle
from loadfactor.store.staged_import import StagedImport
from loadfactor.units import BYTES_PER_GIB, BYTES_PER_KIB

NAME = "imports"
ROUNDS = 3


def run(quick: bool) -> dict[str, float]:
    """The import of 1,024 GPUs × 4 days × 30 s, about 12 M samples; `quick` takes one day."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = _simulate(folder / "tables", 1 if quick else 4)
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            floor_s, import_s, peak_gib = pool.apply(_measure, (folder,))
    return {
        "import_cpu_us_per_row": import_s / rows * 1e6,
        "import_over_floor": import_s / floor_s,
        "import_peak_rss_gib": peak_gib,
    }


def _simulate(folder: Path, days: int) -> int:
    """Write the tables of the fleet as Parquet; how many samples there are."""
    folder.mkdir()
    writers: dict[str, pq.ParquetWriter] = {}
    samples = 0
    for batch in simulated.make_tables(simulated.simulate(simulated.bench(1024, days, 30))):
        if batch.table not in writers:
            writers[batch.table] = pq.ParquetWriter(folder / f"{batch.table}.parquet", batch.data.schema)
        writers[batch.table].write_table(batch.data)
        samples += batch.data.num_rows if batch.table == "samples" else 0
    for writer in writers.values():
        writer.close()
    return samples


def _measure(folder: Path) -> tuple[float, float, float]:
    """Processor seconds of the floor and of the import, the best of some rounds each, and the most memory it took."""
    tables = folder / "tables"
    imports, floors, peaks = [], [], []
    for n in range(ROUNDS):
        imports.append(_cpu_s(lambda n=n: _import(tables, folder / f"store-{n}")))  # type: ignore[misc]
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * BYTES_PER_KIB / BYTES_PER_GIB)
        floors.append(_cpu_s(lambda: _floor(tables / "samples.parquet", folder / "floor.parquet")))
    return min(floors), min(imports), peaks[0]


def _floor(source: Path, target: Path) -> None:
    """Parse the samples and write them as they lie."""
    with pq.ParquetFile(source, read_dictionary=["device_id", "source"], buffer_size=1 << 20, pre_buffer=False) as file:
        batches = list(file.iter_batches(use_threads=False))
    pq.write_table(pa.Table.from_batches(batches).unify_dictionaries(), target, compression="zstd", compression_level=1)


def _import(tables: Path, folder: Path) -> None:
    before: dict[tuple[str, str], int] = {}
    with StagedImport(folder / "staging", SOURCE.name, None, SOURCE.default_step_s, 1) as staging:
        for item in SOURCE.read(SOURCE.files((tables,)), ReadOptions()):
            staging.take(item)
        paths = (folder / f"samples-{number}.parquet" for number in count())
        for _, taken in staging.cells():
            before |= _write(taken, before, next(paths))
            del taken  # before the next ones are read


def _write(taken: pa.Table, before: Mapping[tuple[str, str], int], path: Path) -> dict[tuple[str, str], int]:
    """Settle some samples into a file; the last instant of each of their series."""
    settled = settle(taken, before, refuse=True)
    write_samples(settled.rows, path, {})
    return settled.last


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
