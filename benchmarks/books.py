"""How fast are the books? Import, ledger and questions on a simulated fleet of 1,024 GPUs × 30 days × 30 s, about 88 M samples.

Ratios compare things done in the same run on the same files: the ledger over just decoding the columns it reads
(`ledger_over_decode`), and over SQL written by hand for the same rows (`ledger_over_sql`, `hand_ledger.sql`). The floor is
decoding: `ledger_over_decode` says how far from it we are, and `sketch_over_decode` how far the barest ledger is that one query
can make (`sketch.sql`: five signals, over decoding just those), on this machine and these files. `growth` is the time of 30 days
over that of 7, per sample. `…_cpu` is the same ratio in processor time, which other work on the machine disturbs less;
`booking_us_per_sample_…` is microseconds of that.
`question_s_max` is the slowest of some questions by the clock, each asked once in a process that booked, and `question_cpu_s_max`
the same in processor time.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.memory import find_peak_bytes
from loadfactor import simulator as simulated
from loadfactor.base.units import BYTES_PER_GIB, MS_PER_DAY, US_PER_S
from loadfactor.books.books import Books
from loadfactor.books.ledger_inputs import select_ledger
from loadfactor.books.rebuild import refresh
from loadfactor.ledger.columns import HISTOGRAM, SIGNALS
from loadfactor.sources.base import ReadOptions, Rows, Source
from loadfactor.store import sample_files
from loadfactor.store.importing import import_files

NAME = "books"
GPUS = 1024
READ = (
    "hour_utc",
    "to_utc",
    "late_ms",
    "reach_ms",
    "given",
    "measured_mask",
    *SIGNALS,
    "mem_used_bytes",
    "mem_total_bytes",
    "power_w",
    "pcie_rx_bytes_per_s",
    "pcie_tx_bytes_per_s",
    "nvlink_bytes_per_s",
    "temperature_c",
    "throttle_mask",
)
SKETCHED = (
    "to_utc",
    "late_ms",
    "reach_ms",
    "busy_share",
    "sm_active_share",
    "tensor_active_share",
    "dram_active_share",
    "power_w",
)
WEEK_MS = 7 * MS_PER_DAY
QUESTIONS = (
    (["utilization", "load_factor", "cost", "cost_per_effective_gpu_hour"], ["team"]),
    (["utilization", "idle_gpu_hours", "idle_cost"], ["day"]),
    (["utilization_histogram"], ["device"]),
    (["effective_gpu_hours", "cost", "mem_utilization_peak"], ["job"]),
    (["paid_gpu_hours", "cost"], ["state", "pool"]),
    (["cost_per_token", "cost_per_request"], ["team"]),
    (["queue_wait_s_p50", "queue_wait_s_p99_gpu_weighted", "queue_waiting"], ["team"]),
    (["utilization"], ["hour"]),
)


@dataclass(frozen=True, order=True)
class Took:
    """Time by the clock, and processor time of all threads."""

    wall_s: float
    cpu_s: float


def run(quick: bool, days: int | None = None) -> dict[str, float]:
    """All figures of the books; `quick` takes one day instead of thirty and leaves out growth."""
    days = days or (1 if quick else 30)
    with tempfile.TemporaryDirectory() as folder:
        books, imported_s = _imported(Path(folder) / "books", days)
        files = books.store.manifest.of("samples")
        rows = sum(f.rows for f in files)
        start, end = books.store.span()
        results = {
            "samples": float(rows),
            "import_rows_per_s": rows / imported_s,
            "bytes_per_sample": sum(f.bytes for f in files) / rows,
        }
        _say(f"{rows:,} samples imported in {imported_s:.0f} s")
        decode = min(_timed(lambda: _decode(_sample_files(books, end))) for _ in range(3))
        ledger = _ledger(books, start, end)
        _say(f"decode {decode.wall_s:.1f} s, ledger {ledger.wall_s:.1f} s")
        results |= {
            "ledger_rows": float(sum(f.rows for f in books.store.manifest.of("ledger"))),
            "ledger_over_decode": ledger.wall_s / decode.wall_s,
            "ledger_over_decode_cpu": ledger.cpu_s / decode.cpu_s,
            f"booking_us_per_sample_{GPUS}x{days}": ledger.cpu_s * US_PER_S / rows,
            **_questions(books),
            # what follows is not ours: the peak is taken before it
            "peak_rss_gib": find_peak_bytes() / BYTES_PER_GIB,
        }
        # SQL written as one query keeps all its groups in memory at once: a week is what fits
        until = min(end, start + WEEK_MS)
        part = _ledger(books, start, until)
        by_hand = _by_hand(books, start, until, Path(folder) / "hand.parquet")
        results |= {
            "sketch_over_decode": _sketch_over_decode(books, _sample_files(books, until), end),
            "ledger_over_sql": part.wall_s / by_hand.wall_s,
            "ledger_over_sql_cpu": part.cpu_s / by_hand.cpu_s,
        }
        if until < end:
            share = sum(f.rows for f in files if (f.to_ms or 0) <= until) / rows
            results["growth"] = ledger.wall_s * share / part.wall_s
    return results


def _imported(folder: Path, days: int) -> tuple[Books, float]:
    """Books of the benchmark fleet with nothing booked yet, and how long the import took, the simulation included."""
    scenario = simulated.bench(GPUS, days, 30)
    source = Source(
        "simulated",
        lambda _paths: (),
        lambda _paths, _options: (
            Rows(batch.table, batch.data, "simulated") for batch in simulated.make_tables(simulated.simulate(scenario))
        ),
    )
    books = Books(folder)

    def bring() -> None:
        with books.store.write() as writer:
            import_files(writer, source, (), ReadOptions(), _quiet)

    return books, _timed(bring).wall_s


def _decode(files: list[Path], columns: tuple[str, ...] = READ) -> None:
    """Read columns of the samples (every one the ledger reads) and nothing else: a sum or a maximum of each."""
    sums = ", ".join(f"sum({name})" for name in columns)
    duckdb.sql(f"SELECT max(device_id), {sums} FROM {sample_files.read(files)}").fetchall()


def _sketch_over_decode(books: Books, files: list[Path], end: int) -> float:
    """How many times as long the barest ledger of some files takes as decoding what it reads."""
    names = {path.name for path in files}
    sql = Path(__file__).with_name("sketch.sql").read_text(encoding="utf-8").replace(":end", str(end))
    with books.store.write() as writer:  # a writer works on all cores; this one changes nothing
        writer.view_table("samples", "samples", tuple(f for f in writer.manifest.of("samples") if f.name in names))
        writer.view_table("allocations", "allocations")
        sketch = _timed(lambda: writer.materialize("sketch", sql))
    return sketch.wall_s / min(_timed(lambda: _decode(files, SKETCHED)) for _ in range(3)).wall_s


def _sample_files(books: Books, end: int) -> list[Path]:
    """The files of the days that begin before `end`."""
    files = books.store.manifest.of("samples")
    return [books.store.folder / f.name for f in files if f.day is not None and f.day * MS_PER_DAY < end]


def _ledger(books: Books, start: int, end: int) -> Took:
    """What it takes to book [start, end) and publish it."""

    def settle() -> None:
        with books.store.write() as writer:
            refresh(writer, _quiet)

    with books.store.write() as writer:
        writer.mark_stale([(start, end)])
    return _timed(settle)


def _by_hand(books: Books, start: int, end: int, path: Path) -> Took:
    """What the hand-written SQL takes; its totals by state must be those of the ledger (it knows no unknown holders)."""
    sql = Path(__file__).with_name("hand_ledger.sql").read_text(encoding="utf-8")
    sql = sql.replace(":start", str(start)).replace(":end", str(end))
    summed = ("gpu_s", "price_per_gpu_hour_contracted * gpu_s", "sm_active_s", "energy_j", *HISTOGRAM)
    totals = ", ".join(f"coalesce(sum({of}), 0)" for of in summed)
    by_state = f"SELECT state, {totals} FROM {{}} GROUP BY state ORDER BY state"
    with books.store.write() as writer:  # as above
        for name in ("devices", "outages", "prices", "allocations"):
            writer.view_table(name, name)
        writer.view_table("samples", "samples", writer.covering("samples", (start, end)))
        took = _timed(lambda: writer.raw.execute(f"COPY ({sql}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)"))
        hand = writer.raw.execute(by_state.format(sample_files.read([path]))).fetchall()
        ledger = select_ledger(writer, writer.manifest.of("ledger"))
        ours = writer.raw.execute(by_state.format(f"({ledger}) WHERE hour_utc < {end}")).fetchall()
    if not _are_near(hand, ours):
        raise AssertionError(f"the hand-written SQL disagrees with the ledger:\n{hand}\n{ours}")
    return took


def _are_near(hand: list[tuple[Any, ...]], ours: list[tuple[Any, ...]]) -> bool:
    """True where the totals of all states are the same, but for the order in which they were added up."""
    pairs = [pair for one, other in zip(hand, ours, strict=True) for pair in zip(one[1:], other[1:], strict=True)]
    return [row[0] for row in hand] == [row[0] for row in ours] and all(isclose(*pair, rel_tol=1e-9) for pair in pairs)


def _questions(books: Books) -> dict[str, float]:
    """The slowest of the questions, each asked once of the built ledger, after one that imports what all need."""
    books.show(["paid_gpu_hours"], ["accelerator"]).to_arrow()
    took = []
    for metrics, by in QUESTIONS:
        took.append(_timed(lambda metrics=metrics, by=by: books.show(metrics, by).to_arrow()))  # type: ignore[misc]
        _say(f"{took[-1].wall_s:.2f} s, CPU {took[-1].cpu_s:.2f} s  {' '.join(metrics)} by {','.join(by)}")
    return {
        "question_s_max": max(of.wall_s for of in took),
        "question_cpu_s_max": max(of.cpu_s for of in took),
    }


def _timed(work: Callable[[], object]) -> Took:
    began, used = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - began, time.process_time() - used)


def _quiet(_what: str, _share: float) -> None:
    """Shows no progress."""


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)
