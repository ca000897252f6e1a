"""How fast are live batches acknowledged, and received bodies kept?

Batches have 2,000 rows, bodies 20 KB as remote_write sends them; durable one by one and by 16 threads that share commits.

`ack_over_log` is the time of a batch over that of the barest thing as durable: the same Arrow bytes appended to a file with a
checksum, one fdatasync a batch, in the same run and on the same disk, unchecked and with nothing to read it by. Wide batches are
DCGM's (twelve measurements), narrow ones a single metric. `kept_over_log` is the time of a body over that of the same bytes
appended to a file, one fdatasync a body. `flush_over_alone` is the CPU time of a flush of five minutes of 1,024 GPUs after hours of
the same day over that of the same flush into empty books.

`live_question_over_flushed` is the CPU time of a question (utilization by node) of books of 10,000 GPUs with five minutes of live
rows over that of the same question after a flush, of a process with an earlier one; `live_first_question_over_flushed` is that of
the first question after a batch, which reads and books what is live for the others.
"""

import os
import struct
import tempfile
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import numpy as np
import pyarrow as pa

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.store.live import LiveBatch, LiveLog, ReceivedBody
from loadfactor.tables.schema import MEASUREMENTS

NAME = "live"
ROWS = 2_000
STEP_MS = 15_000
BODY_BYTES = 20_000
FLUSHED_GPUS = 1_024
FLEET_GPUS = 10_000
THREADS = 16
QUESTIONS = (
    "utilization", "idle_gpu_hours", "effective_gpu_hours", "observed_gpu_hours", "busy_gpu_hours", "idle_share",
    "load_factor", "allocated_gpu_hours", "paid_gpu_hours", "unattributed_gpu_hours",
)  # fmt: skip
"""Metrics, each asked of books of its own generation once: an answer is kept, and would be what is measured."""
START_MS = 1_772_409_600_000
WIDE, NARROW = MEASUREMENTS[:12], ("busy_share",)


def run(quick: bool) -> dict[str, float]:
    """Rows a second, and ratios over the plain log; the better of two rounds each. `quick` takes the questions alone."""
    batches = 300
    results: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # where the books would lie: /tmp may be memory
        if quick:
            return _measure_questions(Path(folder) / "questions")
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
        results |= _keep_bodies(Path(folder), batches * 4)
        results |= _measure_questions(Path(folder) / "questions")
        results["flush_over_alone"] = _flush(Path(folder) / "day", 20) / _flush(Path(folder) / "alone", 0)
    return results


def _flush(folder: Path, hours: int) -> float:
    """CPU seconds to make files of five minutes of live rows after so many hours of the same day; the least of three."""
    books, spent = Books.open(folder, create=True), []
    with LiveLog.open(folder) as log:
        for hour in range(hours):
            log.acknowledge([_minutes(60 * hour, 60)])
        books.flush()
        for round_ in range(3):
            log.acknowledge([_minutes(60 * hours + 5 * round_, 5)])
            began = time.process_time()
            through = books.flush()
            spent.append(time.process_time() - began)
            log.discard_through(through)
    return min(spent)


def _measure_questions(folder: Path) -> dict[str, float]:
    """CPU seconds of questions of live rows over those after a flush; the least of some rounds, of first ones the mean."""
    books = Books.open(folder, create=True)

    def question_s(name: str = "utilization") -> float:
        began = time.process_time()
        books.show(name, by="node")
        return time.process_time() - began

    def questions_s() -> float:
        return sum(question_s(name) for name in QUESTIONS[1:])

    with LiveLog.open(folder) as log:
        log.acknowledge([_minutes(0, 20, FLEET_GPUS), _list_gpus()])
        log.discard_through(books.flush())
        question_s()  # compiles
        questions_s()
        first, live, flushed = [], [], []
        for minute in range(20, 25):
            log.acknowledge([_minutes(minute, 1, FLEET_GPUS)])
            first.append(question_s())
            live.append(questions_s())
        for minute in range(25, 28):
            log.discard_through(books.flush())
            question_s()
            flushed.append(questions_s())
            log.acknowledge([_minutes(minute, 1, FLEET_GPUS)])
    return {
        "live_question_over_flushed": min(live) / min(flushed),
        "live_first_question_over_flushed": sum(first) / len(first) / (min(flushed) / len(QUESTIONS[1:])),
    }


def _list_gpus() -> LiveBatch:
    """The GPUs, eight a node."""
    nodes = pa.array([f"node-{place // 8:04d}" for place in range(FLEET_GPUS)])
    return LiveBatch("dcgm:gpus", "devices", pa.table({"device_id": _name_gpus(FLEET_GPUS), "node": nodes}), "gpus")


def _name_gpus(gpus: int) -> pa.Array:
    return pa.array([f"GPU-{i:08x}-aaaa-bbbb-cccc-0123456789ab" for i in range(gpus)])


def _minutes(first: int, count: int, gpus: int = FLUSHED_GPUS) -> LiveBatch:
    """Samples of GPUs, four a minute."""
    rng = np.random.default_rng(first)
    steps = MS_PER_HOUR // STEP_MS // 60
    at = START_MS + STEP_MS * np.arange(steps * first + 1, steps * (first + count) + 1)
    rows = gpus * len(at)
    places = pa.array(np.tile(np.arange(gpus, dtype=np.int32), len(at)))
    devices = pa.DictionaryArray.from_arrays(places, _name_gpus(gpus))
    measured = {name: pa.array(rng.random(rows).round(3)) for name in WIDE[:4]}
    samples = pa.table({"device_id": devices, "to_utc": pa.array(np.repeat(at, gpus)), **measured})
    return LiveBatch("dcgm:gpus", "samples", samples, "gpus")


def _keep_bodies(folder: Path, bodies: int) -> dict[str, float]:
    """Bodies a second, and the time of one over that of a plain log; the better of two rounds each."""
    body = ReceivedBody("remote_write", "remote_write", START_MS, os.urandom(BODY_BYTES))
    log_s, one_s, many_s = [], [], []
    for round_ in range(2):
        with (folder / f"bodies{round_}.log").open("ab", buffering=0) as log:
            log_s.append(_each(lambda log=log: _append(log, body.content), bodies, 1))
        with LiveLog.open(folder / f"bodies{round_}") as live:
            one_s.append(_each(lambda live=live: live.keep([body]).result(), bodies, 1))
            many_s.append(_each(lambda live=live: live.keep([body]).result(), bodies, THREADS))
    return {
        "kept_bodies_per_s": bodies / min(many_s),
        "kept_over_log": min(one_s) / min(log_s),
        "kept_shared_over_log": min(many_s) / min(log_s),
    }


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
            _append(log, out.getvalue().to_pybytes())

        return _each(append, batches, 1)


def _append(log: FileIO, content: bytes) -> None:
    """Append bytes with their length and checksum, and sync them."""
    log.write(struct.pack("<II", len(content), zlib.crc32(content)) + content)
    os.fdatasync(log.fileno())


def _each(work: Callable[[], object], times: int, threads: int) -> float:
    """Seconds to do it so often."""
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work) for _ in range(times)]:
            done.result()
    return time.perf_counter() - began
