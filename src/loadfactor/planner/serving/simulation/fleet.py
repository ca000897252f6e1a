"""The simulated fleet: batching, routing, caching, scaling and failures of replicas that are all alike."""

from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.base.units import BITS_PER_BYTE, NS_PER_S
from loadfactor.planner.hardware.kernels import Real
from loadfactor.planner.serving.matrices import NO_WINDOW
from loadfactor.planner.serving.request import Order, Router
from loadfactor.planner.serving.simulation import state
from loadfactor.planner.serving.simulation.state import Costs, Rules, StepRates, as_record
from loadfactor.planner.serving.step import (
    ACTIVATION_BYTES,
    Replica,
    dense_s,
    expert_load,
    experts_s,
    experts_touched,
    head_s,
    links_s,
    part_rows,
    passes_s,
)

MOST_DRAFTED = 100


@dataclass(frozen=True)
class Speculation:
    """A small network drafts `drafted` tokens, each accepted with chance `acceptance`; one draft costs `draft_share` of a step."""

    drafted: int = 0
    acceptance: float = 0.0
    draft_share: float = 0.05

    def __post_init__(self) -> None:
        if not 0 <= self.drafted <= MOST_DRAFTED or not 0 <= self.acceptance < 1 or self.draft_share < 0:
            raise PlanError(
                f"speculation drafts 0 to {MOST_DRAFTED} tokens and accepts a share from 0 to below 1, got "
                f"{self.drafted} and {self.acceptance:g}"
            )

    @property
    def tokens_per_step(self) -> float:
        """Expected tokens a step yields: 1 + a + a² + … + a^drafted.

        >>> Speculation(3, 0.5).tokens_per_step
        1.875
        """
        a = self.acceptance
        return sum(a**i for i in range(self.drafted + 1))

    @property
    def speed(self) -> float:
        """Tokens per step over the time drafting adds to it."""
        return self.tokens_per_step / (1 + self.drafted * self.draft_share)


def tokens_bytes(r: Replica, tokens: Real) -> Real:
    """Bytes one accelerator moves for the weights a step of `tokens` reads, and for its activations."""
    weights = sum(m.count * m.out * m.into * m.bits for m in (*r.dense, r.head)) / BITS_PER_BYTE
    values = sum(m.count * (m.out + m.into) for m in r.dense) * ACTIVATION_BYTES
    tokens = part_rows(r, tokens)
    total: Real = weights + values * tokens / r.layout.attention_dp
    if r.experts is not None:
        x = r.experts
        touched = experts_touched(x.count / x.ranks, expert_load(r, x, tokens), r.engine.expert_unevenness)
        total = total + x.layers * touched * x.weights * x.bits / BITS_PER_BYTE
    return total


def token_flops(r: Replica) -> float:
    return 2 * r.network.matmul_parameters / r.layout.gpus


def tabulate_costs(
    r: Replica, chunk_tokens: int, max_sequences: int, speculation: Speculation = Speculation()
) -> Costs:
    most = chunk_tokens + max_sequences * (1 + speculation.drafted)
    if most > 2_000_000:
        raise PlanError(f"a step of {most:,} tokens is more than a replica can be tabulated for; 2,000,000 is the most")
    n = np.arange(most + 2, dtype=np.float64)
    n[0] = 1.0
    seconds = dense_s(r, n) + experts_s(r, n) + passes_s(r, n) + links_s(r, n)
    seconds = seconds + r.kernels * r.engine.kernel_s + r.engine.step_s
    seconds = np.asarray(seconds, dtype=np.float64) + np.zeros_like(n)
    seconds[0] = 0.0
    rows = np.arange(max_sequences * (1 + speculation.drafted) + 2, dtype=np.float64)
    rows[0] = 1.0
    head = np.asarray(head_s(r, rows), dtype=np.float64)
    head[0] = 0.0
    a = r.attention
    rates = StepRates(
        token_slope_s=float(seconds[-1] - seconds[-2]),
        sequence_s=float(r.sequence_s + a.state_s),
        context_s=float(a.context_s),
        window_s=float(a.window_s),
        window=float(a.window),
        pair_s=float(a.pair_s),
        pair_window_s=float(a.pair_window_s),
        decode_tokens=1 + speculation.drafted,
        accepted=float(speculation.speed),
        prompt_token_s=float(a.state_token_s),
        context_bytes=float(a.context_bytes + (a.window_bytes if a.window < NO_WINDOW else 0.0)),
        token_flops=float(token_flops(r)),
        pair_flops=float(a.pair_flops),
    )
    moved = np.asarray(tokens_bytes(r, n), dtype=np.float64) + np.zeros_like(n)
    return Costs(as_record(rates), seconds, head, moved)


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
    poll_steps: int = 1  # steps of the engine between two looks for new requests
    wait_steps: int = 0  # steps for which a prompt waits for others, unless a whole step of them waits


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
    """Latency that a request must see to count as served well."""

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
            poll_steps=round(b.poll_steps * self.speculation.tokens_per_step),
            wait_steps=round(b.wait_steps * self.speculation.tokens_per_step),
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
        if not self.prefill_replicas:
            return [state.BOTH] * self.replicas
        return [state.PREFILL] * self.prefill_replicas + [state.DECODE] * (self.replicas - self.prefill_replicas)
