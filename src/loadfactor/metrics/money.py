"""Metrics of money: what GPU-hours and units of work cost, in one cost basis and the currency of the books."""

from dataclasses import replace

from loadfactor.base.units import FLOPS_PER_EXAFLOP, TOKENS_PER_MTOK
from loadfactor.ledger.columns import HELD, STATES, UNKNOWN
from loadfactor.metrics.fullness import EFFECTIVE, LISTED
from loadfactor.metrics.metric import (
    COST,
    CURRENCY,
    EFFECTIVE_COST,
    OBSERVED,
    UNDERUSED_COST,
    Better,
    Coverage,
    Metric,
    Part,
    PerUnit,
    Ratio,
    Sum,
)
from loadfactor.metrics.work import CACHED, MODEL_FLOP, OUTPUT, PROMPT, SERVED, SPLIT


def _priced(*states: str) -> Coverage:
    return Coverage(known=Part(("gpu_s",), states, priced=True), needed=Part(("gpu_s",), states))


def cost(*states: str) -> Sum:
    """Cost of the GPU-hours in these states; of all when none is named."""
    besides = OBSERVED if {*states} & {"idle", "busy"} else None  # only samples can say which of the two it is
    if states == ("unallocated",):
        besides = LISTED  # of GPUs that nobody lists, nobody knows how many are free
    return Sum(Part((COST,), states or STATES), coverage=_priced(*(states or STATES)), besides=besides)


TOTAL_COST = cost()
UNATTRIBUTED = Sum(
    Part((COST,), HELD, holder=UNKNOWN),
    coverage=Coverage(
        known=Part(("gpu_s",), HELD, priced=True, holder=UNKNOWN), needed=Part(("gpu_s",), HELD, holder=UNKNOWN)
    ),
)
UNDERUSED = Sum(Part((UNDERUSED_COST,), ("idle", "busy")), coverage=_priced("idle", "busy"), besides=OBSERVED)
EFFECTIVE_COST_SUM = Sum(Part((EFFECTIVE_COST,), ("idle", "busy")), coverage=_priced("idle", "busy"), besides=OBSERVED)
EFFECTIVE_PRICED = replace(EFFECTIVE, part=replace(EFFECTIVE.part, priced=True))
"""Effective hours whose price is known: an hour without a price may not make the others look cheaper."""


def _cost(name: str, title: str, meaning: str, better: Better, kind: Sum) -> Metric:
    return Metric(name, CURRENCY, title, meaning, better, kind, "money")


def per_unit(name: str, unit: str) -> Metric:
    """Cost of one of a unit of progress; `name` is how people say it, `unit` how the progress table does."""
    return Metric(
        f"cost_per_{name}",
        f"{CURRENCY} per {name.replace('_', ' ')}",
        f"Cost per {name.replace('_', ' ')}",
        f"Cost of the jobs that worked on it, idle time and lost work included, ÷ {unit} made and kept.",
        "lower",
        PerUnit(unit),
        "money",
    )


UNITS = (
    ("sample", "train_sample"),
    ("token", "train_token"),
    ("epoch", "epoch"),
    ("step", "step"),
    ("request", "request"),
    ("prompt_token", "prompt_token"),
    ("output_token", "output_token"),
)


def _per_million(unit: str, of: str) -> Metric:
    """Cost of a million tokens of one kind; prompt tokens are those that were in no cache."""
    return Metric(
        f"cost_per_million_{of}_tokens",
        f"{CURRENCY} per million {of.replace('_', ' ')} tokens",
        f"Cost per million {of.replace('_', ' ')} tokens",
        f"Cost of the jobs that served, idle time included, split over tokens: a prompt token counts {SPLIT[PROMPT]:g},"
        f" one from a cache {SPLIT[CACHED]:g}, an output token {SPLIT[OUTPUT]:g}.",
        "lower",
        PerUnit(SERVED, TOKENS_PER_MTOK * SPLIT[unit]),
        "money",
    )


MONEY = (
    _cost("cost", "Cost", "Price × installed time: everything paid for, used or not.", "neither", TOTAL_COST),
    _cost("idle_cost", "Idle", "Cost of GPUs held and idle.", "lower", cost("idle")),
    _cost("busy_cost", "Busy", "Cost of GPUs held and working.", "neither", cost("busy")),
    _cost(
        "unallocated_cost",
        "Unallocated",
        "Cost of GPUs that nobody held; unknown where nobody lists the GPUs.",
        "lower",
        cost("unallocated"),
    ),
    _cost("unattributed_cost", "Unattributed", "Cost of GPUs with an unknown holder.", "lower", UNATTRIBUTED),
    _cost("unobserved_cost", "Unobserved", "Cost of GPUs held without a valid sample.", "lower", cost("unobserved")),
    _cost("underused_cost", "Underused", "Cost of busy GPUs less that of their activity.", "lower", UNDERUSED),
    _cost(
        "effective_cost", "Effective", "Cost × activity: what of the bill bought work.", "higher", EFFECTIVE_COST_SUM
    ),
    _cost("down_cost", "Down", "Cost of GPUs that could not be used.", "lower", cost("down")),
    Metric(
        "cost_per_effective_gpu_hour",
        f"{CURRENCY} per effective GPU-hour",
        "Cost per effective GPU-hour",
        "Cost ÷ effective GPU-hours, over the hours whose price is known.",
        "lower",
        Ratio(TOTAL_COST, EFFECTIVE_PRICED),
        "money",
    ),
    *(per_unit(name, unit) for name, unit in UNITS),
    Metric(
        "cost_per_model_exaflop",
        f"{CURRENCY} per model exaFLOP",
        "Cost per model exaFLOP",
        "Cost of the jobs whose model FLOPs are known, idle time and lost work included, ÷ 10¹⁸ model FLOPs made and kept.",
        "lower",
        PerUnit(MODEL_FLOP, FLOPS_PER_EXAFLOP),
        "money",
    ),
    _per_million(PROMPT, "prompt"),
    _per_million(CACHED, "cached_prompt"),
    _per_million(OUTPUT, "output"),
)
