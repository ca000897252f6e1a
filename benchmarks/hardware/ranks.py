"""Ranks of a job: collectives where there are several GPUs, and data-parallel steps in which one rank is slow on purpose.

One GPU is shared by two ranks, which exchange by gloo, as NCCL wants a GPU for each.
`python -m benchmarks.hardware.ranks` is one rank.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from benchmarks.hardware.clocks import now_ms, time_calls, wait
from benchmarks.hardware.scale import choose_scale
from benchmarks.hardware.training import Case, Trainer

SLOW = 1
"""The rank that is slow."""
LONGEST_S = 240.0


def run_ranks(device: torch.device, folder: Path, minutes: float) -> dict[str, Any]:
    """Start every rank and read what rank 0 measured. Leaves traces/slow-rank-N.json.gz."""
    gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    world = min(gpus, 8) if gpus > 1 else 2
    backend = "nccl" if gpus > 1 else "gloo"
    (folder / "traces").mkdir(exist_ok=True)
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "WORLD_SIZE": str(world)}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.hardware.ranks", str(folder), backend, device.type, str(minutes)],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
        )
        for rank in range(world)
    ]
    end_s = time.monotonic() + LONGEST_S
    problems = []
    for process in started:
        try:
            _, said = process.communicate(timeout=max(end_s - time.monotonic(), 1.0))
            if process.returncode:
                problems.append(said.decode(errors="replace")[-600:])
        except subprocess.TimeoutExpired:
            process.kill()
            problems.append(f"took longer than {LONGEST_S:.0f} s")
    result = folder / "ranks-0.json"
    found: dict[str, Any] = {"ranks": world, "gpus": gpus, "backend": backend, "slow_rank": SLOW, "problems": problems}
    if result.exists():
        found |= json.loads(result.read_text())
        result.unlink()
    return found


def work(folder: Path, backend: str, kind: str, minutes: float) -> None:
    """One rank."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device(kind, rank if backend == "nccl" else 0) if kind == "cuda" else torch.device("cpu")
    if kind == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend)
    scale = choose_scale(device, minutes)
    found: dict[str, Any] = {
        "collectives": _measure_collectives(device, world, scale.window_s) if backend == "nccl" else []
    }
    trainer = Trainer(Case("slow-rank", "small"), scale, device)
    trainer.batch = max(trainer.batch // 4, 1)
    trainer.network = DistributedDataParallel(trainer.network)  # type: ignore[assignment]
    batches = trainer.make_batches(0.0)
    warm = sum(trainer.take_steps(batches, 0.0, 3)[1:]) / 2
    late = torch.tensor([0.0 if rank != SLOW else min(max(0.5 * warm, 0.05), 0.5)], device=device)
    late_s = float(late)

    def step() -> None:
        time.sleep(late_s)
        trainer.step(next(batches))

    step()
    dist.barrier()
    from_ms = now_ms()
    for _ in range(6):
        step()
    wait(device)
    to_ms = now_ms()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if kind == "cuda" else [])]
    with profile(activities=activities) as profiler:
        for _ in range(scale.traced_steps):
            step()
            profiler.step()
        wait(device)
    profiler.export_chrome_trace(str(folder / "traces" / f"slow-rank-{rank}.json.gz"))
    dist.barrier()
    if rank == 0:
        found |= {"step_s": (to_ms - from_ms) / 6000, "at_ms": [from_ms, to_ms]}
        (folder / "ranks-0.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def _measure_collectives(device: torch.device, world: int, window_s: float) -> list[dict[str, Any]]:
    """Bus rates as nccl-tests count them: an all-reduce moves 2 (n - 1) / n of its bytes over a link, the others half of that."""
    rows = []
    for megabytes in (1, 64, 1024):
        whole = torch.zeros(megabytes << 19, device=device, dtype=torch.bfloat16)
        part = torch.zeros(len(whole) // world, device=device, dtype=torch.bfloat16)
        even = whole[: len(part) * world]
        share = (world - 1) / world
        for name, call, factor in (
            ("all-reduce", lambda t=whole: dist.all_reduce(t), 2 * share),
            ("all-gather", lambda t=even, p=part: dist.all_gather_into_tensor(t, p), share),
            ("reduce-scatter", lambda t=even, p=part: dist.reduce_scatter_tensor(p, t), share),
        ):
            count = torch.zeros(1, device=device)
            dist.all_reduce(count)
            row = time_calls_alike(device, call, window_s)
            size = len(whole) * 2
            rows.append({"collective": name, "bytes": size, **row, "bus_bytes_per_s": factor * size / row["seconds"]})
    return rows


def time_calls_alike(device: torch.device, call: Any, window_s: float) -> dict[str, Any]:
    """As `time_calls`, but as many calls on each rank."""
    from benchmarks.hardware import clocks

    del window_s
    least, clocks.FEWEST_CALLS = clocks.FEWEST_CALLS, 20
    try:
        return time_calls(device, call, 0.0)
    finally:
        clocks.FEWEST_CALLS = least


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]))
