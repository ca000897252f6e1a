"""The step equation of planner/serving/step.py as tables for the compiled loop, to the same numbers."""

from dataclasses import dataclass

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.base.units import BITS_PER_BYTE
from loadfactor.planner.hardware.kernels import Real
from loadfactor.planner.serving.attention import NO_WINDOW
from loadfactor.planner.serving.simulation.state import Costs, StepRates, as_record
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
        touched = experts_touched(x.count / x.ranks, expert_load(r, x, tokens))
        total = total + x.layers * touched * x.weights * x.bits / BITS_PER_BYTE
    return total


def token_flops(r: Replica) -> float:
    """FLOPs of one token's matrix products on one accelerator."""
    return 2 * r.network.matmul_parameters / r.layout.gpus


def tabulate_costs(
    r: Replica, chunk_tokens: int, max_sequences: int, speculation: Speculation = Speculation()
) -> Costs:
    """The tables of a replica whose steps hold at most `chunk_tokens` of prompts and `max_sequences` sequences."""
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
