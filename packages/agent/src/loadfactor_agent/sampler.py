"""Looks at all GPUs and the node once, each GPU in a thread of its own, and notes what is wrong with those that do not answer."""

import os
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pynvml

from .card import METRIC, CardLostError, Faults
from .gpu import GpuReader, GpuReadings
from .holder import PROC, GivenPod, HolderFinder, PodNames
from .kubelet import Attendant, Kubelet, NotAnsweredError
from .node import NodeReader
from .notices import AgentError, Notices
from .units import MS_PER_S
from .write_request import SeriesValues

OPEN_WITHIN_S: Final = 20.0
ANSWER_WITHIN_S: Final = 5.0
LOST_AGAIN_S: Final = 60.0
"""Interval at which a lost GPU is tried again."""


@dataclass
class _WatchedGpu:
    """A GPU and the thread that asks it."""

    reader: GpuReader
    attendant: Attendant[GpuReadings]
    lost_until_s: float = 0.0
    pids: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"GPU {self.reader.index} ({self.reader.uuid})"


class Sampler:
    """All GPUs of this machine, and the machine."""

    def __init__(
        self,
        notices: Notices,
        node: str = "",
        proc: Path = PROC,
        pods: PodNames | None = None,
        kubelet: Kubelet | None = None,
        variables: Sequence[str] = (),
    ) -> None:
        """Without a kubelet pods are known by what they run. Raises AgentError where no driver is there or it does not answer."""
        self.node = node or os.environ.get("NODE_NAME") or socket.gethostname()
        self._notices = notices
        self._holders = HolderFinder(proc, pods or PodNames(), variables)
        self._kubelet = kubelet
        self._machine = NodeReader(proc, self.node)
        self._driver = Attendant("driver", self._open_driver)
        self._driver.ask()
        try:
            self._gpus = self._driver.wait(time.monotonic() + OPEN_WITHIN_S)
        except NotAnsweredError:
            raise AgentError(f"the NVIDIA driver does not answer within {OPEN_WITHIN_S:g} s; see dmesg") from None
        except pynvml.NVMLError as error:
            raise AgentError(f"no NVIDIA driver to ask ({error}); is it installed and loaded?") from error
        self._xids = Attendant("faults", self._faults.read)

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return len(self._gpus)

    def sample(self, within_s: float = ANSWER_WITHIN_S) -> list[SeriesValues]:
        """Everything, read now; a GPU that takes longer than `within_s` is left out this time."""
        if self._kubelet:
            self._kubelet.look()
        waited = [gpu for gpu in self._gpus if time.monotonic() >= gpu.lost_until_s]
        for gpu in waited:
            gpu.attendant.ask()
        self._xids.ask()
        readings = self._machine.read(int(time.time() * MS_PER_S))
        until_s = time.monotonic() + within_s
        for gpu in waited:
            readings += self._collect(gpu, until_s)
        readings += self._collect_faults(until_s)
        self._holders.keep_only(set().union(*(gpu.pids for gpu in self._gpus)))
        return readings

    def _open_driver(self) -> list[_WatchedGpu]:
        pynvml.nvmlInit()
        self._faults = Faults()
        find_pods = self._kubelet.find_pods if self._kubelet else _find_none
        gpus = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                reader = GpuReader(index, self.node, self._notices, self._holders.find, find_pods)
            except (pynvml.NVMLError, CardLostError) as error:
                self._notices.say(f"GPU {index}", f"GPU {index} is left out: {error}")
                continue
            self._faults.watch(reader.handle, reader.uuid)
            gpus.append(_WatchedGpu(reader, Attendant(f"GPU {index}", reader.read)))
        return gpus

    def _collect(self, gpu: _WatchedGpu, until_s: float) -> list[SeriesValues]:
        hangs, lost = f"{gpu.name} hangs", f"{gpu.name} is lost"
        try:
            found = gpu.attendant.wait(until_s)
        except NotAnsweredError:
            self._notices.say(hangs, f"{gpu.name} does not answer; the others go on")
            return []
        except CardLostError as error:
            gpu.lost_until_s = time.monotonic() + LOST_AGAIN_S
            self._notices.say(lost, f"{gpu.name} is lost: {error}; the others go on")
            return []
        except Exception as error:  # one card must not stop the others
            self._notices.say(f"{gpu.name} {error}", f"{gpu.name} cannot be read: {type(error).__name__}: {error}")
            return []
        self._notices.end(hangs, f"{gpu.name} answers again")
        self._notices.end(lost, f"{gpu.name} is back")
        gpu.pids = found.pids
        return found.readings

    def _collect_faults(self, until_s: float) -> list[SeriesValues]:
        """The last XID of each GPU: the driver tells of it also where the GPU itself is lost."""
        try:
            codes = self._xids.wait(until_s)
        except NotAnsweredError:
            return []
        at_ms = int(time.time() * MS_PER_S)
        of = {gpu.reader.uuid: gpu.reader.find_labels() for gpu in self._gpus}
        return [SeriesValues(of[uuid], at_ms, {METRIC: float(code)}) for uuid, code in codes.items() if uuid in of]


def _find_none(names: Iterable[str]) -> list[GivenPod]:
    del names
    return []
