"""The diagnosis of one job from its facts: every rule asked, claims as ranges, and their union."""

from collections.abc import Iterable, Sequence

import numpy as np

from loadfactor.base.units import MS_PER_S, S_PER_HOUR
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob, Floats
from loadfactor.insight.diagnosis.finding import CannotTell, CauseFinding, CauseTotal, JobDiagnosis, Range
from loadfactor.insight.diagnosis.rule import HIGH, MEDIUM, Claim, DiagnosisRule
from loadfactor.insight.diagnosis.rules import DIAGNOSES

LEAST_SHARE = 0.01
"""A cause with less of the held time at stake is not worth a line."""
LEAST_SURENESS = 0.5
"""What is less sure is no finding."""


def diagnose_job(facts: DiagnosedJob, rules: Sequence[DiagnosisRule] = DIAGNOSES) -> JobDiagnosis:
    """Why the GPUs of a job were not fuller: findings by what is at stake × sureness, and what cannot be told."""
    lost, held_s = facts.lost_s, float(facts.held_s.sum())
    price = facts.cost / held_s if facts.cost is not None and held_s else None
    found: list[tuple[float, CauseFinding]] = []
    unknown: list[CannotTell] = []
    low, high = np.zeros_like(lost), np.zeros_like(lost)
    for rule in rules:
        said = rule.missing(facts)
        claim = None if said and not _is_said(rule, facts) else rule.judge(facts)
        if claim is None:
            if said:
                unknown.append(CannotTell(rule.cause, rule.title, said))
            continue
        seconds = np.minimum(claim.seconds, lost)
        total = float(seconds.sum())
        if claim.sureness < LEAST_SURENESS or total < LEAST_SHARE * held_s:
            continue
        low, high = np.maximum(low, claim.low * seconds), np.maximum(high, seconds)
        finding = _describe(rule, facts.job, claim, total, held_s, price)
        found.append((claim.sureness * (1 + claim.low) / 2 * total, finding))
    found.sort(key=lambda each: -each[0])
    lost_s = float(lost.sum())
    hours = Range(float(low.sum()) / S_PER_HOUR, float(high.sum()) / S_PER_HOUR)
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
        _activity(facts),
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


def _is_said(rule: DiagnosisRule, facts: DiagnosedJob) -> bool:
    """Whether the job itself says what the rule would tell from signals."""
    return rule.cause == "input_pipeline" and "data_wait" in facts.sections


def _describe(
    rule: DiagnosisRule, job: str, claim: Claim, total_s: float, held_s: float, price: float | None
) -> CauseFinding:
    hours = Range(claim.low * total_s / S_PER_HOUR, total_s / S_PER_HOUR)
    sureness = "high" if claim.sureness >= HIGH else "medium" if claim.sureness >= MEDIUM else "low"
    return CauseFinding(
        rule.cause,
        rule.title,
        rule.class_,
        job,
        Range(claim.low * total_s / held_s, total_s / held_s),
        hours,
        _price(hours, price),
        sureness,
        claim.sureness,
        claim.evidence,
        claim.against,
        claim.measure_next,
        rule.action,
    )


def _price(hours: Range, price_per_s: float | None) -> Range | None:
    if price_per_s is None:
        return None
    return Range(hours.low * S_PER_HOUR * price_per_s, hours.high * S_PER_HOUR * price_per_s)


def _activity(facts: DiagnosedJob) -> tuple[float | None, ...]:
    observed: Floats = (facts.held_s - facts.unobserved_s).sum(0)
    active = facts.active_s.sum(0)
    return tuple(float(a / o) if o > 0 else None for a, o in zip(active, observed, strict=True))
