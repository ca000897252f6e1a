"""The metrics of GPUs that CloudWatch and Cloud Monitoring keep: their names there, their units, and what they become."""

from typing import Final

from loadfactor.base.units import BYTES_PER_MIB, HZ_PER_MHZ, PERCENT
from loadfactor.sources.gpu_scrapes.fields import Field
from loadfactor.sources.prometheus.family import Family

CLOUDWATCH: Final = "cloudwatch"
AGENT_PREFIX: Final = "nvidia_smi_"
INSIGHTS_SCOPES: Final = ("node", "pod", "container")
OPS_AGENT_TYPE: Final = "agent.googleapis.com/gpu/"
GKE_TYPES: Final = ("kubernetes.io/container/accelerator/", "kubernetes.io/node/accelerator/")
DUTY_CYCLE_S: Final = 10.0
"""duty_cycle is the mean of the last ten seconds, written every sixty."""


def _of_insights(name: str) -> tuple[str, ...]:
    return tuple(f"{scope}_gpu_{name}" for scope in INSIGHTS_SCOPES)


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
