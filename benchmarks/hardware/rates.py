"""Rates of a device: products, attention, memory, copies between host and device, and launches."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from benchmarks.hardware.clocks import time_calls
from benchmarks.hardware.scale import Scale

Row = dict[str, Any]


def measure_rates(device: torch.device, scale: Scale) -> list[Row]:
    """A row each: `what`, its sizes, and its rate in `flops_per_s`, `bytes_per_s` or `kernels_per_s`; `error` where it has none."""
    rows = []
    for measure in (_products, _thin_products, _attention, _memory, _host_copies, _launches):
        for about, call, amount in measure(device, scale):
            row = {"what": measure.__name__.strip("_"), **about}
            try:
                row |= time_calls(device, call, scale.window_s)
                row |= {name: value / row["seconds"] for name, value in amount.items()}
            except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError) as error:
                row["error"] = str(error).splitlines()[0][:200]
            rows.append(row)
    return rows


Measured = Iterator[tuple[Row, Callable[[], object], dict[str, float]]]


def _products(device: torch.device, scale: Scale) -> Measured:
    for datatype in ("bf16", "fp16", "tf32", "fp32", "fp8", "int8"):
        for m, n, k in scale.products if datatype in ("bf16", "fp8") else scale.products[-2:-1]:
            about = {"datatype": datatype, "m": m, "n": n, "k": k}
            yield about, _product(device, datatype, m, n, k), {"flops_per_s": 2.0 * m * n * k}


def _thin_products(device: torch.device, scale: Scale) -> Measured:
    """Products of few rows, as decoding has them: the weights are read, several in turn so that no cache holds them."""
    n, k = scale.thin
    weights = [torch.randn(n, k, device=device, dtype=torch.bfloat16) for _ in range(8)]
    for m in (1, 16, 64, 256):
        x = torch.randn(m, k, device=device, dtype=torch.bfloat16)

        def call(x: torch.Tensor = x) -> None:
            for weight in weights:
                functional.linear(x, weight)

        size = len(weights) * 2.0 * (n * k + m * n + m * k)
        about = {"datatype": "bf16", "m": m, "n": n, "k": k, "times": len(weights)}
        yield about, call, {"bytes_per_s": size, "flops_per_s": len(weights) * 2.0 * m * n * k}


def _product(device: torch.device, datatype: str, m: int, n: int, k: int) -> Callable[[], object]:
    if datatype == "fp8":
        one = torch.ones((), device=device)

        def scaled() -> object:
            if not made:
                made.append(torch.randn(m, k, device=device).to(torch.float8_e4m3fn))
                made.append(torch.randn(n, k, device=device).to(torch.float8_e4m3fn).t())
            return torch._scaled_mm(made[0], made[1], scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

        made: list[torch.Tensor] = []
        return scaled
    if datatype == "int8":
        whole = [torch.randint(-99, 99, size, device=device, dtype=torch.int8) for size in ((m, k), (n, k))]
        return lambda: torch._int_mm(whole[0], whole[1].t())
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(datatype, torch.float32)
    a, b = torch.randn(m, k, device=device, dtype=dtype), torch.randn(k, n, device=device, dtype=dtype)

    def multiply() -> object:
        torch.backends.cuda.matmul.allow_tf32 = datatype == "tf32"
        found = a @ b
        torch.backends.cuda.matmul.allow_tf32 = False
        return found

    return multiply


def _attention(device: torch.device, scale: Scale) -> Measured:
    """Causal attention: FLOPs of scores that are not masked, forward alone and with its backward pass (2.5 times as many)."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kernels = {"default": None, "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    for batch, heads, seq, dim in scale.attention:
        q, k, v = (
            torch.randn(batch, heads, seq, dim, device=device, dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        )
        forward_flops = 2.0 * batch * heads * seq * (seq + 1) * dim
        for kernel, backend in kernels.items():

            def forward(q=q, k=k, v=v, backend=backend) -> Any:  # type: ignore[no-untyped-def]
                if backend is None:
                    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                with sdpa_kernel([backend]):
                    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

            def both(forward=forward, q=q) -> None:  # type: ignore[no-untyped-def]
                out = forward()
                torch.autograd.backward(out, out.detach())
                q.grad = None

            about = {"kernel": kernel, "batch": batch, "heads": heads, "seq": seq, "head_dim": dim}

            def alone(forward=forward) -> None:  # type: ignore[no-untyped-def]
                with torch.no_grad():
                    forward()

            yield {**about, "passes": "forward"}, alone, {"flops_per_s": forward_flops}
            yield {**about, "passes": "forward and backward"}, both, {"flops_per_s": 3.5 * forward_flops}


def _memory(device: torch.device, scale: Scale) -> Measured:
    """Bytes read and written together."""
    count = scale.copy_bytes // 2
    a, b = (torch.randn(count, device=device, dtype=torch.bfloat16) for _ in range(2))
    yield {"operation": "copy", "bytes": 2 * count}, lambda: b.copy_(a), {"bytes_per_s": 4.0 * count}
    yield {"operation": "add in place", "bytes": 2 * count}, lambda: b.add_(a), {"bytes_per_s": 6.0 * count}
    yield {"operation": "read", "bytes": 2 * count}, a.amax, {"bytes_per_s": 2.0 * count}


def _host_copies(device: torch.device, scale: Scale) -> Measured:
    size = scale.host_bytes
    there = torch.empty(size, device=device, dtype=torch.uint8)
    pageable = torch.ones(size, dtype=torch.uint8)
    kinds = {"pageable": pageable, **({"pinned": pageable.pin_memory()} if device.type == "cuda" else {})}
    for kind, here in kinds.items():
        about = {"host_memory": kind, "bytes": size}

        def bring(here: torch.Tensor = here) -> object:
            return there.copy_(here, non_blocking=True)

        def fetch(here: torch.Tensor = here) -> object:
            return here.copy_(there, non_blocking=True)

        yield {**about, "to": "device"}, bring, {"bytes_per_s": float(size)}
        yield {**about, "to": "host"}, fetch, {"bytes_per_s": float(size)}


LAUNCHES = 1000


def _launches(device: torch.device, scale: Scale) -> Measured:
    """Kernels of next to no work, one after another: from PyTorch, and as a graph of CUDA."""
    del scale
    x = torch.zeros(32, device=device)

    def launch() -> None:
        for _ in range(LAUNCHES):
            x.add_(1.0)

    yield {"way": "one call each", "kernels": LAUNCHES}, launch, {"kernels_per_s": float(LAUNCHES)}
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        yield {"way": "one graph", "kernels": LAUNCHES}, graph.replay, {"kernels_per_s": float(LAUNCHES)}
