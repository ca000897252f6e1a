"""How fast does a long nvidia-smi log come in? One log of 8 GPUs, as `--query-gpu … --format=csv -l 30` writes it.

The floor is what nobody goes below who keeps the data: parsing the same file with pyarrow.csv, sorting the rows that it becomes by
device and time, and writing them once as Parquet (zstd). Ratios are of processor time, within one run: `smi_over_floor` is the
whole import into a fresh store (the ledger not booked), `smi_decode_over_floor` the decoding alone, from the file to rows.
"""

import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from loadfactor.base.units import US_PER_S
from loadfactor.books.books import Books
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.nvidia_smi import SOURCE
from loadfactor.store.importing import import_files

NAME = "smi"
GPUS = 8
STEP = timedelta(seconds=30)
HEADING = (
    "timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W], "
    "clocks.sm [MHz], temperature.gpu, clocks_event_reasons.active\n"
)
OPTIONS = ReadOptions(timezone=UTC)


def run(quick: bool) -> dict[str, float]:
    """Import and decoding over the floor, and microseconds a row of each."""
    rounds = 40_000 if quick else 200_000
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "node-1.csv"
        write_log(log, rounds)
        rows = _decode(log)  # the scanner is compiled here, the first time on a machine
        decoding = min(_cpu_s(lambda: _decode(log)) for _ in range(3))
        floor = min(_cpu_s(lambda: _parse_and_write(log, rows, Path(folder) / "floor.parquet")) for _ in range(3))
        importing = min(_cpu_s(lambda at=at: _import(log, Path(folder) / f"books-{at}")) for at in range(2))  # type: ignore[misc]
    each = US_PER_S / rows.num_rows
    return {
        "smi_rows": float(rows.num_rows),
        "smi_over_floor": importing / floor,
        "smi_decode_over_floor": decoding / floor,
        "smi_import_us_per_row": importing * each,
        "smi_decode_us_per_row": decoding * each,
        "smi_floor_us_per_row": floor * each,
    }


def write_log(path: Path, rounds: int) -> None:
    """A log of so many rounds of the GPUs of one node; busy and idle for hours in turn, each reading its own."""
    draw = np.random.default_rng(1)
    start = datetime(2026, 5, 1)  # noqa: DTZ001 - the tool writes local times
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADING)
        for turn in range(rounds):
            at = f"{start + turn * STEP:%Y/%m/%d %H:%M:%S}"
            busy = (turn // 500 + np.arange(GPUS)) % 3 > 0
            share = np.where(busy, draw.integers(70, 101, GPUS), 0)
            memory = np.where(busy, draw.integers(40_000, 81_000, GPUS), 4)
            power = 70 + share * 6 + draw.random(GPUS) * 20
            for gpu in range(GPUS):
                file.write(
                    f"{at}.{3 * gpu:03d}, {gpu}, GPU-{gpu + 1:08x}-1c2d-4e5f-8a9b-{gpu + 1:012x}, NVIDIA H100 80GB HBM3, "
                    f"{share[gpu]} %, {memory[gpu]} MiB, 81559 MiB, {power[gpu]:.2f} W, {1980 if busy[gpu] else 345} MHz, "
                    f"{30 + share[gpu] // 3}, 0x{4 if share[gpu] > 95 else 0:016x}\n"
                )


def _decode(log: Path) -> pa.Table:
    """The samples of the log."""
    items = SOURCE.read((log,), OPTIONS)
    return pa.concat_tables(i.data for i in items if isinstance(i, Rows) and i.table == "samples")


def _parse_and_write(log: Path, rows: pa.Table, path: Path) -> None:
    """The floor."""
    pacsv.read_csv(log)
    pq.write_table(rows.sort_by([("device_id", "ascending"), ("to_utc", "ascending")]), path, compression="zstd")


def _import(log: Path, folder: Path) -> None:
    with Books(folder).store.write() as writer:
        import_files(writer, SOURCE, (log,), OPTIONS, lambda _what, _share: None)


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
