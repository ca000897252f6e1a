"""Questions over a year: what a page asks of the sums of a fleet of 30 teams, 4 pools and 2 accelerators.

The sums have a row an hour, team, pool, accelerator and state, however many GPUs there are: here each team has one GPU of each
accelerator in each pool, 240 that stand for 100,000, with a sample an hour. `question_s_year` is the slowest warm question.
"""

import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.books.snapshot import Snapshot
from loadfactor.sources.base import ReadOptions, Rows, Source
from loadfactor.store.importing import import_files
from loadfactor.tables.schema import table

NAME = "year"
BEGIN: Final = datetime(2025, 1, 1, tzinfo=UTC)
TEAMS, POOLS, ACCELERATORS = 30, 4, ("h100-sxm", "a100-sxm-80gb")
DAYS, REPEATS = 365, 3
METRICS: Final = ("utilization", "paid_gpu_hours", "idle_gpu_hours", "cost", "idle_cost", "effective_gpu_hours")
SPLITS: Final = ((), ("month",), ("team",), ("team", "month"), ("pool", "accelerator"), ("day",))


def run(quick: bool) -> dict[str, float]:
    """The figure; `quick` takes a month."""
    days = 31 if quick else DAYS
    with tempfile.TemporaryDirectory() as folder:
        books = Books(Path(folder) / "books")
        rows = [Rows(name, table, "simulated") for name, table in _make_tables(days).items()]
        source = Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows))
        books.store.change(lambda writer: import_files(writer, source, (), ReadOptions(), _quiet))
        begun = time.process_time()
        books.compact()
        print(f"  booked {days} days in {time.process_time() - begun:.1f} CPU s")
        sums = sum(file.rows for file in books.store.manifest.of("ledger_by_team"))
        slowest = 0.0
        with books.snapshot() as snapshot:
            for by in SPLITS:
                took = min(_time(snapshot, by, begin) for begin in range(1, REPEATS + 1))
                print(f"  by {', '.join(by) or 'nothing'}: {took:.3f} s, {len(snapshot.show(METRICS, by)):,} readings")
                slowest = max(slowest, took)
        print(f"  of {sums:,} sums")
    return {"question_s_year": slowest}


def _make_tables(days: int) -> dict[str, pa.Table]:
    """GPUs, who held them, samples and a price of `days` days."""
    begin_ms, hours = int(BEGIN.timestamp() * 1000), days * 24
    gpus = [(t, p, a) for t in range(TEAMS) for p in range(POOLS) for a in range(len(ACCELERATORS))]
    ids = np.array([f"gpu-{t}-{p}-{a}" for t, p, a in gpus])
    ends = begin_ms + np.arange(1, hours + 1) * MS_PER_HOUR
    share = np.random.default_rng(7).uniform(0, 1, (len(gpus), hours))
    devices = {
        "device_id": ids,
        "node": [f"node-{p}-{a}" for _, p, a in gpus],
        "pool": [f"pool-{p}" for _, p, _ in gpus],
        "accelerator": [ACCELERATORS[a] for _, _, a in gpus],
        "from_utc": [begin_ms] * len(gpus),
        "to_utc": [begin_ms + hours * MS_PER_HOUR] * len(gpus),
    }
    starts = begin_ms + np.arange(days) * 24 * MS_PER_HOUR
    holders = {
        "job_id": [f"job-{gpu}-{day}" for gpu in range(len(gpus)) for day in range(days)],
        "team": [f"team-{t}" for t, _, _ in gpus for _ in range(days)],
        "device_id": np.repeat(ids, days),
        "from_utc": np.tile(starts, len(gpus)),
        "to_utc": np.tile(starts + 23 * MS_PER_HOUR, len(gpus)),
    }
    samples = {
        "device_id": np.repeat(ids, hours),
        "to_utc": np.tile(ends, len(gpus)),
        "busy_share": np.where(share < 0.2, 0.0, share).ravel(),
    }
    prices = {"basis": ["contracted"], "price_per_gpu_hour": [2.5], "currency": ["USD"]}
    tables = {"devices": devices, "allocations": holders, "prices": prices, "samples": samples}
    return {name: _fill(name, columns) for name, columns in tables.items()}


def _fill(name: str, columns: dict[str, Any]) -> pa.Table:
    """A table with all its columns, those that are not given empty."""
    schema, rows = table(name).schema, len(next(iter(columns.values())))
    return pa.table(
        {f.name: pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(rows, f.type) for f in schema}
    )


def _time(snapshot: Snapshot, by: tuple[str, ...], begin: int) -> float:
    """Seconds that a question takes, from this day on, so that no answer is one of before."""
    begun = time.perf_counter()
    snapshot.show(METRICS, by, BEGIN + timedelta(days=begin))
    return time.perf_counter() - begun


def _quiet(_what: str, _share: float) -> None:
    """Shows no progress."""
