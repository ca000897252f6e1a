"""Prefill and decode of a network with random weights in plain PyTorch: what an engine does, without the engine."""

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.hardware.clocks import time_calls
from benchmarks.hardware.model import build
from benchmarks.hardware.scale import Scale


def serve(scale: Scale, device: torch.device, has_time: Callable[[], bool]) -> dict[str, Any]:
    """Seconds of prompts of several lengths, and of a step that decodes one token for several sequences."""
    shape = scale.served
    dtype = torch.bfloat16
    network = build(shape, device, dtype).eval()
    rows: list[dict[str, Any]] = []

    def make_cache(batch: int, context: int) -> torch.Tensor:
        return torch.zeros(
            shape.layers, 2, batch, shape.kv_heads, context, shape.head_dim, device=device, dtype=dtype
        ).normal_()

    def measure(about: dict[str, Any], make: Callable[[], Callable[[], object]]) -> None:
        if not has_time():
            rows.append({**about, "left_out": "no time was left; give more --minutes"})
            return
        try:
            rows.append({**about, **time_calls(device, make(), scale.window_s)})
        except (RuntimeError, NotImplementedError) as error:
            rows.append({**about, "error": str(error)[:300]})

    with torch.no_grad():
        for prompt in scale.prompts:

            def make_prefill(prompt: int = prompt) -> Callable[[], object]:
                tokens = torch.randint(0, shape.vocabulary, (1, prompt), device=device)
                cache, positions = make_cache(1, prompt), network.positions(0, prompt, dtype)
                return lambda: network.read_prompt(tokens, *positions, cache)

            measure({"phase": "prefill", "sequences": 1, "prompt_tokens": prompt}, make_prefill)
        for way in ("one graph", "one call each"):
            for sequences in scale.sequences:

                def make_decode(sequences: int = sequences, way: str = way) -> Callable[[], object]:
                    tokens = torch.randint(0, shape.vocabulary, (sequences, 1), device=device)
                    cache, positions = (
                        make_cache(sequences, scale.context),
                        network.positions(scale.context - 1, 1, dtype),
                    )

                    def step() -> object:
                        return network.decode(tokens, *positions, cache)

                    return _capture(step) if way == "one graph" and device.type == "cuda" else step

                about = {"phase": "decode", "way": way, "sequences": sequences, "context": scale.context}
                measure(about, make_decode)
    return {
        "shape": shape.describe(),
        "precision": "bf16",
        "rows": rows,
        "vllm": _describe_vllm(),
        "measured_at_s": time.time(),
    }


def _capture(step: Callable[[], object]) -> Callable[[], object]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _describe_vllm() -> str:
    try:
        import vllm  # type: ignore[import-not-found]
    except ImportError:
        return "vLLM is not installed here"
    return (
        f"vLLM {vllm.__version__} is installed: `loadfactor plan serve --measured` reads what `vllm bench serve` saves"
    )
