"""How fast are live batches acknowledged? 2,000 rows a batch, durable one by one and by 16 threads that share commits.

`ack_over_log` is the time of a batch over that of the barest thing as durable: the same Arrow bytes appended to a file with a
checksum, one fdatasync a batch, in the same run and on the same disk, unchecked and with nothing to read it by. Wide batches are
DCGM's (twelve measurements), narrow ones a single metric.
"""

import os
import struct
import tempfile
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from loadfactor.store.live import LiveBatch, LiveLog
from loadfactor.tables import MEASUREMENTS

NAME = "live"
ROWS = 2_000
THREADS = 16
START_MS = 1_772_409_600_000
WIDE, NARROW = MEASUREMENTS[:12], ("busy_share",)


def run(quick: bool) -> dict[str, float]:
    """Rows a second, and ratios over the plain log; the better of two rounds each."""
    batches = 50 if quick else 300
    results: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # where the books would lie: /tmp may be memory
        for prefix, columns in (("ack", WIDE), ("ack_narrow", NARROW)):
            batch = LiveBatch("dcgm", "samples", _samples(columns), "node-7:9400")
            log_s, one_s, many_s = [], [], []
            for round_ in range(2):
                place = Path(folder) / f"{prefix}{round_}"
                log_s.append(_plain_log(place, batch.rows, batches))
                with LiveLog.open(place) as live:
                    one_s.append(_each(lambda live=live, batch=batch: live.acknowledge([batch]), batches, 1))
                    many_s.append(_each(lambda live=live, batch=batch: live.acknowledge([batch]), batches, THREADS))
            results |= {
                f"{prefix}_rows_per_s": batches * ROWS / min(many_s),
                f"{prefix}_over_log": min(one_s) / min(log_s),
                f"{prefix}_shared_over_log": min(many_s) / min(log_s),
            }
    return results


def _samples(columns: tuple[str, ...]) -> pa.Table:
    """One scrape of some devices: shares and readings with a few digits."""
    rng = np.random.default_rng(1)
    names = pa.array([f"GPU-{i % 1000:08x}-aaaa-bbbb-cccc-0123456789ab" for i in range(ROWS)])
    times = pa.array(START_MS + rng.integers(0, 30_000, ROWS))
    return pa.table(
        {
            "device_id": names.dictionary_encode(),
            "to_utc": times,
            **{name: pa.array(rng.random(ROWS).round(3)) for name in columns},
        }
    )


def _plain_log(place: Path, rows: pa.Table, batches: int) -> float:
    """Seconds to append the same batches to a file, each synced."""
    place.mkdir()
    with (place / "log").open("ab", buffering=0) as log:

        def append() -> None:
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
                writer.write_table(rows)
            content = out.getvalue().to_pybytes()
            log.write(struct.pack("<II", len(content), zlib.crc32(content)) + content)
            os.fdatasync(log.fileno())

        return _each(append, batches, 1)


def _each(work: Callable[[], object], times: int, threads: int) -> float:
    """Seconds to do it so often."""
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(times)]:
            done.result()
    return time.perf_counter() - began
