"""`python -m loadfactor.warm_up`: compile ahead what first questions, plans and requests would compile, for images and tests.

Numba compiles loops, and Ibis the SQL of the ledger and of questions; both are kept by their text in the cache of the user. Each
part does what a user would do, over a small simulated fleet, in a process of its own.
"""

import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Final, get_args, get_type_hints

from loadfactor.base.paths import cache_folder
from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S
from loadfactor.interfaces.requests import DiagnoseRequest, SavingsRequest

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


def warm(part: str) -> tuple[str, float, float]:
    """Do a part in a folder of its own; return its name, and the seconds and processor seconds that it took."""
    start_s, start_cpu_s = perf_counter(), process_time()
    with TemporaryDirectory() as folder:
        PARTS[part](Path(folder))
    return part, perf_counter() - start_s, process_time() - start_cpu_s


def main() -> None:
    """Do all parts, as many at once as there are cores, and print how long each took and how much was compiled."""
    compiled_before = count_compiled()
    with ProcessPoolExecutor() as pool:
        for part, took_s, cpu_s in pool.map(warm, PARTS):
            print(f"{part}: {took_s:.1f} s, {cpu_s:.1f} s of processor time", flush=True)
    compiled = count_compiled()
    print(
        f"{max(0, compiled - compiled_before)} loops and queries are newly compiled, {compiled} in all in {cache_folder()}"
    )


def count_compiled() -> int:
    """Count the compiled files in the cache of the user."""
    folder = cache_folder()
    return sum(1 for pattern in ("sql-*.json", "compiled-*/*.nbc") for _ in folder.glob(pattern))


if __name__ == "__main__":
    main()
