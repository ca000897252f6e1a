"""Constants of serving engines on accelerators: shares of the datasheet and fixed times, from one data file.

constants.toml says what each value was fitted on. Looked up from the most to the least specific: this accelerator and engine,
the same architecture and engine, the engine anywhere, the defaults. An accelerator nobody measured is predicted from its catalog
facts with the constants of its nearest kin, and the answer says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from loadfactor.base.errors import no_such
from loadfactor.catalog.accelerators import Accelerator, accelerator
from loadfactor.catalog.facts import read_toml


@dataclass(frozen=True)
class EngineConstants:
    """How an engine's kernels and host behave; shares are of datasheet peaks, times in seconds."""

    # kernels
    matmul_share: float  # of peak, the largest products in 16 bits
    fp8_matmul_factor: float  # of that share, products in 8 bits
    fp4_matmul_factor: float
    matmul_half_dim: float  # rows (or columns) at which a product loses half its speed
    memory_share: float  # streaming weights
    expert_half_dim: float  # the same of grouped products, one for each expert
    cache_share: float  # of bandwidth, reading the key-value cache
    attention_share: float  # of 16-bit peak, attention itself
    expert_skew: float  # how much fuller the fullest expert-parallel rank is than random routing makes it
    # links
    link_share: float
    link_latency_s: float
    # launches and the host
    kernel_s: float
    step_s: float
    sequence_s: float
    request_s: float
    # how the engine schedules
    mixed: bool  # prompts share a step with decoding (chunked prefill); else they stop it
    chunk_tokens: int
    max_sequences: int
    memory_for_engine_share: float  # of what the driver shows, left to weights and cache
    shares_what_is_free: bool  # that share is of what weights leave, not of the whole
    engine_bytes: float  # activations, graphs, communication buffers
    narrow_cache: bool  # keeps the cache in 8 bits when the weights are that narrow
    windows_all_layers: bool  # attends to a window alone where every layer of a network has one, by itself
    poll_steps: int  # decode steps between two looks for new requests
    ahead_steps: (
        float  # steps that a first token waits beside running sequences, as steps are launched before results are read
    )
    # where the numbers come from
    engine: str = ""
    fitted_on: str = ""
    is_estimate: bool = False


@cache
def _read_file() -> Mapping[str, Any]:
    return read_toml(__package__, "constants.toml")


def list_engine_constants() -> Mapping[str, Any]:
    """Every constant as the file gives it: defaults, engines, and the pairs of accelerator and engine that were fitted."""
    return _read_file()


def read_engine_constants(chip: Accelerator, name: str) -> EngineConstants:
    """The constants of an engine on an accelerator, with where they come from; raises InputError for an unknown engine."""
    file = _read_file()
    name = name.lower().replace("tensorrt-llm", "trtllm").replace("tensorrt_llm", "trtllm")
    if name not in file["engine"]:
        raise no_such("engine", name, file["engine"])
    values = {**file["default"], **file["engine"][name]}
    fitted = file["fitted"]
    exact = [row for row in fitted if row["accelerator"] == chip.id and row["engine"] == name]
    kin = [
        row
        for row in fitted
        if row["engine"] == name and accelerator(row["accelerator"]).architecture == chip.architecture
    ]
    if exact:
        origin, rows = exact[0]["fitted_on"], exact
    elif kin:
        origin, rows = f"{kin[0]['accelerator']} ({chip.architecture}): {kin[0]['fitted_on']}", kin[:1]
    else:
        origin, rows = file["engine"][name].get("fitted_on", file["default"]["fitted_on"]), []
    for row in rows:
        values.update({k: v for k, v in row.items() if k not in ("accelerator", "engine")})
    values.update(engine=name, fitted_on=origin, is_estimate=not exact)
    known = {f.name for f in fields(EngineConstants)}
    return EngineConstants(**{k: v for k, v in values.items() if k in known})
