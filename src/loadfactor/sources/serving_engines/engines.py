"""Names of the counters of serving engines: facts, by unit of progress. Names are compared with `_` in place of `:`.

vLLM's gpu_prefix_cache_hits_total is left out: it counted blocks in some versions and tokens in others. Its
prompt_tokens_recomputed_total counts tokens of the cache that were computed again for a forward pass, not preempted work.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

Labels = tuple[tuple[str, str], ...]
"""Labels of a series and their values, sorted."""
PROMPT, CACHED, OUTPUT = "prompt_token", "cached_prompt_token", "output_token"
REQUEST, PREEMPTION = "request", "preemption"
RUNNING, WAITING = "running_request_s", "waiting_request_s"
"""Units that engines tell: tokens of prompts (those from a cache among them), of answers, requests that ended as they should,
how often one was preempted, and the seconds that requests ran and waited."""


@dataclass(frozen=True)
class Engine:
    """One engine. `counts` and `gauges` give the metrics of a unit, the best one first.

    `only` keeps series whose label has one of these values, where they have it; `without` leaves out series with one of these.
    Series of a page that differ in the labels of `copies` alone tell the same. `needs` is a label that each of its series has.
    A series with the label `routed` that names no model is of a router: it tells what the engines behind it tell themselves.
    """

    name: str
    counts: Mapping[str, tuple[str, ...]]
    gauges: Mapping[str, tuple[str, ...]]
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    without: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    copies: tuple[str, ...] = ()
    needs: str = ""
    routed: str = ""


def _run_on_ray(engine: Engine) -> Engine:
    """The engine as Ray Serve exports it: the same names behind `ray_`, of each worker."""
    counts, gauges = (
        {unit: tuple(f"ray_{name}" for name in names) for unit, names in of.items()}
        for of in (engine.counts, engine.gauges)
    )
    return replace(engine, name=f"{engine.name} on Ray", counts=counts, gauges=gauges)


VLLM: Final = Engine(
    "vllm",
    {
        PROMPT: ("vllm_prompt_tokens_total",),
        CACHED: ("vllm_prompt_tokens_cached_total", "vllm_prefix_cache_hits_total"),
        OUTPUT: ("vllm_generation_tokens_total",),
        REQUEST: ("vllm_request_success_total",),
        PREEMPTION: ("vllm_num_preemptions_total",),
    },
    {RUNNING: ("vllm_num_requests_running",), WAITING: ("vllm_num_requests_waiting",)},
    without={"finished_reason": ("abort", "error")},
    routed="server",
)
SGLANG: Final = Engine(
    "sglang",
    {
        PROMPT: ("sglang_prompt_tokens_total",),
        CACHED: ("sglang_cached_tokens_total",),
        OUTPUT: ("sglang_generation_tokens_total",),
        REQUEST: ("sglang_num_requests_total",),
        PREEMPTION: ("sglang_num_retracted_requests_total",),
    },
    {RUNNING: ("sglang_num_running_reqs",), WAITING: ("sglang_num_queue_reqs",)},
    copies=("tp_rank", "pp_rank", "moe_ep_rank"),  # of data parallelism each rank does work of its own
)
TGI: Final = Engine(
    "tgi",
    {
        PROMPT: ("tgi_request_input_length_sum",),
        OUTPUT: ("tgi_request_generated_tokens_sum",),
        REQUEST: ("tgi_request_success", "tgi_request_success_total"),
    },
    {RUNNING: ("tgi_batch_current_size",), WAITING: ("tgi_queue_size",)},
)
TRITON: Final = Engine(
    "triton",
    {
        PROMPT: ("nv_llm_input_token_len_sum",),
        OUTPUT: ("nv_llm_output_token_len_sum",),
        REQUEST: ("nv_llm_output_token_len_count",),  # nv_inference_request_success counts every step of an ensemble
    },
    {RUNNING: ("nv_trt_llm_request_metrics",)},
    only={"request_type": ("active",)},
)
TRITON_WAITING: Final = Engine(
    "triton", {}, {WAITING: ("nv_trt_llm_request_metrics",)}, only={"request_type": ("waiting",)}
)
TRTLLM: Final = Engine(
    "trtllm",
    {
        PROMPT: ("trtllm_prompt_tokens_total",),
        OUTPUT: ("trtllm_generation_tokens_total",),
        REQUEST: ("trtllm_request_success_total",),
    },
    {RUNNING: ("trtllm_num_requests_running",), WAITING: ("trtllm_num_requests_waiting",)},
    without={"finished_reason": ("cancelled", "timeout")},
)
NIM: Final = Engine(
    "nim",
    {
        PROMPT: ("prompt_tokens_total",),
        OUTPUT: ("generation_tokens_total",),
        REQUEST: ("request_success_total", "request_finish_total"),
    },
    {RUNNING: ("num_requests_running",), WAITING: ("num_requests_waiting",)},
    without={"finished_reason": ("abort", "error")},
    needs="model_name",  # others may count under such names, too
)
LLAMA_CPP: Final = Engine(
    "llama.cpp",
    {PROMPT: ("llamacpp_prompt_tokens_total",), OUTPUT: ("llamacpp_tokens_predicted_total",)},
    {RUNNING: ("llamacpp_requests_processing",), WAITING: ("llamacpp_requests_deferred",)},
)
ENGINES: Final = (
    VLLM, SGLANG, _run_on_ray(VLLM), _run_on_ray(SGLANG), TGI, TRITON, TRITON_WAITING, TRTLLM, NIM, LLAMA_CPP,
)  # fmt: skip
ROUTERS: Final = (
    (
        ("vllm_healthy_pods", "vllm_current_qps", "vllm_num_prefill_requests"), "vLLM's router",
        "save /metrics of the engines behind it",
    ),
    (("smg_", "sgl_router_"), "SGLang's gateway", "save its /engine_metrics, or /metrics of the engines behind it"),
    (
        ("dynamo_frontend_", "dynamo_component_router_"), "the frontend of Dynamo",
        "save /metrics of its workers (DYN_SYSTEM_PORT=8081; SGLang also --enable-metrics)",
    ),
    (("ray_serve_", "ray_node_"), "Ray without an engine's counters", "set log_engine_metrics: true in the LLM's config"),
    (
        ("nv_inference_", "nv_gpu_"), "Triton without tokens",
        "let it export those of its LLM backend (nv_llm_… of TensorRT-LLM, vllm:… of vLLM)",
    ),
)  # fmt: skip
"""What stands before engines and tells again what they tell, or tells no tokens: how its names begin, what it is, what to do."""
START: Final = "process_start_time_seconds"
"""When the process began that tells: what tells a process from another one behind the same name."""

COUNTED: Final = {unit: tuple(n for e in ENGINES for n in e.counts.get(unit, ())) for e in ENGINES for unit in e.counts}
MEASURED: Final = {
    unit: tuple(n for e in ENGINES for n in e.gauges.get(unit, ())) for e in ENGINES for unit in e.gauges
}
_COUNTERS: Final = {name: engine for engine in ENGINES for names in engine.counts.values() for name in names}
_GAUGES: Final = {
    name: [(other, unit) for other in ENGINES for unit, of in other.gauges.items() if name in of]
    for engine in ENGINES
    for names in engine.gauges.values()
    for name in names
}


def spell(name: str) -> str:
    """The name as it is compared.

    >>> spell("vllm:prompt_tokens_total")
    'vllm_prompt_tokens_total'
    """
    return name.replace(":", "_")


def is_counter(name: str) -> bool:
    """True for a counter of an engine that is understood, as `spell` writes it."""
    return name in _COUNTERS


def counts(name: str, labels: Mapping[str, str]) -> bool:
    """True where a series of a counter is one to count: no other rank of the same work, no request that was broken off."""
    return _fits(_COUNTERS[name], labels)


def find_gauge(name: str, labels: Mapping[str, str]) -> str | None:
    """The unit that a series of a gauge tells the rate of; None where it tells none."""
    return next((unit for engine, unit in _GAUGES.get(name, ()) if _fits(engine, labels)), None)


def is_engines(name: str) -> bool:
    """True for what engines tell, and for when a process began."""
    return name == START or name in _COUNTERS or name in _GAUGES


def is_told(name: str, labels: Mapping[str, str]) -> bool:
    """True where a series tells something: one to count, a gauge, or when a process began."""
    if is_counter(name):
        return counts(name, labels)
    return name == START or find_gauge(name, labels) is not None


def drop_copies(name: str, labels: Mapping[str, str]) -> Labels:
    """The labels of a series, sorted, without those that tell copies apart.

    >>> drop_copies("sglang_prompt_tokens_total", {"tp_rank": "3", "dp_rank": "1"})
    (('dp_rank', '1'),)
    """
    engine = _COUNTERS[name] if is_counter(name) else _GAUGES[name][0][0]
    return tuple(sorted((label, value) for label, value in labels.items() if label not in engine.copies))


def list_names() -> list[str]:
    """Every metric that is understood, as an expression for both ways to write it.

    >>> "vllm[:_]prompt_tokens_total" in list_names()
    True
    """
    return [START, *(re.sub("^((?:ray_)?[a-z]+)_", r"\1[:_]", name) for name in sorted({*_COUNTERS, *_GAUGES}))]


def find_router(name: str) -> tuple[str, str] | None:
    """What a page with such a name, as `spell` writes it, is of if it is of no engine, and what to do.

    >>> find_router("smg_router_requests_total")[0]
    "SGLang's gateway"
    """
    return next(((what, do) for starts, what, do in ROUTERS if name.startswith(starts)), None)


def _fits(engine: Engine, labels: Mapping[str, str]) -> bool:
    if engine.needs and engine.needs not in labels:
        return False
    if engine.routed in labels and not {"model_name", "model"} & labels.keys():
        return False
    return all(labels.get(name, values[0]) in values for name, values in engine.only.items()) and not any(
        labels.get(name) in values for name, values in engine.without.items()
    )
