"""Time to the first token in a load test, by simulation: the queue and the prompts of a closed loop, step by step.

A load generator keeps `concurrency` requests in the system and sends `WAVES` times as many. All of the first wave come at once,
and a short run never forgets it; later ones come when others end, just after the engine has begun its next step, and wait for that
step and for the prompts that came with them. Lengths differ as in the public load generators (a uniform 80 to 100 % of the
nominal): with equal lengths all requests stay in the lockstep in which they began.
"""

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.units import NS_PER_S
from loadfactor.planner.serving.cache_memory import cache_tokens
from loadfactor.planner.serving.simulation.costs import tabulate_costs
from loadfactor.planner.serving.simulation.fleet import Batching, PrefixCache, ServingFleet
from loadfactor.planner.serving.simulation.simulate import Arrivals, simulate
from loadfactor.planner.serving.simulation.state import Costs
from loadfactor.planner.serving.step import Replica

WAVES = 10  # requests of a load test over its concurrency, as public load generators send by default
SHORTEST = 0.8  # of the nominal length
SPARE_TIME = 1.1  # simulated beyond what the equations say that the waves take


def tabulate_steps(r: Replica) -> Costs:
    """The step times of a replica, for any number of load tests of it."""
    ranks = r.layout.attention_dp
    return tabulate_costs(r, r.engine.chunk_tokens * ranks, r.engine.max_sequences * ranks)


def simulate_first_token_s(
    r: Replica, costs: Costs, concurrency: int, prompt: int, output: int, wave_s: float, cached_share: float = 0.0
) -> float:
    """Mean seconds to the first token inside the engine; `wave_s` is about how long one wave of requests takes."""
    rng = np.random.default_rng(0)
    ranks, context = r.layout.attention_dp, prompt + output / 2
    batching = Batching(
        cache_tokens=max(cache_tokens(r, context), prompt + output + 1),
        max_sequences=r.engine.max_sequences * ranks,
        chunk_tokens=r.engine.chunk_tokens * ranks,
        mixed=r.engine.mixed,
        max_context=prompt + output,
        queue_limit=concurrency + 1,
        poll_steps=r.engine.poll_steps,
    )
    fleet = ServingFleet(costs, batching, 1, prefix=PrefixCache(cached_share=cached_share), closed_loop=True)
    first_wave = Arrivals(
        np.zeros(concurrency, np.int64),
        rng.integers(max(int(prompt * SHORTEST), 1), prompt, concurrency, endpoint=True),
        rng.integers(max(int(output * SHORTEST), min(output, 2)), output, concurrency, endpoint=True),
    )
    seen: list[NDArray[np.int64]] = []
    simulate(fleet, [first_wave], horizon_s=wave_s * WAVES * SPARE_TIME, records=seen.append, most_output=output + 1)
    rows = np.concatenate(seen) if seen else np.zeros((0, 6), np.int64)
    rows = rows[np.argsort(rows[:, 0], kind="stable")][: WAVES * concurrency]
    return float((rows[:, 2] - rows[:, 0]).mean()) / NS_PER_S if len(rows) else wave_s
