"""What does nvidia-smi tell? `--query-gpu … --format=csv` logs, `dmon`, `-q -x` XML, and sessions that mix them."""

from collections.abc import Iterator
from pathlib import Path

from loadfactor.sources.base import Gap, ReadOptions, Rows, Source
from loadfactor.sources.nvidia_smi.parts import Parts
from loadfactor.sources.nvidia_smi.recorder import Recorder
from loadfactor.sources.parsing.devices_seen import Fleet
from loadfactor.sources.parsing.gaps import Gaps
from loadfactor.sources.parsing.lines import expand

_DEFAULT_STEP_S = 1.0  # a single reading speaks for at most the second before it, NVML's longest sample period


def _files(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    return expand(paths, (".csv", ".log", ".txt", ".xml"), "logs of nvidia-smi", rotated=True)


def _read(paths: tuple[Path, ...], options: ReadOptions) -> Iterator[Rows | Gap]:
    fleet, gaps = Fleet(options, _DEFAULT_STEP_S), Gaps()
    for path in paths:
        yield from Parts(Recorder(path, options, fleet, gaps)).rows()
        yield from gaps.each()
    yield from fleet.rows()


SOURCE = Source(
    "nvidia-smi", "logs of nvidia-smi: --query-gpu csv, dmon, -q -x", _files, _read, _DEFAULT_STEP_S, watches=True
)
