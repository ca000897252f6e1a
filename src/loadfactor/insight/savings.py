"""Savings of levers in a window: applied one after another to what was lost, so that their sum is never more."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from math import fsum
from typing import Final

from loadfactor.base.errors import InputError, no_such
from loadfactor.base.quantities import write_share
from loadfactor.base.units import D_PER_WEEK, H_PER_MONTH, S_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.books.job_account import KEPT
from loadfactor.books.losses.facts import LossFacts, read_losses
from loadfactor.books.snapshot import Snapshot
from loadfactor.books.waterfall import WaterfallGroup
from loadfactor.insight.diagnosis.diagnose import Progress, diagnose_jobs
from loadfactor.insight.levers import LEVERS
from loadfactor.insight.levers.lever import Level, LeverResult, LossLever, PriceSaving, Situation, name_confidence
from loadfactor.insight.levers.offers import PRICE_LEVERS, PriceOffers, find_price_savings
from loadfactor.insight.levers.remainder import OF_HOLDERS, TakenLoss
from loadfactor.metrics import Metric
from loadfactor.metrics.fullness import DROPS, Waterfall
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.settings.money import DoneLever

LONGEST: Final = timedelta(days=4 * D_PER_WEEK)
"""At most so long before and after are compared."""
SHORTEST: Final = timedelta(days=1)
LEAST_CHANGE: Final = 0.02
"""Of work per unit of money; less is nothing."""
EFFECTIVE: Final = "effective GPU-hour"
TITLES: Final = {lever.name: lever.title for lever in LEVERS} | PRICE_LEVERS
"""What people call each lever."""


@dataclass(frozen=True)
class WorkPerCost:
    """Units of work for one unit of money, before and after; `change` is a share of the former."""

    unit: str
    before: float
    after: float
    change: float


@dataclass(frozen=True)
class LeverFollowUp:
    """A lever before and after it was applied: over `days` on each side of `done`. `judged_by`: the unit of work of the verdict.

    What it gave back is in the unit of what it promised: GPU-hours of the losses that it takes, and their money, a month, less
    than before at the same size of the fleet; of a price, what the GPU-hours after would have cost before. None is not known.
    """

    lever: str
    done: str
    team: str | None
    days: float
    promised_per_month: float | None
    saved_per_month: float | None
    judged_by: str | None
    verdict: str
    work: tuple[WorkPerCost, ...]
    gpu_hours_per_month: float | None
    title: str


def follow_levers(books: Books, done: Sequence[DoneLever]) -> tuple[LeverFollowUp, ...]:
    """Each lever beside what was promised. Raises InputError for a name that no lever has."""
    for of in done:
        if of.lever not in TITLES:
            raise no_such("lever", of.lever, list(TITLES))
    if not done:
        return ()
    with books.snapshot() as snapshot:
        return tuple(_follow(snapshot, of) for of in done)


def _follow(snapshot: Snapshot, done: DoneLever) -> LeverFollowUp:
    first, last = snapshot.span
    at = datetime.combine(done.done, time(), UTC)
    length = min(LONGEST, at - first, last - at)
    promised = None if done.promised is None else float(done.promised)

    def tell(
        verdict: str, back: tuple[float | None, float | None] = (None, None), by: str | None = None, *work: WorkPerCost
    ) -> LeverFollowUp:
        days = max(length / timedelta(days=1), 0.0)
        when, title = done.done.isoformat(), TITLES[done.lever]
        return LeverFollowUp(done.lever, when, done.team, days, promised, back[1], by, verdict, work, back[0], title)

    if length < SHORTEST:
        return tell("cannot be told: the books know less than a day before or after it")
    sides = ((at - length, at), (at, at + length))
    before, after = (_measure(snapshot, done.team, start, end) for start, end in sides)
    costs = before.pop("cost", 0.0), after.pop("cost", 0.0)
    if min(costs) <= 0:
        return tell("cannot be told: no price is known before or after it")
    work = []
    for unit in before:
        if unit in after:
            rates = before[unit] / costs[0], after[unit] / costs[1]
            work.append(WorkPerCost(unit, *rates, rates[1] / rates[0] - 1))
    if not work:
        return tell("cannot be told: no work is known before or after it")
    judged = work[0]
    where = {} if done.team is None else {"team": done.team}
    falls = [snapshot.waterfall((), start, end, where=where).all for start, end in sides]
    lever = next((lever for lever in LEVERS if lever.name == done.lever), None)
    months = length.total_seconds() / S_PER_HOUR / H_PER_MONTH
    hours, saved = (part / months for part in (_give_back(lever, *falls) if lever else _compare_prices(*falls)))
    return tell(_judge(judged, saved, promised), (hours, saved), judged.unit, *work)


def _give_back(lever: LossLever, before: WaterfallGroup, after: WaterfallGroup) -> tuple[float, float]:
    """GPU-hours and money of the lever's losses before, less those after, both for as much as before.

    As much as before is paid time of losses of holders, held time of what nobody holds: fewer nodes leave less of that.
    """
    is_of_nodes = not {*lever.losses} & {*OF_HOLDERS}
    (one, other), parts = (before.gpu_hours, after.gpu_hours), []
    sizes = [of.after("held") if is_of_nodes else of.paid for of in (one, other)]
    for sides in ((one, other), (before.cost, after.cost)):
        lost = [0.0 if of is None else fsum(getattr(of, name) for name in lever.losses) for of in sides]
        parts.append(lost[0] - lost[1] * sizes[0] / sizes[1] if sizes[1] else lost[0])
    return parts[0], parts[1]


def _compare_prices(before: WaterfallGroup, after: WaterfallGroup) -> tuple[float, float]:
    """No GPU-hours; what those after would have cost at the mean price of before, less what they cost."""
    prices = [0.0 if of.cost is None else of.cost.paid / of.gpu_hours.paid for of in (before, after)]
    return 0.0, (prices[0] - prices[1]) * after.gpu_hours.paid


def _measure(snapshot: Snapshot, team: str | None, start: datetime, end: datetime) -> dict[str, float]:
    """Work and its cost: units of work first, those that are known and above nothing."""
    metrics: tuple[Metric | str, ...] = (*KEPT.values(), "effective_gpu_hours", "cost")
    found = snapshot.show(metrics, (), start, end, where={} if team is None else {"team": team})
    names = {metric.name: unit for unit, metric in KEPT.items()} | {"effective_gpu_hours": EFFECTIVE, "cost": "cost"}
    values = {names[reading.metric]: reading.value for reading in found}
    return {unit: float(value) for unit, value in values.items() if isinstance(value, int | float) and value > 0}


def _judge(judged: WorkPerCost, saved: float, promised: float | None) -> str:
    """The verdict in words."""
    if judged.change < -LEAST_CHANGE:
        return f"made it worse: {write_share(-judged.change, 1)} less {judged.unit} for the same money"
    if judged.change < LEAST_CHANGE:
        return f"did nothing: {judged.unit} for the same money changed by {judged.change:+.1%}"
    kept = (
        "" if not promised or promised <= 0 or saved < 0 else f", {write_share(saved / promised)} of what was promised"
    )
    return f"works: {write_share(judged.change, 1)} more {judged.unit} for the same money{kept}"


MOST_ASKED = 5
MOST_DIAGNOSED = 5
"""Jobs that are read minute by minute, which takes some seconds for a large one."""
BY = ("team", "user")
"""Dimensions that savings can be split by."""
NO_OFFERS = PriceOffers()
LOSSES = tuple(drop.name for drop in DROPS if not drop.is_unknown)


@dataclass(frozen=True)
class LeverHolder:
    """Whom to ask: who holds the part of what a lever saves, and how large that part is. Both None: who runs the cluster."""

    team: str | None
    user: str | None
    share: float


@dataclass(frozen=True)
class LeverSaving:
    """The saving of a lever in the window beyond those before it, and its evidence.

    `saved` is money, None where no price is known; `confidence` is a share of one.
    """

    lever: str
    title: str
    saved: float | None
    saved_per_month: float | None
    gpu_hours: float
    confidence: float
    confidence_word: Level
    effort: Level
    risk: Level
    risk_of: str
    ask: tuple[LeverHolder, ...]
    evidence: tuple[str, ...]
    action: str


@dataclass(frozen=True)
class GroupSaving:
    """The same by team or user: what was lost there, and what each lever would have saved of it."""

    by: dict[str, str | None]
    lost: float | None
    saved: float | None
    lost_gpu_hours: float
    gpu_hours: float
    levers: dict[str, float]


@dataclass(frozen=True)
class UnknownHours:
    """GPU-hours of which nobody knows whether they were lost, which no lever saves; `unpriced` are of any kind, without a price."""

    unobserved: float
    uncounted: float
    unpriced: float


@dataclass(frozen=True)
class FleetSavings:
    """Losses of a window and what levers would have saved of them: `saved_at_most` is their sum, and never more than `lost`.

    Money is None where no price is known. `levers` are in the order in which they were applied. `price_levers` are what other
    prices would have saved of what the levers left: no part of what was lost, nor of `saved_at_most`.
    """

    levers: tuple[LeverSaving, ...]
    currency: str
    lost: float | None
    saved_at_most: float | None
    lost_gpu_hours: float
    saved_gpu_hours: float
    window_hours: float
    basis: str
    unknown: UnknownHours
    rows: tuple[GroupSaving, ...]
    price_levers: tuple[PriceSaving, ...] = ()
    followed: tuple[LeverFollowUp, ...] = ()


def find_savings(
    books: Books,
    by: Sequence[str] = (),
    start: datetime | None = None,
    end: datetime | None = None,
    done: Sequence[DoneLever] = (),
    offers: PriceOffers = NO_OFFERS,
    most_diagnosed: int = MOST_DIAGNOSED,
    progress: Progress = lambda _what, _share: None,
) -> FleetSavings:
    """The savings of each lever in [start, end), by default in all the books know; those `done` are followed up.

    `offers` are prices that could be had. So many jobs are diagnosed, those that lose most, for what their code could do.

    Raises InputError where the books know nothing of that time, or for a dimension that savings cannot be split by.
    """
    for name in by:
        if name not in BY:
            raise InputError(f"savings cannot be told by {name}; split them by {' or '.join(BY)}")
    span = milliseconds(start or books.span[0]), milliseconds(end or books.span[1])
    with read_losses(books, start, end) as facts:
        situation = Situation(facts, lambda jobs: diagnose_jobs(books, jobs, span, progress), most_diagnosed)
        found = []
        for number, lever in enumerate(LEVERS):
            progress(f"levers: {lever.title.lower()}", number / len(LEVERS))
            found.append((lever, lever.find(situation)))
        savings = _add_up(facts, found, by)
        saved_hours: dict[str | None, float] = {}
        for part in (part for _, of in found for part in of.taken):
            saved_hours[part.job] = saved_hours.get(part.job, 0.0) + part.gpu_hours
        priced = find_price_savings(situation, saved_hours, offers)
    return replace(savings, price_levers=priced, followed=follow_levers(books, done))


def add_losses(of: Waterfall) -> float:
    """All that is known to be lost on the way from paid to useful."""
    return fsum(getattr(of, name) for name in LOSSES)


def _add_up(facts: LossFacts, found: Sequence[tuple[LossLever, LeverResult]], by: Sequence[str]) -> FleetSavings:
    whole = facts.waterfall.all
    is_priced = whole.cost is not None
    levers = tuple(_tell(lever, of, facts.hours, is_priced) for lever, of in found if of.taken)
    paid, priced = whole.gpu_hours.paid, whole.priced_share or 0.0
    return FleetSavings(
        levers=levers,
        currency=facts.waterfall.currency,
        lost=None if whole.cost is None else add_losses(whole.cost),
        saved_at_most=fsum(lever.saved or 0.0 for lever in levers) if is_priced else None,
        lost_gpu_hours=add_losses(whole.gpu_hours),
        saved_gpu_hours=fsum(lever.gpu_hours for lever in levers),
        window_hours=facts.hours,
        basis=facts.waterfall.basis,
        unknown=UnknownHours(whole.gpu_hours.unobserved, whole.gpu_hours.uncounted, max(0.0, paid * (1 - priced))),
        rows=_split(facts, found, by) if by else (),
    )


def _tell(lever: LossLever, found: LeverResult, hours: float, is_priced: bool) -> LeverSaving:
    saved = fsum(part.cost for part in found.taken) if is_priced else None
    return LeverSaving(
        lever=lever.name,
        title=lever.title,
        saved=saved,
        saved_per_month=None if saved is None else saved * H_PER_MONTH / hours,
        gpu_hours=fsum(part.gpu_hours for part in found.taken),
        confidence=found.confidence,
        confidence_word=name_confidence(found.confidence),
        effort=lever.effort,
        risk=lever.risk,
        risk_of=lever.risk_of,
        ask=_list_largest_holders(found.taken),
        evidence=found.evidence,
        action=found.action,
    )


def _list_largest_holders(taken: Sequence[TakenLoss]) -> tuple[LeverHolder, ...]:
    """Those who hold most of it, by money where it has a price."""
    is_priced = any(part.cost for part in taken)
    shares: dict[tuple[str | None, str | None], float] = {}
    for part in taken:
        key = part.team, part.user
        shares[key] = shares.get(key, 0.0) + (part.cost if is_priced else part.gpu_hours)
    whole = fsum(shares.values())
    largest = sorted(shares.items(), key=lambda item: (-item[1], str(item[0])))[:MOST_ASKED]
    return tuple(LeverHolder(*key, share=amount / whole) for key, amount in largest if whole)


def _split(
    facts: LossFacts, found: Sequence[tuple[LossLever, LeverResult]], by: Sequence[str]
) -> tuple[GroupSaving, ...]:
    """By group of holders; what nobody held is of nobody."""
    lost: dict[tuple[str | None, ...], list[tuple[float, float]]] = {}
    for row in facts.waterfall.rows:
        key = tuple(row.by[name] for name in by)
        amounts = add_losses(row.gpu_hours), 0.0 if row.cost is None else add_losses(row.cost)
        lost.setdefault(key, []).append(amounts)
    is_priced = facts.waterfall.all.cost is not None
    out = []
    for key, amounts_of in lost.items():
        parts = {
            lever.name: [p for p in of.taken if tuple(getattr(p, name) for name in by) == key] for lever, of in found
        }
        taken = [part for of in parts.values() for part in of]
        amount = {name: fsum(p.cost if is_priced else p.gpu_hours for p in of) for name, of in parts.items() if of}
        out.append(
            GroupSaving(
                dict(zip(by, key, strict=True)),
                fsum(cost for _, cost in amounts_of) if is_priced else None,
                fsum(part.cost for part in taken) if is_priced else None,
                fsum(hours for hours, _ in amounts_of),
                fsum(part.gpu_hours for part in taken),
                amount,
            )
        )
    return tuple(sorted(out, key=lambda group: -(group.saved or group.gpu_hours)))
