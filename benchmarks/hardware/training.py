"""Training steps of three networks, healthy and with one known fault each: speed, memory, a trace, and when each ran."""

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset, get_worker_info

from benchmarks.hardware.clocks import Stopwatch, now_ms, wait
from benchmarks.hardware.model import Network, Shape, build
from benchmarks.hardware.scale import Scale

MOST_WAITED_S = 0.5
"""Most that a loader is made to take for a batch, so that a trace of some steps stays short."""


@dataclass(frozen=True)
class Case:
    """`fault`: what is wrong on purpose, if anything. `expected_…`: causes of which one is right, of a trace and the books."""

    name: str
    size: str
    is_compiled: bool = False
    fault: str = ""
    expected_of_trace: tuple[str, ...] = ("compute",)
    expected_of_books: tuple[str, ...] = ()


WAITS = ("input_pipeline",)
CASES = (
    Case("medium-compiled", "medium", is_compiled=True),
    Case("medium-eager", "medium"),
    Case("medium-fp32", "medium", fault="fp32", expected_of_trace=("precision_fp32",), expected_of_books=("no_mixed_precision",)),
    Case("medium-starved", "medium", fault="starved by its own thread", expected_of_trace=WAITS, expected_of_books=WAITS),
    Case("medium-starved-far", "medium", fault="starved by storage", expected_of_trace=WAITS, expected_of_books=WAITS),
    Case("medium-starved-cpu", "medium", fault="starved by busy processors", expected_of_trace=WAITS, expected_of_books=WAITS),
    Case("medium-small-batch", "medium", fault="small batch", expected_of_trace=("host_bound",),
         expected_of_books=("small_batch", "launch_bound")),
    Case("medium-sync", "medium", fault="synchronizing", expected_of_trace=("synchronization",),
         expected_of_books=("launch_bound",)),
    Case("medium-copies", "medium", fault="pageable copies", expected_of_trace=("copy_bound",), expected_of_books=("host_copies",)),
    Case("large-compiled", "large", is_compiled=True),
    Case("small-compiled", "small", is_compiled=True),
    Case("large-eager", "large"),
    Case("small-eager", "small"),
)  # fmt: skip
"""In the order of what they teach: where time runs out the last are left out."""


class Batches(Dataset[Tensor]):
    """Random tokens; each batch takes so long to make, working or waiting. Of workers one is ready after the other."""

    def __init__(self, size: tuple[int, int], vocabulary: int, busy_s: float = 0.0, waiting_s: float = 0.0) -> None:
        self._size, self._vocabulary, self._busy_s, self._waiting_s = size, vocabulary, busy_s, waiting_s
        self._is_first = True

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Tensor:
        worker, part = get_worker_info(), 1.0
        if worker is not None and self._is_first:
            part, self._is_first = (worker.id + 1) / worker.num_workers, False
        end_s = time.perf_counter() + part * self._busy_s
        while time.perf_counter() < end_s:
            sum(range(1000))
        if self._waiting_s:
            time.sleep(part * self._waiting_s)
        return torch.randint(0, self._vocabulary, self._size, generator=torch.Generator().manual_seed(index))


class Trainer:
    """One network and one step of it, with its fault."""

    def __init__(self, case: Case, scale: Scale, device: torch.device) -> None:
        self.case, self.scale, self.device = case, scale, device
        self.shape: Shape = {"small": scale.small, "medium": scale.medium, "large": scale.large}[case.size]
        self.batch = scale.batches[("small", "medium", "large").index(case.size)]
        self.seq = scale.seq
        if case.fault == "small batch":
            self.batch, self.seq = 1, max(scale.seq // 16, 16)
        if case.fault == "synchronizing":
            self.batch = 1
        self.network: Network = build(self.shape, device, torch.float32)
        if case.is_compiled:
            for block in self.network.blocks:
                block.compile(backend="inductor" if device.type == "cuda" else "eager")  # C++ takes a minute to build
        self._optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=1e-4, fused=True if case.is_compiled and device.type == "cuda" else None
        )
        dtype = torch.float32 if case.fault == "fp32" else torch.bfloat16
        self._positions = self.network.positions(0, self.seq, dtype)
        self._offloaded = (
            torch.ones(64 << 20 if device.type == "cuda" else 1 << 16) if case.fault == "pageable copies" else None
        )

    def make_batches(self, step_s: float) -> Iterator[Tensor]:
        """Batches on the host: at hand, or so slow that steps take twice `step_s`."""
        size, vocabulary = (self.batch, self.seq + 1), self.shape.vocabulary
        slow_s = min(max(step_s, 0.02), MOST_WAITED_S)
        if self.case.fault == "starved by its own thread":
            yield from DataLoader(Batches(size, vocabulary, busy_s=slow_s), batch_size=None)
        elif self.case.fault == "starved by storage":
            workers = 2
            data = Batches(size, vocabulary, waiting_s=2 * slow_s * workers)
            yield from DataLoader(data, batch_size=None, num_workers=workers, prefetch_factor=1)
        elif self.case.fault == "starved by busy processors":
            workers = len(os.sched_getaffinity(0))
            data = Batches(size, vocabulary, busy_s=2 * slow_s * workers)
            yield from DataLoader(data, batch_size=None, num_workers=workers, prefetch_factor=1)
        else:
            pool = [Batches(size, vocabulary)[number] for number in range(8)]
            if self.device.type == "cuda":
                pool = [tokens.pin_memory() for tokens in pool]
            while True:
                yield from pool

    def step(self, tokens: Tensor) -> None:
        """Forward, backward, optimizer."""
        if self._offloaded is not None:
            there = self._offloaded.to(self.device)
            self._offloaded.copy_(there)
        tokens = tokens.to(self.device, non_blocking=True)
        is_mixed = self.case.fault != "fp32"
        with torch.autocast(self.device.type, torch.bfloat16) if is_mixed else nullcontext():
            logits = self.network(tokens[:, :-1], *self._positions)
        loss = functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if self.case.fault == "synchronizing":
            for parameter in self.network.parameters():
                if parameter.grad is not None and not math.isfinite(parameter.grad.norm().item()):
                    return
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def take_steps(self, batches: Iterator[Tensor], window_s: float, least: int) -> list[float]:
        """Seconds of each step in a window; a step ends where the next begins."""
        watch = Stopwatch(self.device)
        end_s = time.perf_counter() + window_s
        watch.mark()
        count = 0
        while time.perf_counter() < end_s or count < least:
            self.step(next(batches))
            watch.mark()
            count += 1
            if count % 4 == 0:
                wait(self.device)  # the host would queue far more than the window
        return watch.seconds()


