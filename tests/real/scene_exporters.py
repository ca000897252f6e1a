"""A fleet with known faults as dcgm-exporter and kube-state-metrics would tell of it, minute by minute."""

import numpy as np
from tests.faults.scene import Job, Scene, measure
from tests.real.backfilled import Labels, Series

from loadfactor.base.units import BYTES_PER_MIB, MS_PER_S, PERCENT
from loadfactor.insight.alerts.rules.hardware import is_planned

FREE: dict[str, str] = {}


def export_scene(scene: Scene) -> Series:
    """Everything that the two exporters tell: a pod is a job, a namespace is a team."""
    return {**_export_gpus(scene), **_export_pods(scene), **_export_nodes(scene)}


def name_pod(job: Job) -> dict[str, str]:
    """A job as a pod."""
    return {"namespace": job.team, "pod": job.job_id}


def _export_gpus(scene: Scene) -> Series:
    said = measure(scene)
    free = said["mem_total_bytes"] - said["mem_used_bytes"]
    signals = {
        "DCGM_FI_PROF_SM_ACTIVE": said["sm_active_share"],
        "DCGM_FI_DEV_GPU_UTIL": np.round(said["busy_share"] * PERCENT),
        "DCGM_FI_DEV_FB_USED": said["mem_used_bytes"] / BYTES_PER_MIB,
        "DCGM_FI_DEV_FB_FREE": free / BYTES_PER_MIB,
        "DCGM_FI_DEV_GPU_TEMP": said["temperature_c"],
        "DCGM_FI_DEV_XID_ERRORS": _read_xids(scene),
    }
    series, holders = Series(), scene.holders()
    for place, gpu in enumerate(scene.fleet):
        for minute in np.flatnonzero(~scene.lost[place]).tolist():
            holder = int(holders[place, minute])
            pod = name_pod(scene.jobs[holder]) if holder >= 0 else FREE
            labels = _sort(UUID=gpu.device, Hostname=gpu.node, gpu=gpu.device[-1], **pod)
            for name, values in signals.items():
                series.setdefault((name, labels), {})[scene.at_ms(minute + 1)] = float(values[place, minute])
    return series


def _read_xids(scene: Scene) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The last XID of each GPU: 0 before the first."""
    last = np.zeros(scene.sm.shape)
    for event in sorted(scene.events, key=lambda event: event.minute):
        if event.kind == "xid":
            last[event.gpu, max(event.minute, 0) :] = float(event.detail.partition(":")[0])
    return last


def _export_pods(scene: Scene) -> Series:
    series = Series()
    for job in scene.jobs:
        minutes = range(*job.within(scene.minutes))
        nodes = {scene.fleet[place].node for place in job.gpus}
        _add(series, "kube_pod_start_time", name_pod(job), minutes, scene.at_ms(job.from_min) / MS_PER_S, scene)
        _add(series, "kube_pod_status_phase", name_pod(job) | {"phase": "Running"}, minutes, 1.0, scene)
        for node in nodes:
            gpus = sum(scene.fleet[place].node == node for place in job.gpus)
            labels = name_pod(job) | {"node": node, "resource": "nvidia_com_gpu"}
            _add(series, "kube_pod_container_resource_requests", labels, minutes, float(gpus), scene)
    return series


def _export_nodes(scene: Scene) -> Series:
    series = Series()
    for node in sorted({gpu.node for gpu in scene.fleet}):
        gpus = float(len(scene.gpus_of(node)))
        for minute in range(scene.minutes):
            out = [o.reason for o in scene.outages if o.node == node and o.minutes[0] <= minute < o.minutes[1]]
            failed = any(not is_planned(reason) for reason in out)
            ready = {"node": node, "condition": "Ready", "status": "true"}
            now = range(minute, minute + 1)
            _add(series, "kube_node_status_condition", ready, now, 0.0 if failed else 1.0, scene)
            _add(series, "kube_node_spec_unschedulable", {"node": node}, now, float(bool(out) and not failed), scene)
            for name in ("capacity", "allocatable"):
                _add(series, f"kube_node_status_{name}", {"node": node, "resource": "nvidia_com_gpu"}, now, gpus, scene)
    return series


def _add(series: Series, name: str, labels: dict[str, str], minutes: range, value: float, scene: Scene) -> None:
    values = series.setdefault((name, _sort(**labels)), {})
    values.update((scene.at_ms(minute + 1), value) for minute in minutes)


def _sort(**labels: str) -> Labels:
    return tuple(sorted(labels.items()))
