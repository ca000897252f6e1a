"""Why a metric changed: the difference of two windows as parts that add up to it, each with the holders behind it.

The method is the Shapley decomposition of a product of factors (Shorrocks, J. Econ. Inequality 11, 2013; for products it is that
of Sun, 1998): every factor in turn takes its value of after, in all orders, and its part is the mean of what that changes. Parts
sum to the difference exactly, whatever the order. A factor that a holder has in one of the windows alone (the price of hours it
did not have) counts as the same in the other: what comes or goes with its hours is volume and mix. Volume is what the change in
hours would have done if all holders were alike in everything else; mix is the rest of what the change in hours did.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from fractions import Fraction
from math import factorial, fsum, isclose
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import InputError
from loadfactor.base.units import S_PER_HOUR
from loadfactor.books.snapshot import Snapshot
from loadfactor.metrics import metric as metric_of
from loadfactor.metrics.factors import MEANINGS, Factors, find_factors
from loadfactor.metrics.metric import CURRENCY, OF_WORK, Made, Metric, PerUnit, Speed, Sum
from loadfactor.metrics.query.question import OF_A_JOB
from loadfactor.metrics.query.reading import Readings
from loadfactor.money.currency import Path, count_minor_digits, round_levels

Floats = NDArray[np.float64]
Key = tuple[str | None, ...]
METHOD: Final = "Shapley decomposition of a product of factors (Shorrocks 2013, Sun 1998)"
WEEK: Final = timedelta(days=7)
_CELLS: Final = ("accelerator", "pool")
"""Hours of one holder are apart by these, so that moving between them is mix, and no other price."""
_SAME: Final = 1e-9
_DUST: Final = 1e-13
"""Relative differences that are rounding: of sums in another order, and of a part that is nothing."""


@dataclass(frozen=True)
class ChangedHolder:
    """What of a part is of one holder, by the dimensions that were requested: None where nobody held the GPUs."""

    by: Mapping[str, str | None]
    amount: float


@dataclass(frozen=True)
class ChangePart:
    """A part of a change, the largest amounts first; `meaning` in words."""

    name: str
    meaning: str
    amount: float
    holders: tuple[ChangedHolder, ...]


@dataclass(frozen=True)
class Change:
    """A metric in two windows, and the parts of the difference: after − before is their sum. Money is rounded to the cent."""

    metric: str
    unit: str
    currency: str | None
    before: float
    after: float
    change: float
    before_from: datetime
    before_to: datetime
    after_from: datetime
    after_to: datetime
    by: tuple[str, ...]
    parts: tuple[ChangePart, ...]
    method: str
    remarks: tuple[str, ...] = ()


Span = tuple[datetime, datetime]
Ask = Callable[[Sequence[Metric], Sequence[str], Span], Readings]


def explain_change(
    snapshot: Snapshot,
    name: str,
    window: tuple[datetime | None, datetime | None],
    against: Span | None = None,
    by: Sequence[str] = (),
    zone: tzinfo = UTC,
    basis: str | None = None,
    where: Mapping[str, str] | None = None,
) -> Change:
    """Why a metric changed from the window before (equally long, or `against`) to this one, by default the last week of the books.

    Raises InputError for a metric that cannot be divided, or that nobody knows in one of the windows.
    """
    first, last = snapshot.span
    end = window[1] or last
    start = window[0] or end - min(WEEK, (end - first) / 2)
    before = against or (start - (end - start), start)
    metric = metric_of(name)
    factors = find_factors(metric)
    holders = tuple(by) or (factors.holders,)
    if isinstance(metric.kind, OF_WORK) and any(dimension not in OF_A_JOB for dimension in holders):
        raise InputError(
            f"{name} is of jobs and cannot be split by {', '.join(holders)}; use team, user, project or job"
        )

    def ask(metrics: Sequence[Metric], dimensions: Sequence[str], span: Span) -> Readings:
        return snapshot.show(metrics, dimensions, *span, zone, basis, where)

    spans = (before, (start, end))
    readings = [ask((metric,), (), span)[0] for span in spans]
    values = [reading.value for reading in readings]
    for value, span in zip(values, spans, strict=True):
        if not isinstance(value, float | int):
            raise InputError(
                f"nobody knows {name} of {_at(span[0])} to {_at(span[1])}; `loadfactor show {name}` says of when it is known"
            )
    tables = [_read_amounts(ask, metric, factors, holders, span) for span in spans]
    keys = sorted({*tables[0], *tables[1]}, key=lambda key: [(of is None, str(of)) for of in key])
    levels = [np.array([table.get(key, [0.0] * len(factors.all)) for key in keys]).T for table in tables]
    parts = divide_change(factors, *levels)
    amounts: dict[str, dict[Key, list[float]]] = {}
    for part, of_cells in parts.items():
        grouped: dict[Key, list[float]] = defaultdict(list)
        for key, amount in zip(keys, of_cells.tolist(), strict=True):
            grouped[key[: len(holders)]].append(amount)
        amounts[part] = grouped
    one, other = (float(value) for value in values if isinstance(value, float | int))
    summed = {part: {key: fsum(of) for key, of in grouped.items()} for part, grouped in amounts.items()}
    left = other - one - fsum(of for grouped in summed.values() for of in grouped.values())
    if isinstance(metric.kind, OF_WORK) and not isclose(left, 0, abs_tol=_SAME * max(abs(one), abs(other))):
        of_nobody = summed.setdefault("coverage", {})  # work of jobs that held no GPU that the books know
        of_nobody[(None,) * len(holders)] = of_nobody.get((None,) * len(holders), 0.0) + left
    currency = readings[0].currency
    digits = count_minor_digits(currency) if currency is not None and metric.unit == CURRENCY else None
    if digits is not None:
        one, other, summed = _round_to_minor(one, other, summed, digits)
    named = [
        ChangePart(
            part,
            MEANINGS[part],  # type: ignore[index]
            _add_up(of.values(), digits),
            tuple(
                ChangedHolder(dict(zip(holders, key, strict=True)), amount)
                for key, amount in sorted(of.items(), key=lambda item: -abs(item[1]))
                if amount
            ),
        )
        for part, of in summed.items()
    ]
    least = _DUST * max(abs(one), abs(other))
    ranked = [part for part in named if any(abs(of.amount) > least for of in part.holders)]
    ranked.sort(key=lambda part: -abs(part.amount))
    return Change(
        name,
        readings[0].unit,
        currency,
        one,
        other,
        _add_up((other, -one), digits),
        *before,
        start,
        end,
        holders,
        tuple(ranked),
        METHOD,
        tuple(_list_remarks(spans, snapshot.span)),
    )


def _list_remarks(spans: Sequence[Span], known: Span) -> list[str]:
    remarks = []
    if not isclose(*((end - start).total_seconds() for start, end in spans), rel_tol=_SAME):
        lengths = [f"{(end - start) / timedelta(hours=1):,.0f} h" for start, end in spans]
        remarks.append(f"the windows are not equally long ({lengths[0]} and {lengths[1]}): volume holds that, too")
    for (start, end), title in zip(spans, ("before", "after"), strict=True):
        if start < known[0] or end > known[1]:
            remarks.append(
                f"the books know {_at(known[0])} to {_at(known[1])}, and so not all of the window {title}: volume holds that, too"
            )
    return remarks


def _at(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def _read_amounts(
    ask: Ask, metric: Metric, factors: Factors, holders: tuple[str, ...], span: Span
) -> dict[Key, list[float]]:
    """The amounts of every factor in a window, by holder and what holders are apart by."""
    if isinstance(metric.kind, OF_WORK):
        return _read_work(ask, metric, factors, holders, span)
    dimensions = (*holders, *(name for name in _CELLS if name not in holders))
    sums = list(dict.fromkeys(factor.amount for factor in factors.all if isinstance(factor.amount, Sum)))
    amounts = [Metric(f"amount_{at}", "", "", "", "neither", kind) for at, kind in enumerate(sums)]
    found: Readings = ask(amounts, dimensions, span)
    columns = [found.column(of.name) for of in amounts]
    places = [sums.index(factor.amount) for factor in factors.all if isinstance(factor.amount, Sum)]
    return {
        tuple(key): [float(columns[place][at] or 0.0) for place in places]  # type: ignore[arg-type]
        for at, key in enumerate(found.keys)
    }


def _read_work(
    ask: Ask, metric: Metric, factors: Factors, holders: tuple[str, ...], span: Span
) -> dict[Key, list[float]]:
    """The same of units of work: what is divided in the metrics of work is multiplied again."""
    (unit, *_), is_cost = metric.units, isinstance(metric.kind, PerUnit)
    kinds: dict[str, Any] = {"made": Made(unit), "kept": Made(unit, is_kept=True), "speed": Speed(unit)}
    kinds |= {"each": PerUnit(unit)} if is_cost else {}
    found: Readings = ask(
        [Metric(name, CURRENCY if name == "each" else "", "", "", "neither", kind) for name, kind in kinds.items()],
        holders,
        span,
    )
    rows: dict[Key, dict[str, float]] = {}
    for reading in found:
        of = rows.setdefault(tuple(reading.by[name] for name in holders), dict.fromkeys(("priced_share", *kinds), 0.0))
        of[reading.metric] = float(reading.value or 0.0)  # type: ignore[arg-type]
        if reading.metric == "each":
            of["priced_share"] = reading.coverage or 0.0
    table = {}
    for key, of in rows.items():
        held = of["made"] / of["speed"] / S_PER_HOUR if of["speed"] else 0.0
        known = {"held": held, "made": of["made"], "kept": of["kept"]}
        if is_cost:
            known |= {"priced": held * of["priced_share"], "cost": of["each"] * of["kept"]}
        table[key] = [known[str(factor.amount)] for factor in factors.all]
    return table


def divide_change(factors: Factors, before: Floats, after: Floats) -> dict[str, Floats]:
    """The parts of a change by cell, from the amounts of both windows: a row a factor, a column a cell.

    >>> from loadfactor.metrics import metric
    >>> parts = divide_change(find_factors(metric("cost")), np.array([[10.], [10.], [20.]]), np.array([[10.], [8.], [24.]]))
    >>> {name: round(float(of.sum()), 9) for name, of in parts.items()}
    {'volume': 0.0, 'mix': 0.0, 'late data': -5.0, 'price': 9.0}
    """
    one, other = _list_ratios(factors, before, after)
    exact = _attribute(factors, one, other)
    alike_one, alike_other = one.copy(), other.copy()
    whole = _list_ratios(factors, before.sum(axis=1, keepdims=True), after.sum(axis=1, keepdims=True))
    rest = [at for at in range(len(factors.all)) if at not in factors.structure]
    for cells, of_all in ((alike_one, whole[0]), (alike_other, whole[1])):
        cells[rest] = of_all[rest]
    alike = _attribute(factors, alike_one, alike_other)
    parts: dict[str, Floats] = {}
    for at, factor in enumerate(factors.all):
        of_part = alike[at] if at in factors.structure else exact[at]
        parts[factor.name] = parts.get(factor.name, np.zeros_like(of_part)) + of_part
        if at in factors.structure:
            parts["mix"] = parts.get("mix", np.zeros_like(of_part)) + exact[at] - of_part
    return parts


def _list_ratios(factors: Factors, before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """The factors of both windows: each amount ÷ the one before it; one that a cell has in a single window is the same in both."""
    found = []
    for levels in (before, after):
        ratios = np.full_like(levels, np.nan)
        for at, factor in enumerate(factors.all):
            parent = np.ones_like(levels[at]) if factor.parent is None else levels[factor.parent]
            np.divide(levels[at], parent, out=ratios[at], where=parent != 0)
        found.append(ratios)
    one, other = found
    return np.nan_to_num(np.where(np.isnan(one), other, one)), np.nan_to_num(np.where(np.isnan(other), one, other))


def _attribute(factors: Factors, before: Floats, after: Floats) -> Floats:
    """What each factor did, by cell, as the mean over all orders in which factors take their values of after."""
    count = len(before)
    products = {}
    for chosen in range(1 << count):
        mixed = np.where(np.array([chosen >> at & 1 for at in range(count)], bool)[:, np.newaxis], after, before)
        over = factors.per * mixed[list(factors.over)].prod(axis=0)
        under = mixed[list(factors.under)].prod(axis=0) if factors.under else None
        products[chosen] = (over if under is None or under.sum() else np.zeros_like(over)), under
    ends = [_rate(products[chosen], 0.0) for chosen in (0, (1 << count) - 1)]
    effects = np.zeros_like(before)
    for chosen in products:
        for at in range(count):
            if not chosen >> at & 1:
                size = chosen.bit_count()
                weight = factorial(size) * factorial(count - size - 1) / factorial(count)
                effects[at] += weight * _differ(products[chosen], products[chosen | 1 << at], sum(ends) / 2)
    return effects


Product = tuple[Floats, Floats | None]


def _rate(product: Product, otherwise: float) -> float:
    """The ratio of sums, `otherwise` where there is nothing to divide by."""
    over, under = product
    below = 1.0 if under is None else float(under.sum())
    return float(over.sum()) / below if below else otherwise


def _differ(one: Product, other: Product, otherwise: float) -> Floats:
    """The difference of two sums, or of two ratios of sums, by cell: (ΔN − mean ratio × ΔD) ÷ mean D sums to Δ(N ÷ D) exactly.

    A mixture in which nobody has what is divided by has the ratio `otherwise`, and nothing to divide.
    """
    if one[1] is None or other[1] is None:
        return other[0] - one[0]
    under = (one[1].sum() + other[1].sum()) / 2
    if not under:
        return np.zeros_like(one[0])
    rate = (_rate(one, otherwise) + _rate(other, otherwise)) / 2
    return np.asarray((other[0] - one[0] - rate * (other[1] - one[1])) / under)


def _add_up(amounts: Iterable[float], digits: int | None) -> float:
    return fsum(amounts) if digits is None else round(fsum(amounts), digits)


def _round_to_minor(
    one: float, other: float, amounts: Mapping[str, Mapping[Key, float]], digits: int
) -> tuple[float, float, dict[str, dict[Key, float]]]:
    """Both values and every amount in whole minor units, so that amounts sum to the difference and holders to their part."""
    ends = [round(value * 10**digits) for value in (one, other)]
    quotas: dict[Path, Fraction] = {
        (part, str(at)): Fraction(amount) * 10**digits
        for part, of in amounts.items()
        for at, amount in enumerate(of.values())
    }
    if quotas:  # each end was rounded, too
        quotas[max(quotas, key=lambda path: abs(quotas[path]))] += ends[1] - ends[0] - sum(quotas.values())
    rounded = round_levels(ends[1] - ends[0], quotas) if quotas else {}
    of_parts = {
        part: {key: rounded[part, str(at)] / 10**digits for at, key in enumerate(of)} for part, of in amounts.items()
    }
    return ends[0] / 10**digits, ends[1] / 10**digits, of_parts