def train_case(case: Case, scale: Scale, device: torch.device, folder: Path) -> dict[str, Any]:
    """One case: steps that telemetry watches, and a trace of some more. Leaves traces/NAME.json.gz."""
    is_gpu = device.type == "cuda"
    if is_gpu:
        torch.cuda.reset_peak_memory_stats()
    begin_s = time.perf_counter()
    trainer = Trainer(case, scale, device)
    at_hand = Trainer.make_batches(trainer, 0.0) if not case.fault.startswith("starved") else None
    plain = iter([Batches((trainer.batch, trainer.seq + 1), trainer.shape.vocabulary)[0]] * 6)
    warm = trainer.take_steps(plain, 0.0, 5)
    start_s = time.perf_counter() - begin_s
    batches = at_hand or trainer.make_batches(statistics.median(warm[2:]))
    if at_hand is None:
        trainer.take_steps(batches, 0.0, 2)  # workers start
    wait(device)
    from_ms = now_ms()
    seconds = trainer.take_steps(batches, scale.load_s, scale.traced_steps)
    to_ms = now_ms()
    trace = folder / "traces" / f"{case.name}.json.gz"
    _record_trace(trainer, batches, scale.traced_steps, trace)
    tokens = trainer.batch * trainer.seq
    step_s = sum(seconds) / len(seconds)
    return {
        "case": case.name, "fault": case.fault, "is_compiled": case.is_compiled,
        "expected_of_trace": case.expected_of_trace, "expected_of_books": case.expected_of_books,
        "shape": trainer.shape.describe(), "batch": trainer.batch, "seq": trainer.seq,
        "precision": "fp32" if case.fault == "fp32" else "bf16", "weights": "fp32", "optimizer": "AdamW",
        "start_s": start_s, "steps": len(seconds), "step_s": step_s, "median_step_s": statistics.median(seconds),
        "tokens_per_s": tokens / step_s, "at_ms": [from_ms, to_ms],
        "peak_bytes": torch.cuda.max_memory_allocated() if is_gpu else None,
        "peak_reserved_bytes": torch.cuda.max_memory_reserved() if is_gpu else None,
        "trace": f"traces/{trace.name}", "trace_bytes": trace.stat().st_size,
    }  # fmt: skip


def _record_trace(trainer: Trainer, batches: Iterator[Tensor], steps: int, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if trainer.device.type == "cuda" else [])]
    wait(trainer.device)
    # steps before it use up what loaders had ready
    idle = 4 * steps if trainer.case.fault.startswith("starved by ") else 1
    once = schedule(wait=0, warmup=idle, active=steps, repeat=1)
    with profile(
        activities=activities, schedule=once, on_trace_ready=lambda p: p.export_chrome_trace(str(path))
    ) as profiler:
        for number in range(idle + steps):
            trainer.step(next(batches))
            if number in (idle - 1, idle + steps - 1):
                wait(trainer.device)
            profiler.step()


def train_cases(
    scale: Scale, device: torch.device, folder: Path, has_time: Callable[[], bool], keep: Callable[[list[Any]], None]
) -> None:
    """Every case that there is time for; `keep` gets all rows after each."""
    rows: list[Any] = []
    for case in CASES:
        if not has_time():
            rows.append({"case": case.name, "left_out": "no time was left; give more --minutes"})
        else:
            try:
                rows.append(train_case(case, scale, device, folder))
            except Exception as error:  # the others go on
                rows.append(
                    {"case": case.name, "fault": case.fault, "error": f"{type(error).__name__}: {str(error)[:300]}"}
                )
        keep(rows)
        gc.collect()
        torch._dynamo.reset()
        if device.type == "cuda":
            torch.cuda.empty_cache()
