"""What rules over dcgm-exporter and kube-state-metrics read: series under names of their own, and how groups are called there."""

from collections.abc import Mapping
from typing import Final

from loadfactor.base.units import PERCENT
from loadfactor.interfaces.prometheus_rules.rule_file import RecordedSeries
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
