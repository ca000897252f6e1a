"""GPM: what the parts of a Hopper GPU or newer did between two of its samples."""

from collections.abc import Callable
from typing import Any, Final

import pynvml

from .card import Card
from .units import BYTES_PER_MIB, PERCENT

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
    """Whether the card has GPM."""
    answer = card.ask(WHAT, pynvml.nvmlGpmQueryDeviceSupport, handle)
    if answer is not None and not answer.isSupportedDevice:
        card.refuse(WHAT, pynvml.NVML_ERROR_NOT_SUPPORTED)
    return answer is not None and bool(answer.isSupportedDevice)


class Profiler:
    """Samples of one GPU, or of one GPU instance of it, each measured against the one before."""

    def __init__(self, card: Card, take: Callable[[Any], object]) -> None:
        """`take` fills a sample."""
        self._card, self._take = card, take
        self._samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
        self._has_first = False
        self._asked = pynvml.c_nvmlGpmMetricsGet_t()
        self._asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._asked.numMetrics = len(_NAMES)
        for place, number in enumerate(_NAMES):
            self._asked.metrics[place].metricId = number

    def read(self) -> dict[str, float]:
        """Shares (0…1) and bytes per second since the last call, by metric; nothing the first time. Raises CardLostError."""
        first, second = self._samples
        if self._card.ask(WHAT, self._take, second) is None:
            return {}
        self._samples = [second, first]
        if not self._has_first:
            self._has_first = True
            return {}
        asked = self._asked
        asked.sample1, asked.sample2 = first, second
        if self._card.ask(WHAT, pynvml.nvmlGpmMetricsGet, asked) is None:
            return {}
        found = {}
        for place, (number, name) in enumerate(_NAMES.items()):
            metric = asked.metrics[place]
            value = metric.value
            if metric.nvmlReturn == pynvml.NVML_SUCCESS and value == value and value >= 0:
                found[name] = min(value / PERCENT, 1.0) if number in _SHARES else value * BYTES_PER_MIB
        return found

    def close(self) -> None:
        """Give the samples back."""
        for sample in self._samples:
            pynvml.nvmlGpmSampleFree(sample)
