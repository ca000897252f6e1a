"""The simulated fleet: batching, routing, caching, scaling and failures of replicas that are all alike."""

from dataclasses import dataclass, field
from typing import get_args

from loadfactor.base.errors import PlanError
from loadfactor.base.units import NS_PER_S
from loadfactor.planner.serving.choices import Order, Router
from loadfactor.planner.serving.simulation import state
from loadfactor.planner.serving.simulation.costs import Speculation
from loadfactor.planner.serving.simulation.state import Costs, Rules

ROUTERS: tuple[Router, ...] = get_args(Router)  # in the order of the constants in state.py
HOST_MEMORY_TOKENS = 200_000  # per way of the cache
ORDERS: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True)
class Batching:
    """How a replica composes its steps, and how much cache it has."""

    cache_tokens: int
    max_sequences: int = 256
    chunk_tokens: int = 8192
    mixed: bool = True
    block_tokens: int = 16
    order: Order = "first-come"
    max_context: int = 131_072
    queue_limit: int = 20_000
    poll_steps: int = 1  # decode steps between two looks for new requests


@dataclass(frozen=True)
class PrefixCache:
    """Prompts found again: `cached_share` of each; or, where requests carry hashes, `blocks` of `block_tokens` a replica."""

    cached_share: float = 0.0
    blocks: int = 0
    block_tokens: int = 512

    @classmethod
    def in_host_memory(cls, block_tokens: int) -> "PrefixCache":
        """Blocks of a replica's host memory, as offloading of the key-value cache keeps them."""
        return cls(blocks=HOST_MEMORY_TOKENS // block_tokens * state.PREFIX_WAYS, block_tokens=block_tokens)


@dataclass(frozen=True)
class Autoscale:
    """Replicas follow the sequences outstanding, `target` in each; one starts in `cold_start_s`, a spare one goes after `lag_s`."""

    least: int = 1
    target: float = 64.0
    interval_s: float = 15.0
    cold_start_s: float = 180.0
    lag_s: float = 300.0


@dataclass(frozen=True)
class Failures:
    """Each replica fails at random, every `mtbf_s` on average, and is back after `repair_s`; its requests start again."""

    mtbf_s: float
    repair_s: float = 1800.0


@dataclass(frozen=True)
class Slo:
    """What a request must see to count as served well."""

    ttft_s: float = 2.0
    tpot_s: float = 0.05


@dataclass(frozen=True)
class ServingFleet:
    """Replicas alike, with a router before them. `prefill_replicas` > 0 splits prompts from decoding; caches then travel."""

    costs: Costs
    batching: Batching
    replicas: int
    router: Router = "least-loaded"
    prefix: PrefixCache = field(default_factory=PrefixCache)
    speculation: Speculation = field(default_factory=Speculation)
    autoscale: Autoscale | None = None
    failures: Failures | None = None
    slo: Slo = field(default_factory=Slo)
    prefill_replicas: int = 0
    transfer_s_per_token: float = 0.0
    closed_loop: bool = False  # a finished request is followed at once by one like it
    pool_limit: int = 200_000  # requests in the system at once; more are turned away

    def __post_init__(self) -> None:
        b = self.batching
        if self.replicas < 1 or b.max_sequences < 1 or b.chunk_tokens < 1 or b.block_tokens < 1 or b.poll_steps < 1:
            raise PlanError("a fleet needs at least one replica, one sequence and one token a step")
        if b.cache_tokens < b.block_tokens:
            raise PlanError(
                f"a cache of {b.cache_tokens} tokens holds no block of {b.block_tokens}; the network does not fit"
            )
        if not 0 <= self.prefix.cached_share < 1:
            raise PlanError(f"cached_share lies between 0 and below 1, got {self.prefix.cached_share:g}")
        if self.prefill_replicas and not 0 < self.prefill_replicas < self.replicas:
            raise PlanError(f"of {self.replicas} replicas, {self.prefill_replicas} for prompts leaves none to decode")
        if self.prefill_replicas and (self.autoscale or self.failures or self.router == "shared-queue"):
            raise PlanError("disaggregated fleets are simulated at a fixed size, without failures and with a router")
        if self.autoscale and not 1 <= self.autoscale.least <= self.replicas:
            raise PlanError(
                f"the least number of replicas lies between 1 and {self.replicas}, got {self.autoscale.least}"
            )

    def build_rules(self) -> Rules:
        """The numbers the compiled loop works with; times in whole nanoseconds."""
        b, scale, fail = self.batching, self.autoscale, self.failures
        return Rules(
            max_sequences=b.max_sequences,
            chunk_tokens=b.chunk_tokens,
            mixed=int(b.mixed),
            blocks=b.cache_tokens // b.block_tokens,
            block_tokens=b.block_tokens,
            order=ORDERS.index(b.order),
            router=ROUTERS.index(self.router),
            max_context=b.max_context,
            queue_limit=b.queue_limit,
            poll_steps=b.poll_steps,
            cached_share=float(self.prefix.cached_share),
            prefix_block_tokens=self.prefix.block_tokens,
            closed_loop=int(self.closed_loop),
            slo_ttft_ns=round(self.slo.ttft_s * NS_PER_S),
            slo_tpot_ns=round(self.slo.tpot_s * NS_PER_S),
            transfer_ns_per_token=float(self.transfer_s_per_token * NS_PER_S),
            scale_interval_ns=round(scale.interval_s * NS_PER_S) if scale else 0,
            scale_target=float(scale.target) if scale else 1.0,
            least=scale.least if scale else self.replicas,
            cold_start_ns=round(scale.cold_start_s * NS_PER_S) if scale else 0,
            scale_down_lag_ns=round(scale.lag_s * NS_PER_S) if scale else 0,
            mtbf_ns=float(fail.mtbf_s * NS_PER_S) if fail else 0.0,
            repair_ns=round(fail.repair_s * NS_PER_S) if fail else 0,
        )

    def list_roles(self) -> list[int]:
        """What each replica does."""
        if not self.prefill_replicas:
            return [state.BOTH] * self.replicas
        return [state.PREFILL] * self.prefill_replicas + [state.DECODE] * (self.replicas - self.prefill_replicas)
