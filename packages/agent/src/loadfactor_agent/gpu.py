"""One GPU: everything NVML gives of it at an instant, its MIG instances and GPM included, under the names of dcgm-exporter."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import pynvml

from .card import FIELDS, NVLINK_FIELDS, Card, CardFields
from .holder import GivenPod, Holder, join_holders
from .notices import Notices
from .units import BYTES_PER_KIB, BYTES_PER_MIB, MS_PER_S, MW_PER_W, PERCENT
from .write_request import Labels, SeriesValues

WHAT: Final = "GPM (what SMs, tensor cores and memory did)"
_SHARES: Final = {
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    pynvml.NVML_GPM_METRIC_SM_UTIL: "DCGM_FI_PROF_SM_ACTIVE",
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: "DCGM_FI_PROF_SM_OCCUPANCY",
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "DCGM_FI_PROF_DRAM_ACTIVE",
    pynvml.NVML_GPM_METRIC_FP64_UTIL: "DCGM_FI_PROF_PIPE_FP64_ACTIVE",
    pynvml.NVML_GPM_METRIC_FP32_UTIL: "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
    pynvml.NVML_GPM_METRIC_FP16_UTIL: "DCGM_FI_PROF_PIPE_FP16_ACTIVE",
}
_RATES: Final = {
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: "DCGM_FI_PROF_PCIE_TX_BYTES",
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: "DCGM_FI_PROF_PCIE_RX_BYTES",
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: "DCGM_FI_PROF_NVLINK_TX_BYTES",
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: "DCGM_FI_PROF_NVLINK_RX_BYTES",
}
_NAMES: Final = {**_SHARES, **_RATES}


def has_profiler(card: Card, handle: Any) -> bool:
    answer = card.ask(WHAT, pynvml.nvmlGpmQueryDeviceSupport, handle)
    if answer is not None and not answer.isSupportedDevice:
        card.refuse(WHAT, pynvml.NVML_ERROR_NOT_SUPPORTED)
    return answer is not None and bool(answer.isSupportedDevice)


class Profiler:
    """Samples of one GPU, or of one GPU instance of it, each measured against the one before."""

    def __init__(self, card: Card, take: Callable[[Any], object]) -> None:
        self._card, self._take = card, take
        self._samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
        self._has_first = False
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(_NAMES)
        for index, number in enumerate(_NAMES):
            self._request.metrics[index].metricId = number

    def read(self) -> dict[str, float]:
        """Shares (0…1) and bytes per second since the last call, by metric; nothing the first time. Raises CardLostError."""
        first, second = self._samples
        if self._card.ask(WHAT, self._take, second) is None:
            return {}
        self._samples = [second, first]
        if not self._has_first:
            self._has_first = True
            return {}
        request = self._request
        request.sample1, request.sample2 = first, second
        if self._card.ask(WHAT, pynvml.nvmlGpmMetricsGet, request) is None:
            return {}
        found = {}
        for index, (number, name) in enumerate(_NAMES.items()):
            metric = request.metrics[index]
            value = metric.value
            if metric.nvmlReturn == pynvml.NVML_SUCCESS and value == value and value >= 0:
                found[name] = min(value / PERCENT, 1.0) if number in _SHARES else value * BYTES_PER_MIB
        return found

    def close(self) -> None:
        """Give the samples back."""
        for sample in self._samples:
            pynvml.nvmlGpmSampleFree(sample)


_MIB_PER_GIB: Final = 1024


class GpuInstance(NamedTuple):
    """One GPU instance: its id, a handle of a device in it, its profile, 1g.10gb, and the UUIDs of the devices in it."""

    number: int
    handle: Any
    profile: str
    uuids: list[str]


def list_instances(card: Card, handle: Any) -> list[GpuInstance]:
    """The instances by number; none where the GPU is whole. Compute instances of one GPU instance are one. Raises CardLostError."""
    mode = card.ask("MIG", pynvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return []
    found: dict[int, GpuInstance] = {}
    for index in range(card.ask("number of MIG devices", pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError:  # free positions answer so
            continue
        number = card.ask("MIG instance id", pynvml.nvmlDeviceGetGpuInstanceId, device)
        if number is None:
            continue
        if number not in found:
            found[number] = GpuInstance(number, device, _name_profile(card, device), [])
        if uuid := card.ask("MIG UUID", pynvml.nvmlDeviceGetUUID, device):
            found[number].uuids.append(str(uuid))
    return [found[number] for number in sorted(found)]


def _name_profile(card: Card, device: Any) -> str:
    attributes = card.ask("MIG attributes", pynvml.nvmlDeviceGetAttributes, device)
    if attributes is None:
        return ""
    gigabytes = -(-attributes.memorySizeMB // _MIB_PER_GIB)  # 9.75 GiB are sold as 10gb
    return f"{attributes.gpuInstanceSliceCount}g.{gigabytes}gb"


INSTANCES_EVERY_S: Final = 30.0
"""So often it is looked which MIG instances there are."""
_WHOLE: Final = 0xFFFFFFFF
_HELD: Final = "DCGM_FI_DEV_FB_TOTAL"
"""The metric that stands there once for each holder beyond the first."""
FindHolder = Callable[[int], Holder | None]
FindPods = Callable[[Iterable[str]], list[GivenPod]]
"""Gives the pods that were given a device, by the names it may have."""


class RunningProcess(NamedTuple):
    """A process on a GPU. `instance`: the GPU instance it runs in, None where the GPU is not divided."""

    pid: int
    instance: int | None


class GpuReadings(NamedTuple):
    """Values of one look at a GPU."""

    readings: list[SeriesValues]
    pids: set[int]


class GpuReader:
    """Reads one GPU. All its calls come from one thread."""

    def __init__(self, index: int, node: str, notices: Notices, find_holder: FindHolder, find_pods: FindPods) -> None:
        """Raises pynvml.NVMLError where there is no such GPU."""
        self.index = index
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        self.uuid = str(pynvml.nvmlDeviceGetUUID(self.handle))
        model = str(pynvml.nvmlDeviceGetName(self.handle))
        self.card = Card(model, notices)
        pci = self.card.ask("PCI address", pynvml.nvmlDeviceGetPciInfo, self.handle)
        self._facts = {
            "gpu": str(index),
            "UUID": self.uuid,
            "pci_bus_id": _read_text(pci.busId) if pci is not None else "",
            "device": f"nvidia{index}",
            "modelName": model,
            "Hostname": node,
            "instance": node,
            "job": "loadfactor-agent",
        }
        self._notices, self._find_holder, self._find_pods = notices, find_holder, find_pods
        self._labels: dict[tuple[int | None, Holder | None], Labels] = {}
        self._instances: list[GpuInstance] = []
        self._profilers: dict[int | None, Profiler] = {}
        self._has_profiler = has_profiler(self.card, self.handle)
        self._fields = CardFields(self.card, self.handle, FIELDS + (() if self._has_profiler else NVLINK_FIELDS))
        self._looked_s = float("-inf")

    def read(self) -> GpuReadings:
        """Everything, now. Raises CardLostError."""
        self._look_at_instances()
        at_ms = int(time.time() * MS_PER_S)
        values = self._fields.read()
        values |= self._read_gauges()
        values |= self._read_memory(self.handle)
        if self._has_profiler:
            values |= self._profile(None, lambda sample: pynvml.nvmlGpmSampleGet(self.handle, sample))
        else:
            values |= self._read_pcie()
        processes = self._list_processes()
        if self._instances:  # who holds them holds the GPU
            readings = [SeriesValues(self._label(None, None), at_ms, values)]
        else:
            readings = self._name_holders(at_ms, values, None, processes)
        for instance in self._instances:
            mine = [process for process in processes if process.instance == instance.number]
            readings += self._name_holders(at_ms, self._read_instance(instance), instance, mine)
        return GpuReadings(readings, {process.pid for process in processes})

    def _look_at_instances(self) -> None:
        now = time.monotonic()
        if now - self._looked_s < INSTANCES_EVERY_S:
            return
        self._looked_s = now
        self._instances = list_instances(self.card, self.handle)
        here = {None, *(instance.number for instance in self._instances)}
        for gone in [number for number in self._profilers if number not in here]:
            self._profilers.pop(gone).close()
        self._labels = {key: labels for key, labels in self._labels.items() if key[0] in here}

    def _read_gauges(self) -> dict[str, float]:
        ask, handle, found = self.card.ask, self.handle, {}
        if not self._instances and (rates := ask("utilization", pynvml.nvmlDeviceGetUtilizationRates, handle)):
            found = {"DCGM_FI_DEV_GPU_UTIL": float(rates.gpu), "DCGM_FI_DEV_MEM_COPY_UTIL": float(rates.memory)}
        milliwatts = ask("power", pynvml.nvmlDeviceGetPowerUsage, handle)
        gauges = {
            "DCGM_FI_DEV_POWER_USAGE": None if milliwatts is None else milliwatts / MW_PER_W,
            "DCGM_FI_DEV_SM_CLOCK": ask("SM clock", pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            "DCGM_FI_DEV_MEM_CLOCK": ask("memory clock", pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
            "DCGM_FI_DEV_GPU_TEMP": ask(
                "temperature", pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU
            ),
            "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ask(
                "throttle reasons", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle
            ),
        }
        return found | {name: float(value) for name, value in gauges.items() if value is not None}

    def _read_memory(self, handle: Any) -> dict[str, float]:
        """Memory in MiB. Drivers before 510 count the reserved part as used, as DCGM does there."""
        memory = self.card.ask("reserved memory", pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
        if memory is None:
            memory = self.card.ask("memory", pynvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is None:
            return {}
        found = {"FB_USED": memory.used, "FB_FREE": memory.free, "FB_TOTAL": memory.total}
        if hasattr(memory, "reserved"):
            found["FB_RESERVED"] = memory.reserved
        return {f"DCGM_FI_DEV_{name}": size / BYTES_PER_MIB for name, size in found.items()}

    def _read_pcie(self) -> dict[str, float]:
        """Bytes a second in the last 20 ms: the call takes so long."""
        found = {}
        for name, way in (("TX", pynvml.NVML_PCIE_UTIL_TX_BYTES), ("RX", pynvml.NVML_PCIE_UTIL_RX_BYTES)):
            rate = self.card.ask("PCIe traffic", pynvml.nvmlDeviceGetPcieThroughput, self.handle, way)
            if rate is not None:
                found[f"DCGM_FI_PROF_PCIE_{name}_BYTES"] = float(rate * BYTES_PER_KIB)
        return found

    def _read_instance(self, instance: GpuInstance) -> dict[str, float]:
        values = self._read_memory(instance.handle)
        if self._has_profiler:
            number = instance.number
            values |= self._profile(number, lambda s: pynvml.nvmlGpmMigSampleGet(self.handle, number, s))
        return values

    def _profile(self, instance: int | None, take: Callable[[Any], object]) -> dict[str, float]:
        if instance is None and self._instances:
            return {}
        if instance not in self._profilers:
            self._profilers[instance] = Profiler(self.card, take)
        return self._profilers[instance].read()

    def _list_processes(self) -> list[RunningProcess]:
        ask, found = self.card.ask, []
        for what, function in (
            ("processes", pynvml.nvmlDeviceGetComputeRunningProcesses),
            ("MPS processes", pynvml.nvmlDeviceGetMPSComputeRunningProcesses),
        ):
            for process in ask(what, function, self.handle) or ():
                number = process.gpuInstanceId
                found.append(RunningProcess(process.pid, None if number in (None, _WHOLE) else number))
        return found

    def _name_holders(
        self, at_ms: int, values: dict[str, float], instance: GpuInstance | None, processes: Iterable[RunningProcess]
    ) -> list[SeriesValues]:
        """The values under the first who runs here or was given it; of others one metric again, so that they hold it together."""
        pids = {process.pid for process in processes}
        holders = {found for pid in pids if (found := self._find_holder(pid)) is not None}
        if pids and not holders:
            self._notices.say(
                "processes",
                "processes on GPUs cannot be seen, so their jobs are unknown; share the host's process numbers",
            )
        ordered = join_holders(holders, self._find_pods(self._list_names(instance)))
        readings = [SeriesValues(self._label(instance, ordered[0] if ordered else None), at_ms, values)]
        if _HELD in values:
            again = {_HELD: values[_HELD]}
            readings += [SeriesValues(self._label(instance, other), at_ms, again) for other in ordered[1:]]
        return readings

    def _list_names(self, instance: GpuInstance | None) -> list[str]:
        """Names that Kubernetes may have for it: NVIDIA's device plugin its UUID, GKE's what its file is called."""
        if instance is None:
            return [self.uuid, self._facts["device"]]
        return [*instance.uuids, f"{self._facts['device']}/gi{instance.number}"]

    def _label(self, instance: GpuInstance | None, holder: Holder | None) -> Labels:
        key = (instance and instance.number, holder)
        if key not in self._labels:
            if len(self._labels) > _MOST_LABELS:
                self._labels.clear()
            part = {"GPU_I_ID": str(instance.number), "GPU_I_PROFILE": instance.profile} if instance else {}
            self._labels[key] = Labels({**self._facts, **part, **(holder.labels() if holder else {})})
        return self._labels[key]

    def find_labels(self) -> Labels:
        """The labels of the GPU itself, whoever holds it."""
        return self._label(None, None)


_MOST_LABELS: Final = 1000


def _read_text(text: bytes | str) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text
