"""`loadfactor warm-up`: compile ahead what first questions, plans and requests would compile, into the cache of the user.

Numba compiles loops, and Ibis the SQL of the ledger and of questions; both are kept by their text. Each part does what a user would
do, over a small simulated fleet, in a process of its own.
"""

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Final, get_args, get_type_hints

from loadfactor.base.paths import cache_folder
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S
from loadfactor.interfaces.document import Document, Section
from loadfactor.interfaces.formats import duration
from loadfactor.interfaces.requests import DiagnoseRequest, NoRequest, SavingsRequest
from loadfactor.interfaces.tables import col, table

SCRAPED: Final = (
    'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-6d1f0c52-9b7e-4c1a-8a43-2f5d0e7b9c11",modelName="NVIDIA H100"}} 97 {}\n'
)
SCRAPED_BYTES: Final = 4 * BYTES_PER_MIB
"""Shorter scrapes are followed without compiled code."""
BEGIN_MS: Final = 1_700_000_000_000
TRACE: Final = {
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}],
    "traceEvents": [
        {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": thread, "ts": at + step * 40000, "dur": length,
         "args": {"device": 0, "stream": thread, "correlation": step}}
        for step in range(2)
        for category, name, thread, at, length in (
            ("user_annotation", f"ProfilerStep#{step}", 5, 1000, 40000),
            ("user_annotation", "enumerate(DataLoader)", 5, 1000, 30000),
            ("cuda_runtime", "cudaLaunchKernel", 5, 31000, 5),
            ("kernel", "gemm", 7, 31010, 9990),
        )
    ],
}  # fmt: skip


@dataclass(frozen=True)
class WarmedPart:
    """A part, and how long it took: `cpu_s` of its process."""

    part: str
    seconds: float
    cpu_s: float


@dataclass(frozen=True)
class WarmUp:
    """What was compiled: files that are new in the cache folder, and how many are there."""

    folder: str
    parts: tuple[WarmedPart, ...]
    compiled: int
    kept: int
    seconds: float


def book_and_ask(folder: Path) -> None:
    """Import a fleet, book its ledger, and ask what reports and pages ask."""
    from loadfactor.books.books import Books
    from loadfactor.interfaces.insights import build_diagnosis_page, build_savings_page
    from loadfactor.interfaces.reports.inquiry import Inquiry
    from loadfactor.interfaces.reports.page import build_document
    from loadfactor.simulator import SMALL, simulate, write_tables

    store = folder / "books"
    write_tables(simulate(SMALL), folder / "tables")
    books = Books(store)
    books.add("tables", (folder / "tables",))
    books.show()
    books.waterfall(("team",))
    with books.snapshot() as snapshot:
        build_document(Inquiry(snapshot))
    build_savings_page(SavingsRequest(store=store))
    build_diagnosis_page(DiagnoseRequest(store=store))


def take_requests(_folder: Path) -> None:
    """Scan a request of remote_write."""
    from loadfactor.sources.prometheus.remote_write import compile_scanner

    compile_scanner()


def read_scrapes(folder: Path) -> None:
    """Read a long file of dcgm-exporter's pages."""
    from loadfactor.sources.base import ReadOptions
    from loadfactor.sources.dcgm import SOURCE

    path, lines = folder / "dcgm.prom", SCRAPED_BYTES // len(SCRAPED)
    path.write_text("".join(SCRAPED.format(BEGIN_MS + MS_PER_S * second) for second in range(lines)), encoding="utf-8")
    list(SOURCE.read(SOURCE.files((path,)), ReadOptions()))


def read_traces(folder: Path) -> None:
    """Diagnose a trace of a profiler."""
    from loadfactor.interfaces.insights import build_diagnosis_page

    path = folder / "trace.json"
    path.write_text(json.dumps(TRACE), encoding="utf-8")
    build_diagnosis_page(DiagnoseRequest(trace=(path,)))


def plan_serving(_folder: Path) -> None:
    """Plan a fleet of serving."""
    from loadfactor.interfaces.plans.process import build_plan

    build_plan("serve", {"model": "llama-3.1-8b", "users": 50, "price_per_gpu_hour": 2})


def plan_clusters(folder: Path) -> None:
    """Plan a cluster under each scheduler."""
    from loadfactor.interfaces.plans.process import PLANS, build_plan

    path = folder / "jobs.csv"
    rows = "".join(f"{600 * job},{1 + job % 8},{900 + 50 * job},vision\n" for job in range(40))
    path.write_text(f"submit_s,gpus,duration_s,team\n{rows}", encoding="utf-8")
    request = next(plan.request for plan in PLANS if plan.name == "size")
    for scheduler in get_args(get_type_hints(request)["scheduler"]):
        build_plan("size", {"trace": path, "scheduler": scheduler, "sizes": (24, 48)})


PARTS: Final[dict[str, Callable[[Path], None]]] = {
    "questions of the books": book_and_ask,
    "plan serve": plan_serving,
    "plan size": plan_clusters,
    "traces of profilers": read_traces,
    "requests of remote_write": take_requests,
    "long scrapes": read_scrapes,
}


def warm(part: str) -> WarmedPart:
    """Do a part in a folder of its own."""
    began = perf_counter(), process_time()
    with TemporaryDirectory() as folder:
        PARTS[part](Path(folder))
    return WarmedPart(part, perf_counter() - began[0], process_time() - began[1])


def build_page(_request: NoRequest) -> Document:
    """Do all parts, as many at once as there are cores; how long each took, and how much is compiled that was not."""
    began, before = perf_counter(), _count_kept()
    with ProcessPoolExecutor() as pool:
        parts = tuple(pool.map(warm, PARTS))
    kept = _count_kept()
    data = WarmUp(str(cache_folder()), parts, max(0, kept - before), kept, perf_counter() - began)
    if data.compiled:
        took = duration(data.seconds)
        headline = f"{data.compiled:,} compiled loops and queries are new in {data.folder}, after {took}."
    else:
        headline = f"Everything was compiled already, in {data.folder}."
    shown = table(
        parts,
        col("part", "part"),
        col("took", "seconds", "duration"),
        col("processor time", "cpu_s", "duration"),
    )
    return Document(headline, (Section("What was tried", tables=(shown,)),), data=data)


def _count_kept() -> int:
    """Compiled files in the cache of the user."""
    folder = cache_folder()
    return sum(1 for pattern in ("sql-*.json", "compiled-*/*.nbc") for _ in folder.glob(pattern))
