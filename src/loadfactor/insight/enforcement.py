"""Which holders a policy finds idle, by the metric that it declares: the model is Job Defense Shield's cancelling of idle jobs.

A holder is judged where it held its GPUs through the whole window and that was observed; else nothing is known, and nothing done.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from loadfactor.base.errors import InputError
from loadfactor.books.open_holders import Holder, OpenJob, group_jobs
from loadfactor.metrics import metric
from loadfactor.metrics.query.calendar import instant, milliseconds
from loadfactor.metrics.query.reading import Readings
from loadfactor.settings.enforcement import NOTHING, SCALE, EnforceTable
from loadfactor.settings.sla import matches

Verdict = Literal["idle", "at work", "allowed", "not known"]
SHARE: Final = "share"
Ask = Callable[..., Readings]


@dataclass(frozen=True)
class JudgedHolder:
    """A holder of a team, and what the policy makes of it: `value` of the metric and its coverage, of several jobs the worst."""

    policy: EnforceTable
    team: str
    holder: Holder
    verdict: Verdict
    why: str
    gpus: float | None
    value: float | None
    coverage: float | None


def judge_holders(policy: EnforceTable, jobs: Sequence[OpenJob], ask: Ask, end: datetime) -> list[JudgedHolder]:
    """Every holder of the teams of a policy at the end of the books. Raises InputError for a metric that is no share."""
    if metric(policy.metric).unit != SHARE:
        raise InputError(f"[[enforce]] {policy.name}: {policy.metric} is no share; take utilization or idle_share")
    found = []
    window = end - timedelta(seconds=policy.window.s), end
    holders = [of for of in group_jobs(jobs) if policy.act == NOTHING or of.is_pods == (policy.act == SCALE)]
    for team in policy.team:
        own = [holder for holder in holders if team in {job.team for job in holder.jobs}]
        values = read_values(policy.metric, ask, team, window) if own else {}
        found += [_judge(policy, team, holder, values, window) for holder in own]
    return found


@dataclass(frozen=True)
class JobValue:
    """The metric of a job in a window, how much of it is known, and GPUs held on average."""

    value: float | None
    coverage: float | None
    gpus: float | None


def read_values(name: str, ask: Ask, team: str, window: tuple[datetime, datetime]) -> dict[str | None, JobValue]:
    """The metric of each job of a team in a window."""
    found = ask((name, "allocated_gpu_hours"), ("job",), start=window[0], end=window[1], where={"team": team})
    hours = (window[1] - window[0]) / timedelta(hours=1)
    readings = list(found)
    out = {}
    for place, (job,) in enumerate(found.keys):
        reading, held = readings[2 * place : 2 * place + 2]
        value = reading.value if isinstance(reading.value, float) else None
        gpus = held.value / hours if isinstance(held.value, float) else None
        out[job] = JobValue(value, reading.coverage, gpus)
    return out


def _judge(
    policy: EnforceTable,
    team: str,
    holder: Holder,
    values: Mapping[str | None, JobValue],
    window: tuple[datetime, datetime],
) -> JudgedHolder:
    own = [values.get(job.job, JobValue(None, None, None)) for job in holder.jobs]
    known = [of.value for of in own if of.value is not None]
    worst = None if len(known) < len(own) else max(known) if policy.below is not None else min(known)
    coverage = min((of.coverage or 0.0 for of in own), default=None)
    gpus = sum(of.gpus or 0.0 for of in own)

    def say(verdict: Verdict, why: str) -> JudgedHolder:
        return JudgedHolder(policy, team, holder, verdict, why, gpus, worst, coverage)

    allowed = policy.find_allowed(holder.user, tuple(job.job for job in holder.jobs), holder.purpose)
    if not allowed and any(policy.find_allowed(job.user, (job.job,), job.purpose) for job in holder.jobs):
        allowed = "one of its pods is allowed"
    if allowed:
        return say("allowed", allowed)
    if {job.team for job in holder.jobs} != {team}:
        return say("allowed", "its pods are of several teams")
    if not all(matches(job.pool, policy.pool) for job in holder.jobs):
        return say("allowed", "it is in another pool")
    if worst is not None and not policy.is_idle(worst):
        return say("at work", "")
    if holder.last_began_ms > milliseconds(window[0]):
        return say("not known", f"held only since {instant(holder.last_began_ms):%Y-%m-%d %H:%M UTC}")
    if worst is None or (coverage or 0.0) < policy.least_coverage:
        return say("not known", "not observed enough")
    return say("idle", "")
