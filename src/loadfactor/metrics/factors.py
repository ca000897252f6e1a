"""Factors of metrics: the chain of amounts from hours to what is measured, and what a change in each of them is called.

Cost is GPU-hours × the share of them that has a price × the price of those; effective hours are held hours × the share observed ×
the activity of that. A ratio has two chains, which share their beginning. Amounts are those of the metrics themselves.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

from loadfactor.base.errors import InputError
from loadfactor.base.units import S_PER_HOUR
from loadfactor.ledger.columns import HELD, STATES
from loadfactor.metrics.fullness import EFFECTIVE, EFFECTIVE_S, OBSERVED_HOURS, PAID, gpu_hours
from loadfactor.metrics.metric import (
    COST,
    EFFECTIVE_COST,
    OF_WORK,
    UNDERUSED_COST,
    UNDERUSED_S,
    Made,
    Metric,
    PerUnit,
    Ratio,
    Speed,
    Sum,
)
from loadfactor.metrics.money import EFFECTIVE_PRICED

PartName = Literal["volume", "price", "fullness", "mix", "coverage", "late data", "rules", "speed", "lost work"]
MEANINGS: Final[dict[PartName, str]] = {
    "volume": "more or fewer GPU-hours",
    "price": "another price of the same hours",
    "fullness": "hours held, busy or active in another share",
    "mix": "hours that moved between holders, pools and accelerators",
    "coverage": "samples for another share of the held hours",
    "late data": "a price for another share of the hours, or rows that came later",
    "rules": "other rules of chargeback",
    "speed": "more or less made in a held GPU-hour",
    "lost work": "another share of what was made was kept",
}
"""Parts that a change is split into, and what each means."""
WorkAmount = Literal["held", "priced", "cost", "made", "kept"]
_SECONDS: Final = {UNDERUSED_COST: (UNDERUSED_S,), EFFECTIVE_COST: EFFECTIVE_S, COST: ("gpu_s",)}
_HELD_HOURS: Final = gpu_hours(*HELD)


@dataclass(frozen=True)
class Factor:
    """An amount ÷ the one before it, `parent`: the number of its factor, None for the first. A change in it is part `name`."""

    name: PartName
    amount: Sum | WorkAmount
    parent: int | None


@dataclass(frozen=True)
class Factors:
    """A metric as `per` × the product of the factors in `over`, ÷ that of those in `under`, each summed over the holders first.

    `structure` are the factors that say who has which hours. `holders` is what it is split by where nothing else is asked for.
    """

    all: tuple[Factor, ...]
    over: tuple[int, ...]
    under: tuple[int, ...]
    structure: tuple[int, ...]
    holders: str
    per: float = 1.0


def find_factors(metric: Metric) -> Factors:
    """The factors of a metric. Raises InputError for one that is no amount of anything: quantiles, counts and histograms."""
    kind = metric.kind
    if isinstance(kind, OF_WORK):
        return _find_of_work(metric)
    if isinstance(kind, Sum) and not kind.each:
        chain = _list_chain(kind)
        holders = "pool" if chain[0][1] == _bare(PAID) and len(chain) > 1 and chain[1][0] == "fullness" else "team"
        factors = _link(chain)
        return Factors(factors, tuple(range(len(factors))), (), (0,), holders)
    if isinstance(kind, Ratio):
        return _find_of_ratio(kind)
    raise InputError(
        f"{metric.name} is no sum and no ratio of sums, so no change of it can be divided among parts; ask why cost, utilization,"
        " effective_gpu_hours, idle_cost or cost_per_token changed"
    )


def _find_of_work(metric: Metric) -> Factors:
    """Of units of work: held hours of the jobs that made them, what those cost, what was made in them and kept."""
    kind, held = metric.kind, Factor("volume", "held", None)
    if isinstance(kind, PerUnit):
        priced, cost = Factor("late data", "priced", 0), Factor("price", "cost", 1)
        made, kept = Factor("speed", "made", 0), Factor("lost work", "kept", 3)
        return Factors((held, priced, cost, made, kept), (0, 1, 2), (0, 3, 4), (0,), "team", kind.per)
    made = Factor("speed", "made", 0)
    if isinstance(kind, Speed):
        return Factors((held, made), (0, 1), (0,), (0,), "team", 1 / S_PER_HOUR)
    if isinstance(kind, Made) and kind.lost_to is None:
        chain = (held, made, Factor("lost work", "kept", 1))[: 3 if kind.is_kept else 2]
        return Factors(chain, tuple(range(len(chain))), (), (0,), "team")
    raise InputError(
        f"nothing is known of what {metric.name} is made of; ask why cost_per_token or tokens_per_gpu_s changed"
    )


def _find_of_ratio(kind: Ratio) -> Factors:
    over, under = _list_chain(kind.over), _list_chain(kind.under)
    paid = _bare(PAID)
    if kind.under == EFFECTIVE_PRICED:
        hours = replace(paid, part=replace(paid.part, priced=True))
        parts = (Factor("fullness", hours, None), Factor("price", _bare(kind.over), 0))
        full = [
            replace(s, part=replace(s.part, priced=True)) for s in map(_bare, (_HELD_HOURS, OBSERVED_HOURS, EFFECTIVE))
        ]
        held, seen = Factor("fullness", full[0], 0), Factor("coverage", full[1], 2)
        return Factors((*parts, held, seen, Factor("fullness", full[2], 3)), (0, 1), (0, 2, 3, 4), (0, 2), "team")
    if under == [("volume", paid)] and over[0][1] != paid:  # what held GPUs did ÷ all that are paid for
        first = over[0][1]
        chain: list[tuple[PartName, Sum]] = [("fullness", paid), ("fullness", first), *over[1:]]
        factors = _link(chain)
        return Factors(factors, tuple(range(len(factors))), (0,), (0, 1), "team")
    if [amount for _, amount in over[: len(under)]] != [amount for _, amount in under]:
        over, under = [("volume", _bare(kind.under)), ("fullness", _bare(kind.over))], under[:1]
    factors = _link(over)
    holders = "pool" if over[0][1] == paid else "team"
    return Factors(factors, tuple(range(len(factors))), tuple(range(len(under))), (0,), holders)


def _link(chain: list[tuple[PartName, Sum]]) -> tuple[Factor, ...]:
    return tuple(Factor(name, amount, at - 1 if at else None) for at, (name, amount) in enumerate(chain))


def _bare(kind: Sum) -> Sum:
    """What is known of a sum, however little."""
    return replace(kind, coverage=None, besides=None)


def _list_chain(kind: Sum) -> list[tuple[PartName, Sum]]:
    """The amounts on the way to a sum, each with what a change in its share of the one before is called."""
    amount, part = _bare(kind), kind.part
    if {*part.columns} & {*_SECONDS}:
        seconds = tuple(second for column in part.columns for second in _SECONDS[column])
        hours = replace(amount, part=replace(part, columns=seconds), per=PAID.per)
        priced = replace(hours, part=replace(hours.part, priced=True))
        return [*_list_chain(hours), ("late data", priced), ("price", amount)]
    states = {*part.states}
    if states == {*STATES} and part.columns == ("gpu_s",):
        return [("volume", amount)]
    if part.rests_on_activity:
        seen: list[tuple[PartName, Sum]] = [("volume", _bare(_HELD_HOURS)), ("coverage", _bare(OBSERVED_HOURS))]
        return seen if amount == seen[1][1] else [*seen, ("fullness", amount)]
    if states == {"unobserved"}:
        return [("volume", _bare(_HELD_HOURS)), ("coverage", amount)]
    if states <= {*HELD} and part.columns == ("gpu_s",):
        return [("volume", amount)]
    return [("volume", _bare(PAID)), ("fullness", amount)]
