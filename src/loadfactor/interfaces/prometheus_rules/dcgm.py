"""Rules with conditions of their own over dcgm-exporter and kube-state-metrics, as far as PromQL and these series can say them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from loadfactor.base.quantities import write_share
from loadfactor.base.units import PERCENT, S_PER_MIN
from loadfactor.insight.alerts.rule import Compound, Rule, Threshold
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
"""Labels of the groups of rules there: a team is a namespace, a job is a pod."""
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
    known = f"where {write_share(condition.least_coverage)} of it is known"
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


NOTEBOOK: Final = ".*(notebook|interactive|jupyter|ipython|workspace|vscode|debug).*"
"""Names of pods in which somebody works who thinks now and then."""
A_DAY: Final = "Of a pod that runs for longer than a day, the last day counts for all of its time."
NO_NOTEBOOK, IS_NOTEBOOK = f'{{pod!~"{NOTEBOOK}"}}', f'{{pod=~"{NOTEBOOK}"}}'


def find_limit(rule: Rule, name: str, default: float) -> float:
    """A limit of a rule as it is set."""
    limits = rule.condition.limits if isinstance(rule.condition, Compound) else {}
    return limits[name].value if name in limits else default


def _idle(rule: Rule, of: str, ever: str, stays: str) -> str:
    """Idle now, and what was before; an alert that fires stays until the pod works again."""
    idle = f"{BUSY_OF_POD}{of} == 0"
    first = f"{idle}\nand sum_over_time({BUSY_OF_POD}{of}[1d]) {ever}" if ever else idle
    return f"{first}\nor ({stays}\n  and on (namespace, pod) {REQUESTED}\n  {while_firing(rule, POD)})"


def translate_idle_from_start(rule: Rule) -> TranslatedRule:
    use = find_limit(rule, "use", 2)
    stays = f"sum_over_time({BUSY_OF_POD}{NO_NOTEBOOK}[1d]) < {use:g}"
    return TranslatedRule(rule, _idle(rule, NO_NOTEBOOK, f"< {use:g}", stays), POD, remark=A_DAY)


def translate_became_idle(rule: Rule) -> TranslatedRule:
    use = find_limit(rule, "use", 2)
    stays = f"sum_over_time({BUSY_OF_POD}{NO_NOTEBOOK}[5m]) < {use:g}"
    return TranslatedRule(rule, _idle(rule, NO_NOTEBOOK, f">= {use:g}", stays), POD, remark=A_DAY)


def translate_idle_notebook(rule: Rule) -> TranslatedRule:
    stays = f"sum_over_time({BUSY_OF_POD}{IS_NOTEBOOK}[5m]) < {find_limit(rule, 'use', 2):g}"
    remark = "Notebooks are recognized by the names of pods."
    return TranslatedRule(rule, _idle(rule, IS_NOTEBOOK, "", stays), POD, remark=remark)


def translate_never_used(rule: Rule) -> TranslatedRule:
    use = find_limit(rule, "use", 2)
    worked = f"max by (namespace, pod, UUID) (sum_over_time({BUSY}[1d]))"
    unused, used = (f"count by (namespace, pod) ({worked} {sign} {use:g})" for sign in ("<", ">="))
    return TranslatedRule(
        rule, f"{unused}\nand on (namespace, pod) {used}\nand on (namespace, pod) {BUSY_OF_POD}", POD, "GPUs", A_DAY
    )


def translate_memory_pressure(rule: Rule) -> TranslatedRule:
    """Slow growth over 40 minutes; and growth over ten minutes, alike in both halves, beyond what was before, that is full soon."""
    used, clear, growth, full_in, steep = (
        find_limit(rule, name, d)
        for name, d in (("used", 0.85), ("clears_at", 0.8), ("growth", 0.005), ("full_in", 10), ("steep", 0.05))
    )
    now, before, long_before = (f"avg_over_time({MEMORY}{HELD}[5m]{ago})" for ago in ("", " offset 30m", " offset 1h"))
    half_ago, ago = (f"{MEMORY}{HELD} offset {time}" for time in ("5m", "10m"))
    later, earlier = f"({MEMORY}{HELD} - {half_ago})", f"({half_ago} - {ago})"
    age_s = "on (namespace, pod) (max by (namespace, pod) (kube_pod_start_time) <= time() - {:g})"
    expression = (
        f"({now} > {used:g}\nand {now} - {before} >= {growth:g}\nand {before} - {long_before} >= {growth:g}\n"
        f"and {age_s.format(80 * S_PER_MIN)})\n"
        f"or ({MEMORY}{HELD} - max_over_time({MEMORY}{HELD}[1h] offset 10m) >= {steep:g}\n"
        f"  and predict_linear({MEMORY}{HELD}[10m], {full_in * S_PER_MIN:g}) >= 1\n"
        f"  and {later} >= 0.7 * {earlier}\n  and {earlier} >= 0.3 * {later}\n"
        f"  and {age_s.format(15 * S_PER_MIN)})\n"
        f"or ({now} >= {clear:g}\n  {while_firing(rule, ('namespace', 'pod', 'UUID'))})"
    )
    return TranslatedRule(
        rule,
        expression,
        ("namespace", "pod", "UUID"),
        "share",
        "Growth alone: out-of-memory events are no series of dcgm-exporter.",
    )


def translate_xid(rule: Rule) -> TranslatedRule:
    ago = f"{find_limit(rule, 'stays', 60):g}m"
    last = "max by (UUID) (DCGM_FI_DEV_XID_ERRORS{})"
    now, before = last.format(""), last.format(f" offset {ago}")
    changed = f"{now} != {before}\n  or max by (UUID) (changes(DCGM_FI_DEV_XID_ERRORS[{ago}])) > 0"
    expression = f"({now} > 0) != 43 != 45\nand on (UUID) ({changed})"
    remark = "The exporter tells the last XID of a GPU alone: the same one again, or one that another one followed, is not seen."
    return TranslatedRule(rule, expression, GPU, "(XID)", remark)


def translate_ecc(rule: Rule) -> TranslatedRule:
    ago, many = f"{find_limit(rule, 'stays', 60):g}m", find_limit(rule, "corrected", 1000)

    def rose(counter: str, sign: str) -> str:
        return f"max by (UUID) ({counter} - min_over_time({counter}[{ago}])) {sign}"

    counters = ("ECC_DBE_VOL_TOTAL", "UNCORRECTABLE_REMAPPED_ROWS", "CORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_FAILURE")
    parts = [rose(f"DCGM_FI_DEV_{name}", "> 0") for name in counters]
    parts.append(rose("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", f">= {many:g}"))
    remark = (
        "The counters of ECC errors are commented out in the exporter's default list; those of replaced rows are in it."
    )
    return TranslatedRule(rule, "\nor ".join(parts), GPU, "errors or rows", remark)


def translate_node_down(rule: Rule) -> TranslatedRule:
    ready = 'max by (node) (kube_node_status_condition{condition="Ready",status="true"}) == 0'
    expression = f"{ready}\nand on (node) {_GPU_NODES}\nunless on (node) kube_node_spec_unschedulable == 1"
    return TranslatedRule(rule, expression, ("node",), remark="Planned is what is cordoned.")


def translate_telemetry_lost(rule: Rule) -> TranslatedRule:
    expression = f"sum by (namespace, pod) ({REQUESTED})\nunless on (namespace, pod) {ACTIVITY}{HELD}"
    remark = "By pod, as the exporter calls nodes otherwise than kube-state-metrics does."
    return TranslatedRule(rule, expression, POD, "GPUs", remark)


def translate_exporter_lost(rule: Rule) -> TranslatedRule:
    return TranslatedRule(
        rule, 'up{job=~".*dcgm.*"} == 0', ("instance",), remark='Exporters are recognized by their job: ".*dcgm.*".'
    )


def translate_work_unheld(rule: Rule) -> TranslatedRule:
    works = f"sum_over_time({UNHELD}[10m]) / 10"
    often, clear = find_limit(rule, "time", 0.5), find_limit(rule, "clears_at", 0.1)
    expression = f"{works} > {often:g}\nor ({works} > {clear:g}\n  {while_firing(rule, GPU)})"
    return TranslatedRule(rule, expression, GPU, "share", "By GPU; loadfactor tells of the node.")


def translate_free_while_waiting(rule: Rule) -> TranslatedRule:
    waited_s = find_limit(rule, "wait", 10) * S_PER_MIN
    created = f"max by (namespace, pod) (kube_pod_created) <= time() - {waited_s:g}"
    expression = f"max (min_over_time({FREE}[10m]))\n>= min ({PENDING}\n  and on (namespace, pod) ({created}))"
    remark = "For pods that one node can hold, in any pool; quotas, and jobs of several nodes, are not looked at."
    return TranslatedRule(rule, expression, (), "GPUs", remark)


_GPU_NODES: Final = 'kube_node_status_capacity{resource="nvidia_com_gpu"} > 0'
TRANSLATIONS: Final[Mapping[str, Callable[[Rule], TranslatedRule]]] = {
    "job_idle_from_start": translate_idle_from_start,
    "job_became_idle": translate_became_idle,
    "notebook_idle": translate_idle_notebook,
    "gpus_never_used": translate_never_used,
    "memory_pressure": translate_memory_pressure,
    "gpu_xid": translate_xid,
    "gpu_ecc": translate_ecc,
    "node_down": translate_node_down,
    "telemetry_lost": translate_telemetry_lost,
    "exporter_lost": translate_exporter_lost,
    "gpus_work_unheld": translate_work_unheld,
    "gpus_free_while_jobs_wait": translate_free_while_waiting,
}
UNTRANSLATED: Final[Mapping[str, str]] = {
    "pcie_saturated": "How much PCIe carries at most depends on the accelerator and its slot, which these series do not tell.",
    "collective_bound": "What NVLink carries and the board draws at most depends on the accelerator; these series do not tell.",
    "job_straggler": "It compares every GPU with the middle of its job, and asks whether all others are alike.",
    "gpu_throttled": "The default counters have no reasons of throttling, nor the board's limit of power, at which it is no fault.",
    "queue_wait_unusual": "What is usual follows from the waits of two weeks by queue and size, which are no series.",
    "budget_burn": "Budgets and prices are no series.",
    "price_ended": "Prices are no series.",
}
"""Rules that PromQL cannot express over these series, and why."""


ABOUT_DCGM = (
    "Rules of alerts for Prometheus, over dcgm-exporter and kube-state-metrics, in place of a loadfactor server.\n\n"
    "A team is a namespace and a job is a pod here, as no other holder is known. dcgm-exporter has to name pods (it does on"
    " Kubernetes), and Prometheus has to keep these labels (honor_labels: true). SM active has to be in the exporter's list of"
    " counters; without it engine active counts, or GPU_UTIL, which are optimistic. An alert that fires stays until its value is"
    " clear of the limit: that is the part with ALERTS. `for` is a minute less than the rule's, as the first"
    " evaluation speaks of the minute before it."
)


def list_dcgm_rules(rules: Sequence[Rule]) -> list[Written]:
    """Recorded series, then every rule, in order."""
    written: list[Written] = list(RECORDINGS)
    for rule in rules:
        if isinstance(rule.condition, Threshold):
            written += translate_threshold(rule, rule.condition)
        elif rule.name in TRANSLATIONS:
            written.append(TRANSLATIONS[rule.name](rule))
        else:
            written.append(UntranslatedRule(rule, UNTRANSLATED.get(rule.name, "It has no translation.")))
    return written
