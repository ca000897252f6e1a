"""Compile every loop that Numba caches: `python -m tests.compile_loops`, before test workers start that would each do it."""

from pathlib import Path
from tempfile import TemporaryDirectory

import loadfactor
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.planner.sizing.cluster import SCHEDULERS, Cluster, simulate
from loadfactor.planner.sizing.cluster.jobs import make_jobs
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.dcgm import SOURCE as DCGM
from loadfactor.sources.prometheus.remote_write import compile_scanner

EXAMPLES = Path(__file__).parents[1] / "examples"


def compile_loops() -> None:
    """Do a little of everything that has such loops."""
    compile_scanner()
    text = (EXAMPLES / "scrape.prom").read_bytes()
    with TemporaryDirectory(prefix="compile-loops-") as folder:
        long = Path(folder) / "scrape.prom"  # shorter files are read without a scanner
        long.write_bytes(text * (4 * BYTES_PER_MIB // len(text)))
        list(DCGM.read(DCGM.files([long]), ReadOptions(at_ms=1_700_000_000_000)))
    loadfactor.diagnose(trace=[EXAMPLES / "trace.json"])
    loadfactor.plan_serving(model="llama-3.1-8b", users=50, price_per_gpu_hour=2)
    jobs = make_jobs([0, 0], [8, 8], [3600, 3600])
    for policy, _ in SCHEDULERS.values():
        simulate(jobs, Cluster.of(nodes=1), policy)


if __name__ == "__main__":
    compile_loops()
