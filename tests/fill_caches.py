"""Fill the caches of compiled code, `python -m tests.fill_caches`, before test workers start that would each compile it.

Numba compiles loops, and Ibis the SQL of the ledger and of common questions; both are kept on disk. The parts run side by side.
"""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import loadfactor
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.books.books import Books
from loadfactor.interfaces.reports.inquiry import Inquiry
from loadfactor.interfaces.reports.page import build_document
from loadfactor.planner.sizing.cluster import SCHEDULERS, Cluster, simulate
from loadfactor.planner.sizing.cluster.jobs import make_jobs
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.dcgm import SOURCE as DCGM
from loadfactor.sources.prometheus.remote_write import compile_scanner

EXAMPLES = Path(__file__).parents[1] / "examples"


def simulate_clusters() -> None:
    """Every scheduler of `plan size`."""
    jobs = make_jobs([0, 0], [8, 8], [3600, 3600])
    for policy, _ in SCHEDULERS.values():
        simulate(jobs, Cluster.of(nodes=1), policy)


def read_and_plan() -> None:
    """Scanners of requests, scrapes and traces, and the simulation of serving."""
    compile_scanner()
    text = (EXAMPLES / "scrape.prom").read_bytes()
    with TemporaryDirectory() as folder:
        long = Path(folder) / "scrape.prom"  # shorter files are followed without compiled code
        long.write_bytes(text * (4 * BYTES_PER_MIB // len(text)))
        list(DCGM.read(DCGM.files([long]), ReadOptions(at_ms=1_700_000_000_000)))
    loadfactor.diagnose(trace=[EXAMPLES / "trace.json"])
    loadfactor.plan_serving(model="llama-3.1-8b", users=50, price_per_gpu_hour=2)


def ask_books() -> None:
    """Book a ledger, and ask it what the report asks."""
    with TemporaryDirectory() as folder:
        books = Books(Path(folder) / "books")
        books.add("tables", [EXAMPLES / "october"])
        books.show()
        books.waterfall(("team",))
        with books.snapshot() as snapshot:
            build_document(Inquiry(snapshot))


PARTS = (simulate_clusters, read_and_plan, ask_books)

if __name__ == "__main__":
    with ProcessPoolExecutor() as pool:
        for filled in [pool.submit(part) for part in PARTS]:
            filled.result()
