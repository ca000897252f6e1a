"""What pages of serving engines give: which engines they are, and what they do not tell."""

from collections.abc import Collection

from loadfactor.collect.discovery.shortfalls import Shortfall
from loadfactor.sources.serving_engines.engines import CACHED, COUNTED, ENGINES, OUTPUT, PROMPT, REQUEST, START, spell

_COSTS = {
    PROMPT: "cost_per_million_prompt_tokens, and all that is shared out by tokens",
    OUTPUT: "cost_per_million_output_tokens, and all that is shared out by tokens",
    CACHED: "cached_prompt_share, cost_per_million_cached_prompt_tokens",
    REQUEST: "cost_per_request",
}


def find_engines(metrics: Collection[str]) -> tuple[str, ...]:
    """The engines that have metrics of these names."""
    names = {spell(name) for name in metrics}
    told = {e.name: {name for of in (*e.counts.values(), *e.gauges.values()) for name in of} for e in ENGINES}
    return tuple(sorted(engine for engine, known in told.items() if names & known))


def list_untold(metrics: Collection[str]) -> tuple[Shortfall, ...]:
    """What metrics of these names do not tell."""
    names = {spell(name) for name in metrics}
    if not find_engines(metrics):
        do = "name the engines in [[serving]] with the port of their /metrics (vLLM: 8000); SGLang: --enable-metrics"
        return (Shortfall("missing", "no metrics of a serving engine", "everything: nothing can be counted", do),)
    found = [
        Shortfall("note", f"no {unit.replace('_', ' ')}s", costs, "nothing, where its version does not count them")
        for unit, costs in _COSTS.items()
        if not names.intersection(COUNTED[unit])
    ]
    if START not in names:
        what = f"no {START}: a process cannot be told from another one"
        costs = "what was made over a gap between scrapes; what replicas behind one name make"
        found.append(Shortfall("note", what, costs, "list each replica by an address of its own"))
    return tuple(found)
