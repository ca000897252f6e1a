"""How fast are samples imported? Parquet of a simulated fleet, over the floor: parsing the same files and writing them once.

`import_over_floor` is processor time of the whole import into an empty store (validated, staged by day, settled, written, synced,
published; not booked) over that of reading the same files with pyarrow and writing the samples, which lie sorted, once as Parquet
with zstd. `import_over_ledger` is the import over booking what it brought. All run in a process of their own; `import_peak_rss_gib`
is the most memory of the first import in it. Simulating the fleet is not counted.

`late_minute_over_alone`: a minute out of the middle of a day of 1,024 GPUs comes last, and is booked; over the same minute imported
and booked alone. `next_minute_over_alone`: the minute after that day.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.memory import find_peak_bytes
from loadfactor import simulator as simulated
from loadfactor.base.units import BYTES_PER_GIB, MS_PER_DAY, MS_PER_S, S_PER_MIN, US_PER_S
from loadfactor.books.books import Books
from loadfactor.books.rebuild import refresh
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.own_tables import SOURCE
from loadfactor.store.importing import import_files

NAME = "imports"
GPUS, STEP_S = 1024, 30
MINUTE_MS = S_PER_MIN * MS_PER_S
ROUNDS = 3


def run(quick: bool) -> dict[str, float]:
    """The import of 1,024 GPUs × 4 days × 30 s, about 12 M samples; `quick` takes one day."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = _simulate(folder / "tables", 1 if quick else 4)
        return {"import_rows": float(rows)} | _alone(_measure_import, folder, rows) | _alone(_measure_minutes, folder)


def _alone(work: Callable[..., dict[str, float]], *arguments: object) -> dict[str, float]:
    """The figures of some work done in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return pool.apply(work, arguments)


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


def _measure_import(folder: Path, rows: int) -> dict[str, float]:
    """Processor time of the import, the floor and the ledger, the least of some rounds each."""
    tables = folder / "tables"
    imports, floors, ledgers, peaks = [], [], [], []
    for n in range(ROUNDS):
        books = Books(folder / f"store-{n}")
        imports.append(_cpu_s(lambda books=books: _import(books, tables)))  # type: ignore[misc]
        peaks.append(find_peak_bytes() / BYTES_PER_GIB)
        floors.append(_cpu_s(lambda: _floor(tables / "samples.parquet", folder / "floor.parquet")))
        ledgers.append(_cpu_s(lambda books=books: _book(books)))  # type: ignore[misc]
    return {
        "import_cpu_us_per_row": min(imports) / rows * US_PER_S,
        "import_over_floor": min(imports) / min(floors),
        "import_over_ledger": min(imports) / min(ledgers),
        "import_peak_rss_gib": peaks[0],
    }


def _measure_minutes(folder: Path) -> dict[str, float]:
    """A minute among the samples of a day, and one after it, over a minute alone; processor time."""
    tables = folder / "tables"
    samples = pq.read_table(tables / "samples.parquet")
    devices = pq.read_table(tables / "devices.parquet")
    first = pc.min(samples["to_utc"]).as_py()
    noon = first - first % MS_PER_DAY + MS_PER_DAY // 2
    at = samples["to_utc"]
    late = pc.and_(pc.greater(at, noon), pc.less_equal(at, noon + MINUTE_MS))
    of_day = pc.less_equal(at, first - first % MS_PER_DAY + MS_PER_DAY - MINUTE_MS)
    parts = {
        "day": pc.and_(of_day, pc.invert(late)),
        "late": late,
        "next": pc.and_(pc.invert(of_day), pc.less_equal(at, first - first % MS_PER_DAY + MS_PER_DAY)),
    }
    for name, chosen in parts.items():
        (folder / name).mkdir()
        pq.write_table(samples.filter(chosen), folder / name / "samples.parquet")
        pq.write_table(devices, folder / name / "devices.parquet")
    alone = min(
        _cpu_s(lambda n=n: Books(folder / f"alone-{n}").add("tables", [folder / "late"])) for n in range(ROUNDS)
    )  # type: ignore[misc]
    books = Books(folder / "day-store")
    books.add("tables", [folder / "day"])
    following = _cpu_s(lambda: books.add("tables", [folder / "next"]))
    amid = _cpu_s(lambda: books.add("tables", [folder / "late"]))
    return {
        "minute_alone_cpu_s": alone,
        "late_minute_over_alone": amid / alone,
        "next_minute_over_alone": following / alone,
    }


def _floor(source: Path, target: Path) -> None:
    """Parse the samples and write them as they lie."""
    with pq.ParquetFile(source, read_dictionary=["device_id", "source"], buffer_size=1 << 20, pre_buffer=False) as file:
        batches = list(file.iter_batches(use_threads=False))
    pq.write_table(pa.Table.from_batches(batches).unify_dictionaries(), target, compression="zstd", compression_level=1)


def _import(books: Books, tables: Path) -> None:
    with books.store.write() as writer:
        import_files(writer, SOURCE, (tables,), ReadOptions(), lambda _what, _share: None)


def _book(books: Books) -> None:
    with books.store.write() as writer:
        refresh(writer, lambda _what, _share: None)


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
