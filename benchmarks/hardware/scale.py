"""How large and how long everything is: on a GPU, by the minutes there are; on a processor, just enough to show that it works."""

from dataclasses import dataclass

import torch

from benchmarks.hardware.model import Shape


@dataclass(frozen=True)
class Scale:
    """`window_s`: of one rate; `load_s`: of a load that telemetry watches.

    Products are (m, n, k), attention (batch, heads, seq, head).
    """

    window_s: float
    load_s: float
    traced_steps: int
    products: tuple[tuple[int, int, int], ...]
    thin: tuple[int, int]
    attention: tuple[tuple[int, int, int, int], ...]
    copy_bytes: int
    host_bytes: int
    small: Shape
    medium: Shape
    large: Shape
    seq: int
    batches: tuple[int, int, int]
    """Sequences of a step of the small, the medium and the large network."""
    served: Shape
    prompts: tuple[int, ...]
    sequences: tuple[int, ...]
    context: int


def choose_scale(device: torch.device, minutes: float) -> Scale:
    """Loads last a sixtieth of the minutes, 2 to 15 s."""
    if device.type != "cuda":
        tiny = Shape("tiny", 2, 64, 2, 2, 128, 256)
        return Scale(
            window_s=0.02, load_s=max(0.6, min(minutes, 1.0)), traced_steps=3,
            products=((64, 64, 64), (128, 128, 128), (256, 256, 256)), thin=(128, 128),
            attention=((1, 2, 64, 32),), copy_bytes=1 << 20, host_bytes=1 << 20,
            small=tiny, medium=Shape("tiny-medium", 2, 96, 2, 2, 192, 256), large=Shape("tiny-large", 2, 128, 4, 2, 256, 256),
            seq=64, batches=(4, 2, 2), served=tiny, prompts=(16, 32), sequences=(1, 2), context=64,
        )  # fmt: skip
    return Scale(
        window_s=min(max(minutes / 15, 0.2), 2.0), load_s=min(max(minutes, 4.0), 15.0), traced_steps=5,
        products=((1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 2048, 2048), (8192, 5632, 2048),
                  (8192, 28672, 4096), (8192, 8192, 8192),
                  (16384, 16384, 16384)),
        thin=(14336, 4096),
        attention=((16, 32, 1024, 128), (4, 32, 4096, 128), (1, 32, 16384, 128), (4, 32, 4096, 64)),
        copy_bytes=4 << 30, host_bytes=1 << 30,
        small=Shape("160M", 12, 768, 12, 12, 2048, 32768),
        medium=Shape("1B", 16, 2048, 16, 16, 5632, 32768),
        large=Shape("2B-wide", 8, 4096, 32, 8, 14336, 32768),
        seq=2048, batches=(16, 4, 4),
        served=Shape("llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256),
        prompts=(128, 512, 2048, 8192), sequences=(1, 8, 32, 64), context=1024,
    )  # fmt: skip
