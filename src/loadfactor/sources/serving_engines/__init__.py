"""Saved /metrics of serving engines: vLLM, SGLang, TGI, Triton with TensorRT-LLM, trtllm-serve, NIM, llama.cpp."""

from loadfactor.sources.base import Source
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.serving_engines.decoder import decode_engines

SOURCE = Source(
    "serving",
    find_with((".prom", ".txt", ".metrics", ".om"), "text of a serving engine", rotated=True),
    read_with(decode_engines),
    uses=("at", "timezone", "step", "job"),
)
"""Pages of one engine or of many, in files of one page or of many after each other."""
