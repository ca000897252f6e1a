"""The cost of a job that serves several, divided by what each used of it: by tokens that its gateway logged, idle time apart."""

from dataclasses import dataclass
from typing import Final

from loadfactor.metrics.metric import Made, Metric
from loadfactor.metrics.work import CACHED, OUTPUT, PROMPT, SERVED, SPLIT
from loadfactor.store.session import Session

SERVED_TOKENS: Final = Metric("served_tokens_made", "tokens", "", "", "neither", Made(SERVED))
"""Tokens that engines counted, each counted by the split."""
ROUNDING: Final = 1e-9
"""A share of tokens that comes of adding up alone."""


@dataclass(frozen=True)
class Use:
    """What one tenant, API key and feature used of a model, and its part of what held time cost, idle time apart."""

    team: str | None
    api_key: str | None
    feature: str | None
    model: str | None
    requests: float
    prompt_tokens: float
    cached_prompt_tokens: float
    output_tokens: float
    share: float
    cost: float | None


@dataclass(frozen=True)
class ServedUse:
    """Uses of a job, the greatest first, and what is nobody's: their costs, `unlogged_cost` and `idle_cost` sum to the job's.

    Where `idle_cost` is None nobody knows when it was idle, and uses bear that, too.
    `unlogged_share` is of tokens that the engines counted and no gateway logged; `half_known` requests lack one kind of tokens.
    """

    uses: tuple[Use, ...]
    unlogged_share: float
    unlogged_cost: float | None
    idle_cost: float | None
    half_known: int


def divide_use(
    session: Session,
    job: str,
    span: tuple[int, int],
    engine_tokens: float | None,
    costs: tuple[float | None, float | None],
) -> ServedUse | None:
    """Divide what a job cost by the requests that began within [start, end), ms UTC; None where none was logged.

    A token counts what `SPLIT` says. `engine_tokens` is how many the engines counted by the same split, None where nobody did;
    `costs` are those of all held time and of the idle part of it.
    """
    if not session.has_rows("served_requests"):
        return None
    session.view_table("served_requests", "served_requests")
    rows = session.raw.execute(
        f"""SELECT team, api_key, feature, model, sum(coalesce(requests, 1)), sum(coalesce(prompt_tokens, 0)),
              sum(coalesce(cached_prompt_tokens, 0)), sum(coalesce(output_tokens, 0)),
              sum(coalesce(prompt_tokens, 0) * {SPLIT[PROMPT]} + coalesce(output_tokens, 0) * {SPLIT[OUTPUT]}
                + least(coalesce(cached_prompt_tokens, 0), coalesce(prompt_tokens, 0)) * {SPLIT[CACHED] - SPLIT[PROMPT]}) AS weight,
              count(*) FILTER (prompt_tokens IS NULL OR output_tokens IS NULL)
            FROM served_requests WHERE job_id = $job AND from_utc >= $start AND from_utc < $end
            GROUP BY ALL ORDER BY weight DESC, 1, 2, 3, 4""",
        {"job": job, "start": span[0], "end": span[1]},
    ).fetchall()
    logged = sum(row[8] for row in rows)
    if not logged:
        return None
    whole = max(logged, engine_tokens or 0.0)
    cost, idle = costs
    busy = None if cost is None else cost - (idle or 0.0)

    def charge(share: float) -> float | None:
        return None if busy is None else busy * share

    uses = tuple(
        Use(team, key, feature, model, requests, prompt, cached, output, weight / whole, charge(weight / whole))
        for team, key, feature, model, requests, prompt, cached, output, weight, _ in rows
    )
    unlogged = (whole - logged) / whole if whole - logged > ROUNDING * whole else 0.0
    return ServedUse(uses, unlogged, charge(unlogged), idle, sum(row[9] for row in rows))
