"""Rules with a threshold over dcgm-exporter and kube-state-metrics: means of samples, where enough samples are there."""

from loadfactor.base.units import S_PER_MIN
from loadfactor.insight.alerts.rule import Rule, Threshold
from loadfactor.interfaces.prometheus_rules.dcgm_series import (
    ACTIVITY,
    GPU,
    HELD,
    LABELS,
    MEMORY,
    POD,
    REQUESTED,
    SAMPLES,
)
from loadfactor.interfaces.prometheus_rules.rule_file import RecordedSeries, SaidRule, UnsaidRule, Written, quote_promql
from loadfactor.metrics import metric

OF_HELD = frozenset(
    {"utilization", "sm_activity", "engine_activity", "tensor_activity", "dram_activity", "mem_utilization", "power_w"}
)
"""Metrics that speak of GPUs that somebody holds."""


def say_threshold(rule: Rule, condition: Threshold) -> list[Written]:
    """The value that is compared, under a name of its own, and the rule; or why there is none."""
    samples, labels = SAMPLES.get(condition.metric), LABELS.get(rule.by)
    if samples is None:
        return [UnsaidRule(rule, f"dcgm-exporter has no series of {condition.metric}.")]
    if labels is None:
        return [UnsaidRule(rule, f"These series cannot be split by {', '.join(rule.by)}.")]
    record = f"loadfactor:{_name(rule)}:value"
    known = f"where {condition.least_coverage:.0%} of it is known"
    about = f"{metric(condition.metric).title} over {_minutes(condition.window_s)}, {known}."
    return [
        RecordedSeries(record, _average(condition, samples, labels), about),
        compare(rule, record, condition, labels),
    ]


def compare(rule: Rule, record: str, condition: Threshold, labels: tuple[str, ...]) -> SaidRule:
    """The comparison of a recorded value, with hysteresis."""
    sign = "<" if condition.side == "below" else ">"
    stays = f"{record} {sign} {condition.clears_at:g}\n  {while_firing(rule, labels)}"
    return SaidRule(rule, f"{record} {sign} {condition.limit:g}\nor ({stays})", labels, metric(condition.metric).unit)


def while_firing(rule: Rule, labels: tuple[str, ...]) -> str:
    """Where the alert of a rule fires for the same group."""
    return f'and on ({", ".join(labels)}) ALERTS{{alertname={quote_promql(rule.name)},alertstate="firing"}}'


def _average(condition: Threshold, samples: str, labels: tuple[str, ...]) -> str:
    """Sum of samples ÷ their number, of the GPUs that are held, or of any where the metric speaks of all."""
    window = _minutes(condition.window_s)
    is_recorded = samples in (ACTIVITY, MEMORY)
    held = HELD if condition.metric in OF_HELD else ""
    series = f"{samples}{held}[{window}]" if is_recorded else f"{samples}{held}[{window}:1m]"
    by = f"by ({', '.join(labels)}) " if labels else ""
    mean = f"sum {by}(sum_over_time({series}))\n/ sum {by}(count_over_time({series}))"
    count = f"sum {by}(count_over_time({series}))"
    steps = condition.window_s / S_PER_MIN
    on = f"on ({', '.join(labels)})"
    if labels == GPU:
        known = f"{count} >= {condition.least_coverage * steps:g}"
        there = f"and {on} {samples}{held}"
    else:
        known = f"{count} >= {on} {condition.least_coverage:g} * sum {by}(sum_over_time({REQUESTED}[{window}]))"
        there = f"and {on} {REQUESTED}"
    parts = [f"({mean})", f"and {on} ({known})", there]
    if labels == POD:
        parts.append(f"and {on} (max by (namespace, pod) (kube_pod_start_time) <= time() - {condition.window_s:g})")
    return "\n".join(parts)


def _minutes(seconds: float) -> str:
    return f"{seconds / S_PER_MIN:g}m"


def _name(rule: Rule) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in rule.name)
