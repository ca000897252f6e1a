"""What is planned for a request: demand, objective, policy and options of the engine, from the facts it names."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from loadfactor.base.errors import InputError, PlanError
from loadfactor.base.limits import shorten
from loadfactor.base.units import MS_PER_S, S_PER_HOUR
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.engines import EngineConstants
from loadfactor.catalog.models import Network
from loadfactor.catalog.prices import ChosenPrice
from loadfactor.planner.serving.demand import Lengths, RequestDemand, build_demand
from loadfactor.planner.serving.fleet_run import Policy
from loadfactor.planner.serving.layouts import FixedLayout, choose_precision
from loadfactor.planner.serving.request import ServingRequest
from loadfactor.planner.serving.service import Traffic
from loadfactor.planner.serving.serving_plan import ServingInputs
from loadfactor.planner.serving.simulation.fleet import Autoscale, Failures, PrefixCache, Slo, Speculation
from loadfactor.planner.serving.simulation.simulate import Arrivals


@dataclass(frozen=True)
class RequestTrace:
    """Real requests: the demand behind them, a fresh stream of them at each call, tokens in a prefix block (0: no hashes)."""

    demand: RequestDemand
    stream: Callable[[], Iterable[Arrivals]]
    prefix_block_tokens: int = 0


def build_inputs(
    request: ServingRequest,
    network: Network,
    accelerator: Accelerator,
    engine: EngineConstants,
    price: ChosenPrice,
    trace: RequestTrace | None = None,
) -> ServingInputs:
    """What is planned, from the request and the facts it names. Raises InputError for options that exclude each other."""
    if request.prefill_replicas and request.replicas is None:
        raise InputError(
            "--prefill-replicas needs --replicas: the whole number of replicas, of which some compute prompts"
        )
    if request.chunked_prefill is not None:
        engine = replace(engine, mixed=request.chunked_prefill)
    demand = trace.demand if trace else _demand_of_users(request, network)
    lengths = demand.lengths
    traffic = Traffic(
        lengths.prompt_mean,
        lengths.output_mean,
        lengths.prompt_cv,
        request.prefix_share,
        parse_speculation(request.speculate),
        bool(request.prefill_replicas),
    )
    return ServingInputs(
        network=network,
        accelerator=accelerator,
        precision=choose_precision(network, request.precision, None if engine.narrow_cache else 2.0),
        engine=engine,
        demand=demand,
        slo=Slo(request.ttft, request.tpot / MS_PER_S),
        price_per_gpu_hour=price.per_gpu_hour,
        currency=price.currency,
        wanted_share=request.attainment,
        traffic=traffic,
        policy=_policy(request, trace.prefix_block_tokens if trace else 0),
        replicas=request.replicas,
        fixed=FixedLayout(request.tp, request.pp, request.ep, request.attention_dp, request.gpus_per_replica),
        trace=trace.stream if trace else None,
        seed=request.seed,
    )


def _demand_of_users(request: ServingRequest, network: Network) -> RequestDemand:
    lengths = Lengths(request.input_tokens, request.output_tokens, longest=network.max_context)
    demand = build_demand(request.users, request.requests_per_user, lengths, request.shape)
    return replace(demand, process=request.arrivals, burst_factor=request.burst_factor, gap_cv=request.gap_cv)


def _policy(request: ServingRequest, prefix_block_tokens: int) -> Policy:
    return Policy(
        router=request.router,
        order=request.order,
        prefix=PrefixCache.in_host_memory(prefix_block_tokens) if prefix_block_tokens else PrefixCache(),
        autoscale=Autoscale(cold_start_s=request.cold_start) if request.autoscale else None,
        failures=Failures(request.mtbf_hours * S_PER_HOUR) if request.mtbf_hours else None,
        prefill_replicas=request.prefill_replicas,
    )


def parse_speculation(text: str | None) -> Speculation:
    """Speculative decoding written as drafted:acceptance; None is none. Raises InputError when it is written otherwise.

    >>> parse_speculation("3:0.7").acceptance
    0.7
    """
    if text is None:
        return Speculation()
    drafted, _, acceptance = text.partition(":")
    try:
        return Speculation(int(drafted), float(acceptance))
    except PlanError as error:
        raise InputError(f"--speculate {shorten(text)}: {error}; 3:0.7 drafts three tokens, 70 % accepted") from error
    except ValueError:
        raise InputError(
            f"--speculate {shorten(text)} is not drafted:acceptance; 3:0.7 drafts three tokens, 70 % accepted"
        ) from None
