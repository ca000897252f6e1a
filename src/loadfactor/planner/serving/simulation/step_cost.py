"""Length of a step from the tables of `Costs`, as the compiled loop looks it up."""

from loadfactor.base.compiled import inner
from loadfactor.planner.serving.simulation.state import Costs


@inner
def step_seconds(costs: Costs, batch: int, context: float, tokens: int, pairs: float, window_pairs: float) -> float:
    """Length of a step of `batch` decodes over `context` cached tokens and `tokens` of prompts: the tables of `Costs`."""
    attention = (
        pairs * costs.rates.pair_s + window_pairs * costs.rates.pair_window_s + tokens * costs.rates.prompt_token_s
    )
    prompt = 0.0
    if tokens > 0:
        prompt = _by_tokens(costs, tokens) + attention
        if batch == 0:
            return float(prompt + costs.head_s[1])
    both = _by_tokens(costs, tokens + batch * costs.rates.decode_tokens) + attention
    rows = batch * costs.rates.decode_tokens + (1 if tokens > 0 else 0)
    both += costs.head_s[min(rows, costs.head_s.size - 1)]
    both += (
        costs.rates.context_s * context
        + costs.rates.window_s * min(context, costs.rates.window * batch)
        + costs.rates.sequence_s * batch
    )
    # a speculative step is worth `accepted` plain ones: its decode part is spread over them
    return float(prompt + (both - prompt) / costs.rates.accepted)


@inner
def _by_tokens(costs: Costs, tokens: int) -> float:
    last = costs.tokens_s.size - 1
    if tokens <= last:
        return float(costs.tokens_s[tokens])
    return float(costs.tokens_s[last] + (tokens - last) * costs.rates.token_slope_s)
