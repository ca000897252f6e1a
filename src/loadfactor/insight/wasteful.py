"""Users with what they held, and which of them a rule calls wasteful: the model is Job Defense Shield's rules of low efficiency."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from loadfactor.base.quantities import write_share
from loadfactor.books.job_summary import ReportedUse
from loadfactor.metrics.query.reading import Readings, rank
from loadfactor.settings.notices import NoticesTable, WastefulRule
from loadfactor.tables.schema import DEFAULT_CURRENCY

ASKED: Final = ("allocated_gpu_hours", "effective_gpu_hours", "idle_gpu_hours", "utilization", "cost", "idle_cost")


@dataclass(frozen=True)
class UserUse:
    """GPU-hours and cost of a user's jobs in a window; None is not known. `because` are the rules that name the user, in words."""

    user: str
    teams: tuple[str, ...]
    jobs: int
    gpu_hours: float
    effective_gpu_hours: float | None
    idle_gpu_hours: float | None
    utilization: float | None
    coverage: float | None
    cost: float | None
    idle_cost: float | None
    because: tuple[str, ...]
    reported: ReportedUse | None = None


@dataclass(frozen=True)
class UserUses:
    """Users of [start, end), the costliest idle time first; of `is_wasteful` those that opted out are only counted."""

    start: datetime
    end: datetime
    currency: str
    is_wasteful: bool
    rule: Mapping[str, float]
    users: tuple[UserUse, ...]
    opted_out: int


Ask = Callable[..., Readings]


def find_users(
    ask: Ask, rule: WastefulRule, notices: NoticesTable, is_wasteful: bool, reported: Mapping[str, ReportedUse]
) -> UserUses:
    """Users that held GPUs in the window that `ask` reads; where `is_wasteful`, those that the rule names. Raises as `show`.

    `reported` by user counts where too little was observed.
    """
    found = ask(ASKED, ("user",))
    by_job = ask(("allocated_gpu_hours",), ("user", "team", "job"))
    teams: dict[str | None, set[str]] = defaultdict(set)
    jobs: dict[str | None, set[str | None]] = defaultdict(set)
    for (user, team, job), held in zip(by_job.keys, by_job.column("allocated_gpu_hours"), strict=True):
        if held:
            jobs[user].add(job)
            teams[user] |= {team} if team else set()
    users, opted_out = [], 0
    size = len(ASKED)
    for place, (user,) in enumerate(found.keys):
        readings = {reading.metric: reading for reading in found[place * size : (place + 1) * size]}
        values = {
            name: reading.value if isinstance(reading.value, float) else None for name, reading in readings.items()
        }
        held = values["allocated_gpu_hours"]
        if user is None or not held:
            continue
        coverage = readings["utilization"].coverage
        because = judge(rule, held, values["idle_gpu_hours"], values["utilization"], coverage)
        summed = reported.get(user)
        if not because and summed is not None and rank(coverage) < rule.least_coverage:
            found_low = judge(rule, held, None, summed.utilization, summed.coverage)
            because = tuple(f"{text} ({summed.basis})" for text in found_low)
        if is_wasteful and not because:
            continue
        if is_wasteful and notices.leaves_out(user):
            opted_out += 1
            continue
        users.append(
            UserUse(
                user,
                tuple(sorted(teams[user])),
                len(jobs[user]),
                held,
                values["effective_gpu_hours"],
                values["idle_gpu_hours"],
                values["utilization"],
                coverage,
                values["cost"],
                values["idle_cost"],
                because,
                summed,
            )
        )
    users.sort(key=lambda of: (-rank(of.idle_cost), -rank(of.idle_gpu_hours), of.user))
    (whole,) = ask(("cost",))
    currency = whole.currency or DEFAULT_CURRENCY
    return UserUses(whole.start, whole.end, currency, is_wasteful, rule.model_dump(), tuple(users), opted_out)


def judge(
    rule: WastefulRule, held: float, idle: float | None, utilization: float | None, coverage: float | None
) -> tuple[str, ...]:
    """The rules that name a user, in words; none where too little was observed.

    >>> judge(WastefulRule(), 100, 60.0, 0.1, 0.9)
    ('utilization 10 % is below 15 % over 100 GPU-hours', '60 idle GPU-hours are at least 24')
    >>> judge(WastefulRule(), 100, 60.0, 0.1, 0.4), judge(WastefulRule(), 20, 10.0, 0.1, 1.0)
    ((), ())
    """
    if coverage is None or coverage < rule.least_coverage:
        return ()
    because = []
    if utilization is not None and utilization < rule.utilization_below and held >= rule.least_gpu_hours:
        limit = f"is below {write_share(rule.utilization_below)} over {held:,.3g} GPU-hours"
        because.append(f"utilization {write_share(utilization)} {limit}")
    if idle is not None and idle >= rule.idle_gpu_hours:
        because.append(f"{idle:,.3g} idle GPU-hours are at least {rule.idle_gpu_hours:,.3g}")
    return tuple(because)
