"""Speed of the layout search: training layouts scored per second on one core, and seconds for 1T parameters on 3,072 GPUs.

The best peer measured (Calculon) scores 31 layouts per second and core. Times are processor seconds, so that a busy machine
does not change them.
"""

from time import process_time

from benchmarks.memory import begin_peak, find_peak_bytes
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.models import network
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.machine import build_machine
from loadfactor.planner.training.search import search_layouts
from loadfactor.planner.training.software import find_software

NAME = "training"
PEER_LAYOUTS_PER_S = 31.0


def _job(name: str, card: str, seq: int, batch: int, modern: bool = True) -> TrainingJob:
    software = find_software("megatron") if modern else find_software("megatron", "2021-04")
    return TrainingJob(network(name), seq, batch, build_machine(accelerator(card)), software)


def run(quick: bool) -> dict[str, float]:
    """Layouts per second over several searches, the 1T search of the issue, and the memory it took at most."""
    jobs = [
        (_job("megatron-1t", "a100-sxm", 2048, 3072), 3072),
        (_job("megatron-1t", "a100-sxm", 2048, 3072, modern=False), 3072),
        (_job("llama-3.1-405b", "h100-sxm", 8192, 2048), 16384),
        (_job("deepseek-v3", "h800-sxm", 4096, 15360), 2048),
    ]
    begin_peak()
    search_layouts(*jobs[0])  # the first call pays for loading
    started = process_time()
    search_layouts(*jobs[0])
    search_1t_s = process_time() - started
    scored, spent = 0, 0.0
    for _ in range(1 if quick else 5):
        for job, gpus in jobs:
            started = process_time()
            scored += len(search_layouts(job, gpus))
            spent += process_time() - started
    rate = scored / spent
    return {
        "layouts_per_s": rate,
        "search_1t_s": search_1t_s,
        "layouts_per_s_over_best_peer": rate / PEER_LAYOUTS_PER_S,
        "search_peak_mib": find_peak_bytes() / BYTES_PER_MIB,
    }
