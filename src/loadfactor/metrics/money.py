"""What does it cost, and what does a unit of work cost? Always in one cost basis, always with what was not priced shown."""

from dataclasses import replace

from loadfactor.ledger.activity import STATES
from loadfactor.metrics.fullness import EFFECTIVE
from loadfactor.metrics.metric import (
    EFFECTIVE_USD,
    OBSERVED,
    UNDERUSED_USD,
    USD,
    Better,
    Coverage,
    Metric,
    Part,
    PerUnit,
    Ratio,
    Sum,
)


def _priced(*states: str) -> Coverage:
    return Coverage(known=Part(("gpu_s",), states, priced=True), needed=Part(("gpu_s",), states))


def usd(*states: str) -> Sum:
    """Dollars of the GPU-hours in these states; of all when none is named."""
    told_apart = OBSERVED if {*states} & {"idle", "busy"} else None  # which of them it is only samples can tell
    return Sum(Part((USD,), states or STATES), coverage=_priced(*(states or STATES)), besides=told_apart)


COST = usd()
UNDERUSED = Sum(Part((UNDERUSED_USD,), ("idle", "busy")), coverage=_priced("idle", "busy"), besides=OBSERVED)
EFFECTIVE_DOLLARS = Sum(Part((EFFECTIVE_USD,), ("idle", "busy")), coverage=_priced("idle", "busy"), besides=OBSERVED)
EFFECTIVE_PRICED = replace(EFFECTIVE, part=replace(EFFECTIVE.part, priced=True))
"""Effective hours whose price is known: an hour without a price may not make the others look cheaper."""


def _usd(name: str, title: str, meaning: str, better: Better, kind: Sum) -> Metric:
    return Metric(name, "USD", title, meaning, better, kind, "money")


def per_unit(name: str, unit: str) -> Metric:
    """Dollars for one of a unit of progress; `name` is how people say it, `unit` how the progress table does."""
    return Metric(
        f"usd_per_{name}",
        f"USD per {name.replace('_', ' ')}",
        f"Cost per {name.replace('_', ' ')}",
        f"Dollars of the jobs that made it, idle time included, ÷ {unit} made and kept.",
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

MONEY = (
    _usd("cost_usd", "Cost", "Price × installed time: everything paid for, used or not.", "neither", COST),
    _usd("idle_usd", "Idle", "Dollars of GPUs held and idle.", "lower", usd("idle")),
    _usd("busy_usd", "Busy", "Dollars of GPUs held and working.", "neither", usd("busy")),
    _usd("unallocated_usd", "Unallocated", "Dollars of GPUs that nobody held.", "lower", usd("unallocated")),
    _usd("unobserved_usd", "Unobserved", "Dollars of GPUs held without a valid sample.", "lower", usd("unobserved")),
    _usd("underused_usd", "Underused", "Dollars of busy GPUs less those of their activity.", "lower", UNDERUSED),
    _usd(
        "effective_usd", "Effective", "Dollars × activity: what of the bill bought work.", "higher", EFFECTIVE_DOLLARS
    ),
    _usd("down_usd", "Down", "Dollars of GPUs that could not be used.", "lower", usd("down")),
    Metric(
        "usd_per_effective_gpu_hour",
        "USD per effective GPU-hour",
        "Cost per effective GPU-hour",
        "Dollars ÷ effective GPU-hours, over the hours whose price is known.",
        "lower",
        Ratio(COST, EFFECTIVE_PRICED),
        "money",
    ),
    *(per_unit(name, unit) for name, unit in UNITS),
)
