"""How fast is a trace diagnosed, beside HTA where that is installed?

The trace is made here: a loop with operators, calls, kernels, copies and collectives, as Kineto writes them (some 300 bytes an
event). `trace_cpu_ms_per_mb` is processor time a megabyte of JSON, from the file to the findings; `trace_mib_per_mb` the memory
that a process of its own needs beyond what it needs for a small trace. `trace_over_hta` is our processor time over that of
HolisticTraceAnalysis 0.5.0 (parsing and temporal breakdown), of processes of their own on the same file; it is left out, and that
is said, where HTA cannot be imported. Set HTA_PYTHON to the interpreter of an environment that has it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from loadfactor.base.units import BYTES_PER_KIB, BYTES_PER_MB, BYTES_PER_MIB, MS_PER_S
from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.sources.traces.read import read_trace

NAME = "traces"
KERNELS = 24
STEP_US = 2000

MEASURED = """
import resource, sys
from pathlib import Path
from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.sources.traces.read import read_trace
diagnose_captures(read_trace(Path(sys.argv[1])))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
PEER = """
import sys, time
from hta.trace_analysis import TraceAnalysis
began = time.process_time()
TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True).get_temporal_breakdown(visualize=False)
print(time.process_time() - began)
"""


def run(quick: bool) -> dict[str, float]:
    """Processor time and memory a megabyte, and processor time over HTA's."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.json", Path(folder) / "large.json"
        write_trace(small, 10)
        write_trace(large, 400 if quick else 2000)
        size_mb = large.stat().st_size / BYTES_PER_MB
        _diagnose(small)  # the scanner is compiled here, the first time on a machine
        own = min(_cpu_s(large) for _ in range(3))
        extra = _peak_bytes(large) - _peak_bytes(small)
        found = {
            "trace_mb": size_mb,
            "trace_cpu_ms_per_mb": own * MS_PER_S / size_mb,
            "trace_mib_per_mb": max(extra, 0) / BYTES_PER_MIB / size_mb,
        }
        peer = _hta_s(large)
        if peer is not None:
            found["trace_over_hta"] = own / peer
        return found


def write_trace(path: Path, steps: int) -> None:
    """A trace of so many steps."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [\n')
        for at, event in enumerate(list_events(steps)):
            file.write((",\n" if at else "") + json.dumps(event, indent=1))
        file.write("\n]}\n")


def list_events(steps: int) -> Iterator[dict[str, object]]:
    """The host's events of every step, then the GPU's, as Kineto writes them one behind the other."""
    for step in range(steps):
        begin = step * STEP_US
        yield _host("user_annotation", f"ProfilerStep#{step}", begin, STEP_US - 1, {"External id": step + 1})
        for k in range(KERNELS):
            at, number = begin + k * 80, step * KERNELS + k + 1
            yield _host(
                "cpu_op", f"aten::operator_{k}", at, 60, {"External id": number, "Input Dims": [[64, 512], [512, 512]]}
            )
            yield _host(
                "cuda_runtime",
                "cudaLaunchKernel",
                at + 40,
                8,
                {"External id": number, "correlation": number, "cbid": 211},
            )
    for step in range(steps):
        for k in range(KERNELS):
            number = step * KERNELS + k + 1
            args = {
                "External id": number,
                "queued": 0,
                "device": 0,
                "context": 1,
                "stream": 7 + k % 2,
                "correlation": number,
                "registers per thread": 64,
                "blocks per SM": 4.5,
                "grid": [64, 8, 1],
                "block": [128, 1, 1],
                "est. achieved occupancy %": 50,
            }
            name = (
                "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
                if k == 0
                else f"kernel_{k}<float, 4>"
            )
            event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7 + k % 2}
            yield {**event, "ts": step * STEP_US + k * 80 + 52.125, "dur": 45.5, "args": args}


def _host(category: str, name: str, at_us: float, length_us: float, args: dict[str, object]) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": 9, "ts": at_us, "dur": length_us, "args": args}


def _diagnose(path: Path) -> None:
    diagnose_captures(read_trace(path))


def _cpu_s(path: Path) -> float:
    began = time.process_time()
    _diagnose(path)
    return time.process_time() - began


def _peak_bytes(path: Path) -> int:
    """The most memory of a process that diagnoses a trace."""
    done = subprocess.run([sys.executable, "-c", MEASURED, str(path)], capture_output=True, text=True, check=True)
    return int(done.stdout) * BYTES_PER_KIB


def _hta_s(path: Path) -> float | None:
    """HTA's processor time, the least of three; None, and that is said, where it cannot be run."""
    python = os.environ.get("HTA_PYTHON", sys.executable)
    times = []
    for _ in range(3):
        done = subprocess.run([python, "-c", PEER, str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            print(
                f"trace_over_hta is skipped: HolisticTraceAnalysis does not run here ({why}); set HTA_PYTHON",
                flush=True,
            )
            return None
        times.append(float(done.stdout.split()[-1]))
    return min(times)
