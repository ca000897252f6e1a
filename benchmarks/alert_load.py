"""What does it cost to judge all rules for one more minute of a large fleet: 100,000 GPUs, 10,000 jobs, sampled each minute?

`alert_eval_s_per_minute_quiet` is the processor time of a minute that just came in live: its ledger is booked from the samples,
added to what rolls, and every rule is judged; the median of some minutes in which nothing but samples came.
`alert_eval_s_per_minute_80_changes` is the same in minutes in which forty jobs end and forty others begin on their GPUs.
`alert_eval_open_s` is what comes before: a session on the books with the minutes that no flush has made files yet, of one to ten.
`alert_eval_begin_s` is the first minute, which looks back over the windows of all rules. `alert_eval_peak_mib` is the memory that
all of this takes at most.
"""

import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from benchmarks.memory import begin_peak, find_peak_bytes
from loadfactor.base.units import BYTES_PER_GIB, BYTES_PER_MIB, MIN_PER_HOUR, MS_PER_MIN
from loadfactor.books.books import Books
from loadfactor.insight.alerts.judge import Judge
from loadfactor.insight.alerts.rules import RULES
from loadfactor.sources.base import ReadOptions, Rows, Source
from loadfactor.store.importing import import_files
from loadfactor.store.live import LiveBatch, LiveLog
from loadfactor.tables.schema import table

NAME = "alert_load"
START_MS = 1_790_000_000_000 // (MS_PER_MIN * MIN_PER_HOUR) * MS_PER_MIN * MIN_PER_HOUR
GPUS_OF_A_NODE = 8
GPUS_OF_A_JOB = 10
TEAMS = 40
CHURN = 40
"""So many jobs end in a minute of churn, and as many begin: jobs last for four hours on average."""
BEFORE = 75
"""Minutes that are there when the judge begins: as long as the longest window of a rule."""


def run(quick: bool) -> dict[str, float]:
    """Seconds of processor time for a minute, and the peak of memory."""
    gpus, minutes = (2_000, 3) if quick else (100_000, 5)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        books = Books(Path(folder) / "books")
        _import(books, chain(_fleet(gpus), _samples(gpus, 0, BEFORE)))
        begin_peak()
        judge = Judge(RULES, START_MS + BEFORE * MS_PER_MIN)
        opened: list[float] = []
        spent: list[float] = []
        for minute in range(BEFORE, BEFORE + 2 * minutes + 1):
            came = [*_samples(gpus, minute, minute + 1), *(_churn(gpus, minute) if minute > BEFORE + minutes else ())]
            with LiveLog.open(books.store.folder) as log:
                log.acknowledge([LiveBatch(f"{minute} {rows.table}", rows.table, rows.data, "") for rows in came])
            began = time.process_time()
            with books.watch() as watched:
                opened.append(time.process_time() - began)
                began = time.process_time()
                judge.step(watched, START_MS + (minute + 1) * MS_PER_MIN)
                spent.append(time.process_time() - began)
        return {
            "alert_eval_s_per_minute_quiet": median(spent[1 : minutes + 1]),  # the first one looks back
            "alert_eval_s_per_minute_80_changes": median(spent[minutes + 1 :]),
            "alert_eval_open_s": median(opened),
            "alert_eval_begin_s": spent[0],
            "alert_eval_peak_mib": find_peak_bytes() / BYTES_PER_MIB,
        }


def _churn(gpus: int, minute: int) -> Iterator[Rows]:
    """Jobs that end at the beginning of a minute, and others that begin on the same GPUs."""
    number = np.arange(gpus)
    some = number[number // GPUS_OF_A_JOB % (gpus // GPUS_OF_A_JOB // CHURN) == minute % CHURN]
    job, at = some // GPUS_OF_A_JOB, START_MS + minute * MS_PER_MIN
    for name, begins, ends in (("job-", START_MS, at), (f"job-{minute}-", at, None)):
        rows = {
            "job_id": _name(name, job),
            "device_id": _name("g", some),
            "user": _name("user-", job % (10 * TEAMS)),
            "team": _name("team-", job % TEAMS),
            "purpose": ["training"] * len(some),
            "from_utc": np.full(len(some), begins),
            "to_utc": pa.array([ends] * len(some), pa.int64()),
        }
        yield _as_rows("allocations", rows)


def _import(books: Books, rows: Iterator[Rows]) -> None:
    """Bring rows into the store, and book nothing."""
    source = Source("simulated", lambda _paths: (), lambda _paths, _options: rows)
    with books.store.write() as writer:
        import_files(writer, source, (), ReadOptions(), lambda _what, _share: None)


def _fleet(gpus: int) -> Iterator[Rows]:
    """GPUs of nodes, all held by jobs of ten."""
    number = np.arange(gpus)
    devices = {
        "device_id": _name("g", number),
        "node": _name("n", number // GPUS_OF_A_NODE),
        "accelerator": ["h100-sxm"] * gpus,
        "pool": _name("pool-", number % 4),
        "from_utc": np.full(gpus, START_MS),
    }
    job = number // GPUS_OF_A_JOB
    allocations = {
        "job_id": _name("job-", job),
        "device_id": devices["device_id"],
        "user": _name("user-", job % (10 * TEAMS)),
        "team": _name("team-", job % TEAMS),
        "purpose": ["training"] * gpus,
        "from_utc": np.full(gpus, START_MS),
    }
    yield _as_rows("devices", devices)
    yield _as_rows("allocations", allocations)


def _samples(gpus: int, first: int, after: int) -> Iterator[Rows]:
    """Samples of minutes; every fortieth job is idle, others work, some less evenly than others."""
    number = np.arange(gpus)
    names = pa.array(_name("g", number))
    for minute in range(first, after):
        rng = np.random.default_rng(minute)
        sm = np.clip(rng.normal(0.75, 0.05, gpus), 0, 1) * (number // GPUS_OF_A_JOB % 40 != 0)
        at = START_MS + minute * MS_PER_MIN
        yield _as_rows(
            "samples",
            {
                "device_id": names,
                "from_utc": np.full(gpus, at),
                "to_utc": np.full(gpus, at + MS_PER_MIN),
                "busy_share": np.round(np.minimum(sm * 1.3, 1), 2),
                "sm_active_share": np.round(sm, 4),
                "tensor_active_share": np.round(0.5 * sm, 4),
                "dram_active_share": np.round(0.5 * sm, 4),
                "mem_used_bytes": np.full(gpus, 60.0 * BYTES_PER_GIB),
                "mem_total_bytes": np.full(gpus, 80.0 * BYTES_PER_GIB),
                "power_w": np.round(100 + 500 * sm, 1),
                "pcie_rx_bytes_per_s": np.round(sm * 1e9),
                "nvlink_bytes_per_s": np.round(sm * 1e10),
                "temperature_c": np.round(30 + 40 * sm),
                "throttle_mask": np.zeros(gpus, dtype=np.int64),
            },
        )


def _name(prefix: str, number: np.ndarray) -> list[str]:
    return [f"{prefix}{n}" for n in number.tolist()]


def _as_rows(name: str, columns: dict[str, object]) -> Rows:
    """Rows of a table."""
    schema = table(name).schema
    return Rows(name, pa.table(columns, schema=pa.schema([schema.field(column) for column in columns])), "simulated")
