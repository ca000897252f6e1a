"""What rules over dcgm-exporter and kube-state-metrics read: series under names of their own, and how groups are called there."""

from collections.abc import Mapping
from typing import Final

from loadfactor.base.units import PERCENT, S_PER_MIN
from loadfactor.insight.alerts.rule import Rule, Threshold
from loadfactor.interfaces.prometheus_rules.rule_file import (
    RecordedSeries,
    TranslatedRule,
    UntranslatedRule,
    Written,
    quote_promql,
)
from loadfactor.metrics import metric
from loadfactor.tables.schema import IDLE_BELOW

ACTIVITY: Final = "loadfactor:gpu_activity:ratio"
MEMORY: Final = "loadfactor:gpu_memory:ratio"
BUSY: Final = "loadfactor:gpu_busy:bool"
ALLOCATABLE: Final = 'sum by (node) (kube_node_status_allocatable{resource="nvidia_com_gpu"})'
UNHELD: Final = "loadfactor:gpu_unheld:bool"
FREE: Final = "loadfactor:node_free:gpus"
PENDING: Final = "loadfactor:pod_pending:gpus"
BUSY_OF_POD: Final = "loadfactor:pod_busy:gpus"
REQUESTED: Final = "loadfactor:pod_requested:gpus"
RUNNING: Final = 'kube_pod_status_phase{phase="Running"} == 1'
WAITING: Final = 'kube_pod_status_phase{phase="Pending"} == 1'
ASKED: Final = 'kube_pod_container_resource_requests{resource="nvidia_com_gpu"}'
HELD: Final = '{pod!=""}'
POD: Final = ("namespace", "pod")
GPU: Final = ("UUID",)
LABELS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    (): (),
    ("team",): ("namespace",),
    ("job",): POD,
    ("device",): GPU,
}
"""What groups of rules are called there: a team is a namespace, a job is a pod."""
SAMPLES: Final = {
    "utilization": ACTIVITY,
    "sm_activity": "DCGM_FI_PROF_SM_ACTIVE",
    "engine_activity": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "tensor_activity": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "dram_activity": "DCGM_FI_PROF_DRAM_ACTIVE",
    "mem_utilization": MEMORY,
    "power_w": "DCGM_FI_DEV_POWER_USAGE",
    "temperature_c": "DCGM_FI_DEV_GPU_TEMP",
}
"""Metrics that are means of samples, and the series that has these."""
UTIL: Final = "DCGM_FI_DEV_GPU_UTIL"


def _seen(signal: str) -> str:
    """A profiling counter, where it does not read 0 while the GPU is busy, which is what it does when it failed."""
    return f"({signal} <= 1 unless ({signal} == 0 and {UTIL} >= {IDLE_BELOW * PERCENT:g}))"


RECORDINGS: Final = (
    RecordedSeries(
        ACTIVITY,
        f"{_seen('DCGM_FI_PROF_SM_ACTIVE')}\nor {_seen('DCGM_FI_PROF_GR_ENGINE_ACTIVE')}\nor ({UTIL} <= {PERCENT}) / {PERCENT}",
        "The best signal of activity: SM active, else engine active, else GPU_UTIL. Numbers beyond 1 stand for none.",
    ),
    RecordedSeries(
        MEMORY,
        "max by (namespace, pod, UUID) (DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE))",
        "Memory in use.",
    ),
    RecordedSeries(
        REQUESTED,
        f"sum by (namespace, pod) ({ASKED})\n* on (namespace, pod) group_left () max by (namespace, pod) ({RUNNING})",
        "GPUs that running pods hold: what of these has no sample is unknown, and never idle.",
    ),
    RecordedSeries(BUSY, f"{ACTIVITY}{HELD} >= bool {IDLE_BELOW:g}", "1 where a GPU that a pod holds works, 0 where it is idle."),
    RecordedSeries(
        UNHELD,
        f'max by (UUID) ({ACTIVITY}{{pod=""}}) >= bool {IDLE_BELOW:g}',
        "1 where a GPU that no pod holds works.",
    ),
    RecordedSeries(
        BUSY_OF_POD,
        f"sum by (namespace, pod) ({BUSY})\n"
        f"and on (namespace, pod) (count by (namespace, pod) ({BUSY}) >= on (namespace, pod) 0.5 * {REQUESTED})",
        "GPUs of a pod that work, where at least half of them have samples.",
    ),
    RecordedSeries(
        FREE,
        f"({ALLOCATABLE}\n  unless on (node) kube_node_spec_unschedulable == 1)\n"
        f"- on (node) (sum by (node) ({ASKED}\n    * on (namespace, pod) group_left () ({RUNNING}))\n  or 0 * {ALLOCATABLE})",
        "GPUs of a node that no running pod holds.",
    ),
    RecordedSeries(
        PENDING,
        f"sum by (namespace, pod) ({ASKED}\n  * on (namespace, pod) group_left () ({WAITING}))",
        "GPUs that a pending pod asks for.",
    ),
)  # fmt: skip


OF_HELD = frozenset(
    {"utilization", "sm_activity", "engine_activity", "tensor_activity", "dram_activity", "mem_utilization", "power_w"}
)
"""Metrics that speak of GPUs that somebody holds."""


def translate_threshold(rule: Rule, condition: Threshold) -> list[Written]:
    """The value that is compared, under a name of its own, and the rule; or why there is none."""
    samples, labels = SAMPLES.get(condition.metric), LABELS.get(rule.by)
    if samples is None:
        return [UntranslatedRule(rule, f"dcgm-exporter has no series of {condition.metric}.")]
    if labels is None:
        return [UntranslatedRule(rule, f"These series cannot be split by {', '.join(rule.by)}.")]
    record = f"loadfactor:{_name(rule)}:value"
    known = f"where {condition.least_coverage:.0%} of it is known"
    about = f"{metric(condition.metric).title} over {_minutes(condition.window_s)}, {known}."
    return [
        RecordedSeries(record, _average(condition, samples, labels), about),
        compare(rule, record, condition, labels),
    ]


def compare(rule: Rule, record: str, condition: Threshold, labels: tuple[str, ...]) -> TranslatedRule:
    """The comparison of a recorded value, with hysteresis."""
    sign = "<" if condition.side == "below" else ">"
    stays = f"{record} {sign} {condition.clears_at:g}\n  {while_firing(rule, labels)}"
    return TranslatedRule(
        rule, f"{record} {sign} {condition.limit:g}\nor ({stays})", labels, metric(condition.metric).unit
    )


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
