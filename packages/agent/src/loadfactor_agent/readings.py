"""What was read: values of one labelled thing at one instant. The names are those of dcgm-exporter and node-exporter."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from .protobuf import write_label

_NAME: Final = "__name__"


class Labels:
    """Labels of a series but for its name; kept as long as they stay the same, so that they are encoded once."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.pairs = tuple(sorted((name, value) for name, value in labels.items() if value))
        self.before = b"".join(write_label(*pair) for pair in self.pairs if pair[0] < _NAME)
        self.after = b"".join(write_label(*pair) for pair in self.pairs if pair[0] > _NAME)


class SeriesValues(NamedTuple):
    """Values by metric name, read at `at_ms` (ms since 1970 UTC)."""

    labels: Labels
    at_ms: int
    values: Mapping[str, float]


AGENT_PREFIX: Final = "loadfactor_agent_"
"""What stands before the names of the agent's own counts."""
_COUNTED: Final = (
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
)


def is_counter(name: str) -> bool:
    """Whether a metric is a total that only grows."""
    return name in _COUNTED or name.endswith(("_total", "_BYTES_TOTAL"))
