"""The exporters whose series are understood: the fields and labels of each. Facts, and how a field is found by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from loadfactor.base.units import BYTES_PER_MIB, HZ_PER_MHZ, J_PER_UJ, MS_PER_S, PERCENT, W_PER_MW
from loadfactor.sources.dcgm.fields import PREFIX
from loadfactor.sources.dcgm.known_series import find_field
from loadfactor.sources.gpu_scrapes.fields import Field
from loadfactor.sources.gpu_scrapes.known_devices import LABELS

CLOUDWATCH: Final = "cloudwatch"
AGENT_PREFIX: Final = "nvidia_smi_"
INSIGHTS_SCOPES: Final = ("node", "pod", "container")
OPS_AGENT_TYPE: Final = "agent.googleapis.com/gpu/"
GKE_TYPES: Final = ("kubernetes.io/container/accelerator/", "kubernetes.io/node/accelerator/")
DUTY_CYCLE_S: Final = 10.0
"""duty_cycle is the mean of the last ten seconds, written every sixty."""


def _of_insights(name: str) -> tuple[str, ...]:
    return tuple(f"{scope}_gpu_{name}" for scope in INSIGHTS_SCOPES)


@dataclass(frozen=True)
class Family:
    """One exporter. `labels` are those of LABELS that it calls otherwise; `info` names the metric whose labels tell the model."""

    name: str
    prefixes: tuple[str, ...]
    fields: tuple[Field, ...]
    labels: Mapping[str, tuple[str, ...]]
    info: str = ""
    bare_uuids: bool = False  # without the GPU- that everybody else writes in front
    window_s: float | None = None  # a sample observes so much before its time; None: all since the one before

    @property
    def by_name(self) -> dict[str, Field]:
        """The fields by their whole names."""
        return {prefix + name: field for prefix in self.prefixes for field in self.fields for name in field.names}


CLOUDWATCH_FAMILY: Final = Family(
    CLOUDWATCH,  # the agent's numbers are those of nvidia-smi; Container Insights' those of DCGM, memory in bytes
    (f"{CLOUDWATCH}/",),
    (
        Field("busy_share", (f"{AGENT_PREFIX}utilization_gpu", *_of_insights("utilization")), divide=PERCENT),
        Field("mem_used_bytes", (f"{AGENT_PREFIX}memory_used",), multiply=BYTES_PER_MIB),
        Field("mem_free_bytes", (f"{AGENT_PREFIX}memory_free",), multiply=BYTES_PER_MIB),
        Field("mem_total_bytes", (f"{AGENT_PREFIX}memory_total",), multiply=BYTES_PER_MIB),
        Field("mem_used_bytes", _of_insights("memory_used")),
        Field("mem_total_bytes", _of_insights("memory_total")),
        Field("power_w", (f"{AGENT_PREFIX}power_draw", *_of_insights("power_draw"))),
        Field("sm_clock_hz", (f"{AGENT_PREFIX}clocks_current_sm",), multiply=HZ_PER_MHZ),
        Field("temperature_c", (f"{AGENT_PREFIX}temperature_gpu", *_of_insights("temperature"))),
    ),
    {},
)
_OPS_AGENT: Final = Family(
    "gcp-ops-agent",
    (OPS_AGENT_TYPE,),
    (
        Field("busy_share", ("utilization",), divide=PERCENT),
        Field("mem_used_bytes", ("memory/bytes_used/used",)),  # the state of the memory is a label there
        Field("mem_free_bytes", ("memory/bytes_used/free",)),
    ),
    {},
)
_GKE: Final = Family(
    "gke-accelerator",
    GKE_TYPES,
    (
        Field("busy_share", ("duty_cycle",), divide=PERCENT),
        Field("mem_used_bytes", ("memory_used",)),
        Field("mem_total_bytes", ("memory_total",)),
    ),
    {},
    window_s=DUTY_CYCLE_S,
)
CLOUD_FAMILIES: Final = (CLOUDWATCH_FAMILY, _OPS_AGENT, _GKE)
DCGM: Final = "dcgm"
_NVIDIA_SMI: Final = Family(
    "nvidia-gpu-exporter",  # utkuozdemir/nvidia_gpu_exporter: base units, and the unit behind the name
    ("nvidia_smi_",),
    (
        Field("busy_share", ("utilization_gpu_ratio",)),
        Field("mem_used_bytes", ("memory_used_bytes",)),
        Field("mem_free_bytes", ("memory_free_bytes",)),
        Field("mem_reserved_bytes", ("memory_reserved_bytes",)),
        Field("mem_total_bytes", ("memory_total_bytes",)),
        Field("power_w", ("power_draw_watts",)),
        Field("power_now_w", ("power_draw_instant_watts",)),
        Field("energy_j", ("energy_joules_total",), counts=True),
        Field("sm_clock_hz", ("clocks_current_sm_clock_hz",)),
        Field("temperature_c", ("temperature_gpu_celsius", "temperature_gpu")),
        Field("pcie_tx_bytes_per_s", ("pcie_throughput_tx_bytes_per_second",)),
        Field("pcie_rx_bytes_per_s", ("pcie_throughput_rx_bytes_per_second",)),
    ),
    {"index": ("index",), "model": ("name",)},
    info="nvidia_smi_gpu_info",
    bare_uuids=True,
)
_JOBSTATS: Final = Family(
    "nvidia-gpu-exporter",  # nvidia_gpu_prometheus_exporter, as jobstats runs it
    ("nvidia_gpu_",),
    (
        Field("busy_share", ("duty_cycle",), divide=PERCENT),
        Field("engine_active_share", ("graphics_util_percent",)),  # 0…1: jobstats multiplies it by 100
        Field("sm_active_share", ("sm_util_percent",)),
        Field("mem_used_bytes", ("memory_used_bytes",)),
        Field("mem_total_bytes", ("memory_total_bytes",)),
        Field("power_w", ("power_usage_milliwatts",), multiply=W_PER_MW),
        Field("temperature_c", ("temperature_celsius",)),
    ),
    {"index": ("minor_number", "minor"), "model": ("name",), "job": ("jobid", "jobId")},
)
_TELEGRAF: Final = Family(
    "telegraf",  # and the CloudWatch agent: the numbers of nvidia-smi as they are, no unit behind the name
    ("nvidia_smi_",),
    (
        Field("busy_share", ("utilization_gpu",), divide=PERCENT),
        Field("mem_used_bytes", ("memory_used",), multiply=BYTES_PER_MIB),
        Field("mem_free_bytes", ("memory_free",), multiply=BYTES_PER_MIB),
        Field("mem_reserved_bytes", ("memory_reserved",), multiply=BYTES_PER_MIB),
        Field("mem_total_bytes", ("memory_total",), multiply=BYTES_PER_MIB),
        Field("power_w", ("power_draw",)),
        Field("sm_clock_hz", ("clocks_current_sm",), multiply=HZ_PER_MHZ),
        Field("temperature_c", ("temperature_gpu",)),
    ),
    {"index": ("index",), "model": ("name",), "node": ("host", "hostname", "node")},
)
_OMNISTAT: Final = Family(
    "amd",
    ("rocm_",),
    (
        Field("busy_share", ("utilization_percentage",), divide=PERCENT),
        Field("mem_used_of_total_share", ("vram_used_percentage",), divide=PERCENT),
        Field("mem_total_bytes", ("vram_total_bytes",)),
        Field("power_w", ("average_socket_power_watts",)),
        Field("energy_j", ("energy_joules",), counts=True),
        Field("sm_clock_hz", ("sclk_clock_mhz",), multiply=HZ_PER_MHZ),
        Field("temperature_c", ("temperature_celsius", "temperature_edge_celsius")),
    ),
    {"index": ("card",), "model": ("type",)},
    info="rocm_version_info",
)
_AMD: Final = Family(
    "amd",  # ROCm/device-metrics-exporter; its operator may put amd_ in front
    ("gpu_", "amd_gpu_"),
    (
        Field("busy_share", ("gfx_activity",), divide=PERCENT),
        Field("mem_used_bytes", ("used_vram",), multiply=BYTES_PER_MIB),  # called MB, counted as MiB
        Field("mem_free_bytes", ("free_vram",), multiply=BYTES_PER_MIB),
        Field("mem_total_bytes", ("total_vram",), multiply=BYTES_PER_MIB),
        Field("power_w", ("power_usage",)),
        Field("power_now_w", ("package_power", "average_package_power")),
        Field("energy_j", ("energy_consumed",), multiply=J_PER_UJ, counts=True),
        Field("temperature_c", ("junction_temperature", "edge_temperature")),
    ),
    {"index": ("gpu_id",), "model": ("card_series", "card_model"), "job": ("job_id",)},
)
_OWN: Final = "loadfactor_"
_FAMILIES: Final = (_NVIDIA_SMI, _JOBSTATS, _TELEGRAF, _OMNISTAT, _AMD)
_DCGM: Final = Family(DCGM, (PREFIX,), (), {})
_ASKED_BY_NAME: Final = [name for family in _FAMILIES for name in family.by_name]
_BY_NAME: Final = {
    name: (family, field) for family in (*_FAMILIES, *CLOUD_FAMILIES) for name, field in family.by_name.items()
}
_BARE: Final = _NVIDIA_SMI.by_name
_BY_INFO: Final = {family.info: family for family in _FAMILIES if family.info}
_LABELS: Final = {id(family): {**LABELS, **family.labels} for family in (*_FAMILIES, *CLOUD_FAMILIES, _DCGM)}
_WINDOWS_MS: Final = {
    family.name: int(family.window_s * MS_PER_S) for family in CLOUD_FAMILIES if family.window_s is not None
}


def find_family(labels: Mapping[str, str]) -> tuple[Family, Field | None] | None:
    """The exporter and the field of a series; no field where its labels alone speak, None where nothing is kept of it.

    >>> family, field = find_family({"__name__": "nvidia_smi_utilization_gpu", "index": "0"})
    >>> family.name, field.divide
    ('telegraf', 100)
    """
    name = labels.get("__name__", "")
    if name.startswith(PREFIX):
        field = find_field(name)
        return (_DCGM, field) if field is not None else None
    if name in _BY_INFO:
        return _BY_INFO[name], None
    found = _BY_NAME.get(name)
    if found is not None and found[0] is _TELEGRAF and name in _BARE and "name" not in labels:
        return _NVIDIA_SMI, _BARE[name]  # it writes a temperature without a unit, but nothing beside the UUID
    return found


def is_own(name: str) -> bool:
    """True for what loadfactor itself says, agent or server: it is understood, and nothing of it is kept.

    >>> is_own("loadfactor_utilization_ratio"), is_own("DCGM_FI_DEV_GPU_UTIL")
    (True, False)
    """
    return name.startswith(_OWN)


def list_labels(family: Family) -> Mapping[str, tuple[str, ...]]:
    """The names of the labels that matter, of this exporter, best first."""
    return _LABELS[id(family)]


def list_names() -> list[str]:
    """The metrics of all exporters but DCGM's, whose names share a beginning."""
    return sorted({*_ASKED_BY_NAME, *_BY_INFO})


def find_window_ms(source: str) -> int | None:
    """How much before its time each sample of a source observes; None where that is all since the one before.

    >>> find_window_ms("gke-accelerator:prod"), find_window_ms("dcgm:nodes")
    (10000, None)
    """
    return _WINDOWS_MS.get(source.partition(":")[0])
