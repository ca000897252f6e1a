"""Constants of serving engines on accelerators: shares of the datasheet and fixed times, from one data file.

constants.toml says what each value means, what was known of it beforehand and what it was fitted on. A fitted constant is
one value with factors for an architecture, an engine and a release of one, so that what was learnt of an engine on one
accelerator, and of that accelerator with another engine, is used where nobody measured the two together. The answer says how
far that is from what was measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
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
    fp8_block_factor: float  # of that, where every block of weights has a scale
    fp4_matmul_factor: float
    matmul_half_dim: float  # rows (or columns) at which a product loses half its speed
    memory_share: float  # streaming weights
    fp4_memory_factor: float  # of that, weights of 4 bits
    fp4_expert_factor: float  # the same of experts, which one kernel reads for all
    expert_half_dim: float  # the same of grouped products, one for each expert
    cache_share: float  # of bandwidth, reading the key-value cache
    attention_share: float  # of 16-bit peak, attention itself
    expert_unevenness: (
        float  # of how popular experts are: variance over mean squared; popular ones are read once for many tokens
    )
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
    chunk_tokens: int  # of prompts and running sequences in a step
    chunk_is_prompts: bool  # of prompts alone
    max_sequences: int
    memory_for_engine_share: float  # of what the driver shows, left to weights and cache
    shares_what_is_free: bool  # that share is of what weights leave, not of the whole
    engine_bytes: float  # activations, graphs, communication buffers
    narrow_cache: bool  # keeps the cache in 8 bits when the weights are that narrow
    windows_all_layers: bool  # attends to a window alone where every layer of a network has one, by itself
    poll_steps: int  # steps between two looks for new requests
    wait_steps: int  # steps for which a prompt waits for others, unless a whole step of them waits
    draft_acceptance: float  # chance that a token drafted by the network's own layers is accepted
    ahead_steps: (
        float  # steps that a first token waits beside running sequences, as steps are launched before results are read
    )
    # where the numbers come from
    engine: str = ""
    release: str = ""  # that was named
    accelerator: str = ""
    fitted_on: str = ""
    networks: tuple[str, ...] = ()  # measured with this engine on this accelerator
    releases: tuple[str, ...] = ()  # with which that was; empty: none was named
    kin: bool = False  # another accelerator of the same architecture was measured with the engine, or this one with another engine

    @property
    def is_estimate(self) -> bool:
        """Whether nobody measured the engine on this accelerator."""
        return not self.networks

    @property
    def is_of_new_release(self) -> bool:
        """Whether a release was named with which nobody measured the engine on this accelerator, by its first two numbers."""
        return bool(self.release) and _shorten(self.release) not in {_shorten(one) for one in self.releases}


@cache
def _read_file() -> Mapping[str, Any]:
    return read_toml(__package__, "constants.toml")


def list_engine_constants() -> Mapping[str, Any]:
    """Every constant as the file gives it: the fitted ones, defaults, engines, and what was measured."""
    return _read_file()


NOT_FACTORS = ("meaning", "prior", "source", "value")


def list_factors(constant: Mapping[str, Any]) -> Mapping[str, float]:
    """The factors of a fitted constant by what they are for: an architecture, an engine, or a release of one."""
    return {key: float(v) for key, v in constant.items() if key not in NOT_FACTORS}


MOST = {"matmul_share": 0.9, "memory_share": 0.93, "cache_share": 0.93, "attention_share": 0.9, "link_share": 0.9,
        "fp8_matmul_factor": 1.0, "fp4_matmul_factor": 1.0, "fp8_block_factor": 1.0, "draft_acceptance": 0.95}  # fmt: skip
"""What is physical."""


def list_conditions(chip: Accelerator, engine: str, release: str = "") -> tuple[str, ...]:
    """Names of the factors that hold on an accelerator with an engine.

    >>> list_conditions(accelerator("b200-sxm"), "vllm", "0.15.1")
    ('Blackwell', 'vllm', 'vllm on Blackwell', 'vllm 0.15')
    """
    family = chip.architecture
    return family, engine, f"{engine} on {family}", f"{engine} {_shorten(release)}"


def _shorten(release: str) -> str:
    return ".".join(release.split(".")[:2])


RUN_SETTINGS = (
    *("poll_steps", "wait_steps", "ahead_steps"),
    *("chunk_tokens", "chunk_prompts", "chunk_is_prompts"),
    *("drafted", "alike"),
)


@cache
def _read_published_runs() -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = read_toml(__package__, "published_runs.toml")["run"]
    return found


def read_run_settings(
    chip: Accelerator, model: str, release: str, concurrency: int, **run: object
) -> Mapping[str, Any]:
    """What a published run set for itself: right for its rows, and no default of a plan. `published_runs.toml` says what they mean.

    `run`: engine, precision, tp, ep, prompt and output, each as an entry may name it.

    >>> about = dict(engine="trtllm", precision="fp8", tp=8, ep=1, prompt=8192, output=1024)
    >>> read_run_settings(accelerator("b200-sxm"), "deepseek-ai/DeepSeek-R1", "1.2.0rc6.post3", 16, **about)["drafted"]
    3
    """
    found: dict[str, Any] = {}
    for entry in _read_published_runs():
        if (
            all(_admits(entry[name], value) for name, value in run.items() if name in entry)
            and chip.id in entry["accelerators"]
            and model.lower().endswith(tuple(entry["models"]))
            and release.startswith(tuple(entry.get("releases", ("",))))
            and concurrency >= entry.get("concurrency", 0)
        ):
            found |= {name: entry[name] for name in RUN_SETTINGS if name in entry}
    return found


def _admits(condition: object, value: object) -> bool:
    return value in condition if isinstance(condition, list) else value == condition


def read_engine_constants(chip: Accelerator, name: str, release: str = "") -> EngineConstants:
    """The constants of an engine on an accelerator, with where they come from; raises InputError for an unknown engine.

    `release`: as "1.0.0rc3"; one without factors of its own when left out.
    """
    file = _read_file()
    name = name.lower().replace("tensorrt-llm", "trtllm").replace("tensorrt_llm", "trtllm")
    if name not in file["engine"]:
        raise no_such("engine", name, file["engine"])
    values = {**file["default"], **file["engine"][name], **file.get("on", {}).get(chip.id, {}).get(name, {})}
    conditions = list_conditions(chip, name, release)
    for constant, entry in file["constant"].items():
        value = float(entry["value"])
        for condition, factor in list_factors(entry).items():
            value *= factor if condition in conditions else 1.0
        values[constant] = min(value, MOST.get(constant, inf))
    exact = [row for row in file.get("measured", ()) if (row["accelerator"], row["engine"]) == (chip.id, name)]
    near = [row for row in file.get("measured", ()) if row["engine"] == name and is_kin(row["accelerator"], chip)]
    other = [row for row in file.get("measured", ()) if row["engine"] == name or is_kin(row["accelerator"], chip)]
    found = exact or near or other
    return EngineConstants(
        **values,
        engine=name,
        release=release,
        accelerator=chip.id,
        fitted_on=("" if exact else "borrowed: ") + "; ".join(describe_measured(row) for row in found),
        networks=tuple(exact[0]["networks"]) if exact else (),
        releases=tuple(exact[0]["releases"]) if exact else (),
        kin=any(is_kin(row["accelerator"], chip) for row in file.get("measured", ())),
    )


def is_kin(measured: str, chip: Accelerator) -> bool:
    """Whether an accelerator that was measured is of this one's architecture."""
    return accelerator(measured).architecture == chip.architecture


def describe_measured(row: Mapping[str, Any]) -> str:
    """What was measured of an engine on an accelerator, in words."""
    return f"{row['rows']} rows of {row['engine']} on {row['accelerator']} ({', '.join(row['networks'])})"
