"""Logs of nvidia-smi: `--query-gpu … --format=csv`, `dmon`, `-q` as XML and text, and sessions that mix them."""

from loadfactor.sources.base import Source
from loadfactor.sources.files import find_with, read_with
from loadfactor.sources.nvidia_smi.sections import DEFAULT_STEP_S, decode_logs

SOURCE = Source(
    "nvidia-smi",
    find_with((".csv", ".log", ".txt", ".xml"), "logs of nvidia-smi", rotated=True),
    read_with(decode_logs),
    DEFAULT_STEP_S,
    watches=True,
    uses=("timezone", "at", "step", "node", "pool", "job"),
)
