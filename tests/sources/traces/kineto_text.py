"""Traces as Kineto writes them, made by hand: two steps of a loop on one GPU whose times are counted on fingers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def kernel(name: str, at_us: float, length_us: float, correlation: int, device: int = 0, stream: int = 7) -> Event:
    args = {"device": device, "stream": stream, "correlation": correlation, "grid": [4, 2, 1]}
    row = {"ph": "X", "cat": "kernel", "name": name, "pid": device}
    return row | {"tid": stream, "ts": at_us, "dur": length_us, "args": args}


def copy(name: str, at_us: float, length_us: float, correlation: int, size: int = 4096) -> Event:
    category = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
    args = {"device": 0, "stream": 7, "correlation": correlation, "bytes": size}
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": at_us, "dur": length_us, "args": args}


def call(at_us: float, length_us: float, correlation: int, name: str = "cudaLaunchKernel", tid: int = 5) -> Event:
    event = {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 99, "tid": tid, "ts": at_us, "dur": length_us}
    return {**event, "args": {"correlation": correlation, "External id": correlation}}


def host(name: str, at_us: float, length_us: float, category: str = "cpu_op", tid: int = 5) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 99, "tid": tid, "ts": at_us, "dur": length_us, "args": {}}


def write(path: Path, events: Sequence[Event], rank: int | None = None, **members: Any) -> Path:
    told = {"distributedInfo": {"rank": rank, "world_size": 2}} if rank is not None else {}
    path.write_text(json.dumps({"schemaVersion": 1, **told, "traceEvents": list(events), **members}))
    return path


HAND: tuple[Event, ...] = (
    # GPU: 0–10 computing, 8–14 communication, 20–22 copy, 22–23 memset, 30–40 computing, 43–44 computing
    kernel("gemm", 0, 10, 1),
    kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", 8, 6, 2, stream=9),
    copy("Memcpy HtoD (Pageable -> Device)", 20, 2, 3),
    copy("Memset (Device)", 22, 1, 4),
    kernel("gemm", 30, 10, 5),
    kernel("add", 43, 1, 6),
    # launches: 1 and 2 before the window, 3 at 17, in the gap 14–20; 5 at 22.5, before the gap 23–30; 6 nowhere
    call(-5, 1, 1),
    call(-4, 1, 2),
    call(17, 1, 3),
    call(18.5, 1, 4),
    call(22.5, 0.25, 5),
    # the host, from 14 to 17: 1 µs in nothing, 2 µs in the data loader
    host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 15, 2, "user_annotation"),
)
"""Span 44 µs: computing 21, communication exposed 4, copy 2, memset 1, idle 16 = host 3 + launch 3 + device 7 + unknown 3."""
