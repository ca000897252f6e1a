"""Options of `plan serve`, and the names from which it lets people choose."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from loadfactor.base.limits import GPU_COUNT, GPU_HOUR_PRICE, MOST_GPUS, SEED
from loadfactor.base.request import option
from loadfactor.base.units import S_PER_DAY
from loadfactor.planner.hardware.workload import USER_COUNT, USERS, ServiceRequest

WeightPrecision = Literal["bf16", "fp16", "fp8", "fp4", "int8", "int4", "fp32"]
Process = Literal["poisson", "gamma", "bursts"]  # arrivals within the hour
Router = Literal["round-robin", "least-loaded", "prefix-affine", "shared-queue"]
Order = Literal["first-come", "shortest-first"]  # of a queue


FREE = "Searched where not given."


@dataclass(frozen=True, kw_only=True)
class ServingRequest(ServiceRequest):
    """A model, its demand and objective, and what may be fixed about the fleet that serves it."""

    precision: WeightPrecision | None = option("Weight quantization; as published when left out.", None)
    users: float = option("Users of the service.", USERS, within=USER_COUNT)
    arrivals: Process = option("Arrivals within the hour.", "poisson")
    burst_factor: float = option(
        "Rate while bursting over the calm rate, with --arrivals bursts.", 5.0, at_least=1, at_most=1000
    )
    gap_cv: float = option(
        "Variation of the gaps between requests, with --arrivals gamma.", 2.0, at_least=0.01, at_most=100
    )
    trace: Path | None = option(
        "Requests of a trace instead: Azure CSV, Mooncake JSON lines or a ServeGen folder.", None
    )
    trace_scale: float = option("Multiply the rate of the trace.", 1.0, at_least=0.000_001, at_most=1000)
    price_per_gpu_hour: float | None = option(
        "Price of a GPU-hour; the catalog's when left out, and where it has none, costs are unknown.",
        None,
        within=GPU_HOUR_PRICE,
    )
    gpus_per_replica: int | None = option(
        "GPUs of one replica; searched when left out.", None, at_least=1, at_most=100_000
    )
    tp: tuple[int, ...] = option(f"Tensor-parallel ranks of one copy of the attention. {FREE}", (), within=GPU_COUNT)
    pp: tuple[int, ...] = option("Pipeline stages of a replica; 1 when left out.", (), within=GPU_COUNT)
    ep: tuple[int, ...] = option(f"Expert-parallel ranks of a stage. {FREE}", (), within=GPU_COUNT)
    attention_dp: tuple[int, ...] = option(
        f"Ranks with a copy of the attention each (data parallel). {FREE}", (), within=GPU_COUNT
    )
    replicas: int | None = option("Number of replicas; the fewest that do when left out.", None, within=GPU_COUNT)
    prefix_share: float = option("Share of every prompt found in the prefix cache.", 0.0, at_least=0, at_most=0.999)
    chunked_prefill: bool | None = option("Mix prompts with decoding; as the engine does when left out.", None)
    speculate: str | None = option("Speculative decoding as drafted:acceptance, e.g. 3:0.7.", None)
    prefill_replicas: int = option(
        "Replicas that compute prompts only; needs --replicas.", 0, at_least=0, at_most=MOST_GPUS
    )
    router: Router = option("How requests are routed to replicas.", "least-loaded")
    order: Order = option("Order of the queue.", "first-come")
    autoscale: bool = option("Let replicas follow the load.", False)
    cold_start: float = option("Seconds a new replica needs, with --autoscale.", 180.0, at_least=0, at_most=S_PER_DAY)
    mtbf_hours: float | None = option("Mean hours between failures of a replica.", None, at_least=0.1, at_most=1e9)
    measured: tuple[str, ...] = option(
        "Results of load tests of a replica (vllm bench serve --save-result, bench_serving), or http://NODE:PORT/metrics of one "
        "under load, watched for seconds=60: they move the engine's constants. layout=tp4/ep4 says of which replica; the one "
        "that the plan would choose when left out.",
        (),
    )
    store: Path | None = option(
        "Take demand, lengths and price from the serving jobs of the books in this folder.",
        None,
    )
    job: str | None = option("Of the books, this job alone.", None)
    start: str | None = option("Of the books, from here on: 2026-10, 2026-10-05.", None, name="--from")
    end: str | None = option("Of the books, up to here, itself not included.", None, name="--to")
    last: str | None = option("Of the books, the last part alone: 12h, 7d, 4w.", None)
    seed: int = option("Seed of everything drawn: same seed, same answer.", 1, within=SEED)
