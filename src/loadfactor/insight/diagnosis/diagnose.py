"""The diagnosis of one job from its facts: every rule judged, claims as ranges, and their union."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

import numpy as np

from loadfactor.base.units import MS_PER_S, S_PER_HOUR
from loadfactor.books.books import Books
from loadfactor.books.watched import Watched
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob, Floats, read_jobs
from loadfactor.insight.diagnosis.finding import (
    CannotTell,
    CauseFinding,
    CauseTotal,
    FleetDiagnosis,
    JobDiagnosis,
    Range,
)
from loadfactor.insight.diagnosis.rule import HIGH, MEDIUM, Claim, DiagnosisRule
from loadfactor.insight.diagnosis.rules import DIAGNOSES
from loadfactor.insight.diagnosis.scheduling import find_scheduling
from loadfactor.metrics.query.calendar import milliseconds
from loadfactor.tables.schema import Span

LEAST_SHARE = 0.01
"""A cause with less of the held time at stake is not worth a line."""
LEAST_CONFIDENCE = 0.5
"""A claim of less confidence is no finding."""


def diagnose_job(facts: DiagnosedJob, rules: Sequence[DiagnosisRule] = DIAGNOSES) -> JobDiagnosis:
    """Why the GPUs of a job were not fuller: findings by what is at stake × confidence, and causes whose signals are missing."""
    lost, held_s = facts.lost_s, float(facts.held_s.sum())
    price = facts.cost / held_s if facts.cost is not None and held_s else None
    found: list[tuple[float, CauseFinding]] = []
    unknown: list[CannotTell] = []
    low, high = np.zeros_like(lost), np.zeros_like(lost)
    for rule in rules:
        missing = rule.missing(facts)
        claim = None if missing and not _is_reported(rule, facts) else rule.judge(facts)
        if claim is None:
            if missing:
                unknown.append(CannotTell(rule.cause, rule.title, missing))
            continue
        seconds = np.minimum(claim.seconds, lost)
        total = float(seconds.sum())
        low_share = rule.low if claim.low is None else claim.low
        confidence = rule.confidence if claim.confidence is None else claim.confidence
        if confidence < LEAST_CONFIDENCE or total < LEAST_SHARE * held_s:
            continue
        low, high = np.maximum(low, low_share * seconds), np.maximum(high, seconds)
        finding = _describe(rule, facts.job, claim, (low_share, confidence), total, held_s, price)
        found.append((confidence * (1 + low_share) / 2 * total, finding))
    found.sort(key=lambda each: -each[0])
    lost_s = float(lost.sum())
    hours = Range(float(low.sum()) / S_PER_HOUR, float(high.sum()) / S_PER_HOUR)
    observed: Floats = (facts.held_s - facts.unobserved_s).sum(0)
    active = facts.active_s.sum(0)
    return JobDiagnosis(
        facts.job,
        len(facts.devices),
        facts.start_ms,
        facts.start_ms + facts.held_s.shape[1] * facts.step_s * MS_PER_S,
        facts.step_s,
        held_s / S_PER_HOUR,
        float(facts.unobserved_s.sum()) / S_PER_HOUR,
        float(facts.idle_s.sum()) / S_PER_HOUR,
        float(facts.underused_s.sum()) / S_PER_HOUR,
        lost_s / S_PER_HOUR,
        None if price is None else lost_s * price,
        hours,
        _price(hours, price),
        tuple(finding for _, finding in found),
        tuple(unknown),
        tuple(float(a / o) if o > 0 else None for a, o in zip(active, observed, strict=True)),
    )


def add_up_causes(jobs: Iterable[JobDiagnosis]) -> tuple[CauseTotal, ...]:
    """Causes over jobs, the one with most GPU-hours first. They overlap within a job, so they do not add up to what was lost."""
    by_cause: dict[str, list[CauseFinding]] = {}
    for job in jobs:
        for finding in job.findings:
            by_cause.setdefault(finding.cause, []).append(finding)
    totals = []
    for cause, found in by_cause.items():
        hours = Range(sum(f.gpu_hours.low for f in found), sum(f.gpu_hours.high for f in found))
        costs = [f.cost for f in found if f.cost is not None]
        cost = Range(sum(c.low for c in costs), sum(c.high for c in costs)) if costs else None
        totals.append(CauseTotal(cause, found[0].title, found[0].class_, len(found), hours, cost))
    return tuple(sorted(totals, key=lambda total: -total.gpu_hours.high))


def _is_reported(rule: DiagnosisRule, facts: DiagnosedJob) -> bool:
    """Whether the job itself reports what the rule would find in signals."""
    return rule.cause == "input_pipeline" and "data_wait" in facts.sections


def _describe(
    rule: DiagnosisRule,
    job: str,
    claim: Claim,
    low_and_confidence: tuple[float, float],
    total_s: float,
    held_s: float,
    price: float | None,
) -> CauseFinding:
    low, confidence = low_and_confidence
    hours = Range(low * total_s / S_PER_HOUR, total_s / S_PER_HOUR)
    return CauseFinding(
        rule.cause,
        rule.title,
        rule.class_,
        job,
        Range(low * total_s / held_s, total_s / held_s),
        hours,
        _price(hours, price),
        "high" if confidence >= HIGH else "medium" if confidence >= MEDIUM else "low",
        confidence,
        claim.evidence,
        rule.against if claim.against is None else claim.against,
        rule.measure_next if claim.measure_next is None else claim.measure_next,
        rule.action,
    )


def _price(hours: Range, price_per_s: float | None) -> Range | None:
    if price_per_s is None:
        return None
    return Range(hours.low * S_PER_HOUR * price_per_s, hours.high * S_PER_HOUR * price_per_s)


MOST_JOBS: Final = 20
Progress = Callable[[str, float], None]


def diagnose_books(
    books: Books,
    job: str | None = None,
    team: str | None = None,
    window: tuple[datetime, datetime] | None = None,
    most_jobs: int = MOST_JOBS,
    progress: Progress = lambda _what, _share: None,
    leave_out: Collection[str] = (),
) -> FleetDiagnosis:
    """Why the GPUs of a job, of a team or of all were not fuller within [start, end), by default in all of the books.

    Jobs to `leave_out` are counted among those that were not looked at.

    Raises InputError for a job or a team that the books do not know.
    """
    start, end = window or books.span
    span = (milliseconds(start), milliseconds(end))
    with books.snapshot() as snapshot:
        where = {"job": job} if job else {"team": team} if team else {}
        found = snapshot.show(("idle_gpu_hours", "underused_gpu_hours"), "job", start, end, where=where)
        currency = books.store.currency_of(books.store.manifest)
        columns = [found.column(name) for name in ("idle_gpu_hours", "underused_gpu_hours")]
    hours = {
        key[0]: sum(float(value) for value in values if isinstance(value, int | float))
        for key, values in zip(found.keys, zip(*columns, strict=True), strict=True)
        if key[0] is not None
    }
    ranked = [job] if job else [name for name in sorted(hours, key=lambda name: -hours[name]) if hours[name] > 0]
    ranked = [name for name in ranked if name != "unknown holder"]
    looked_at = [name for name in ranked if name not in leave_out][:most_jobs]
    with books.watch() as watched:
        scheduling: tuple[CauseFinding, ...] = ()
        if not where:
            progress("diagnosing", 0.0)
            with books.snapshot() as snapshot:
                scheduling = find_scheduling(watched, snapshot, span)
        diagnosed = _diagnose(watched, looked_at, span, progress)
    rest = [name for name in ranked if name not in looked_at]
    return FleetDiagnosis(
        f"job {job}" if job else f"team {team}" if team else "the fleet",
        diagnosed,
        add_up_causes(diagnosed),
        scheduling,
        len(rest),
        sum(hours[name] for name in rest),
        currency,
    )


def diagnose_jobs(
    books: Books, jobs: Sequence[str], span: Span, progress: Progress = lambda _what, _share: None
) -> tuple[JobDiagnosis, ...]:
    """Why the GPUs of these jobs were not fuller within a span. Raises InputError for one that held none then."""
    with books.watch() as watched:
        return _diagnose(watched, jobs, span, progress)


def _diagnose(watched: Watched, jobs: Sequence[str], span: Span, progress: Progress) -> tuple[JobDiagnosis, ...]:
    diagnosed = []
    for number, job in enumerate(read_jobs(watched, jobs, span)):
        diagnosed.append(diagnose_job(job))
        progress("diagnosing", (number + 1) / len(jobs))
    return tuple(diagnosed)
