"""Decoder of nvidia-smi's output: samples of every log, then the devices seen in all of them."""

from collections.abc import Iterable, Iterator
from typing import Final

from loadfactor.sources.base import Gap, Gaps, Input, ReadOptions, Rows
from loadfactor.sources.nvidia_smi.samples import SampleBuilder, Scanning
from loadfactor.sources.nvidia_smi.sections import LogSections
from loadfactor.sources.parsing.steps import DevicesSeen

DEFAULT_STEP_S: Final = 1.0  # a single reading speaks for at most the second before it, NVML's longest sample period
_LEARN_FROM: Final = 1024  # instants of a GPU that its step is learnt from


def decode_logs(logs: Iterable[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The rows and gaps of these logs, one after the other; a node that nothing names is called like the log's file.

    Raises SourceError naming the log: nothing in it is a reading of GPUs, or it does not say when or of which GPU.
    """
    seen, gaps, scanning = DevicesSeen(options, DEFAULT_STEP_S, _LEARN_FROM), Gaps(), Scanning()
    for log in logs:
        yield from LogSections(log, SampleBuilder(log, options, seen, gaps, scanning)).read()
        yield from gaps.take()
    yield from seen.make_rows()
