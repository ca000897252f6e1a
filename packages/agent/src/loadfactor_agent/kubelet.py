"""Which pod was given which device, read from the kubelet of this node on its pod-resources socket (v1, List).

A pod holds what it was given whether or not it runs anything there; processes do not tell that. Source of the messages and their
numbers: k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.
"""

import queue
import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from .holder import GivenPod
from .notices import Notices
from .units import BYTES_PER_MIB
from .write_request import read_parts

T = TypeVar("T")


class NotAnsweredError(Exception):
    """The work is not done yet."""


class Attendant(Generic[T]):
    """Does its work once a request; while it hangs, further requests are left out."""

    def __init__(self, name: str, work: Callable[[], T]) -> None:
        self._work = work
        self._requests: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[T | Exception] = queue.SimpleQueue()
        self._is_busy = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Begin, unless it is still at an earlier question: then whoever waits next hears the answer to that."""
        if not self._is_busy:
            self._is_busy = True
            self._requests.put(None)

    def wait(self, until_s: float) -> T:
        """Result of the work. Raises NotAnsweredError with none by `until_s` (monotonic clock), else what the work raised."""
        try:
            answer = self._answers.get(timeout=max(0.0, until_s - time.monotonic()))
        except queue.Empty:
            raise NotAnsweredError from None
        self._is_busy = False
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _run(self) -> None:
        while True:
            self._requests.get()
            try:
                self._answers.put(self._work())
            except Exception as error:  # `wait` raises it
                self._answers.put(error)


SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
EVERY_S: Final = 10.0
ANSWER_WITHIN_S: Final = 5.0
WAIT_S: Final = 0.5
"""So long samples wait for the kubelet; it answers within milliseconds."""
BELIEVED_S: Final = 300.0
"""So long its last answer holds while it gives none: it is started anew in less."""
_METHOD: Final = "/v1.PodResourcesLister/List"
_PODS = 1
_NAME, _NAMESPACE, _CONTAINERS = 1, 2, 3
_CONTAINER_NAME, _DEVICES = 1, 2
_DEVICE_ID = 2
_REPLICA: Final = re.compile(r"::\d+$|/vgpu\d+$")
"""Suffix of a device that is shared in time or by MPS: of NVIDIA's device plugin, and of GKE's."""
PodsByDevice = dict[str, list[GivenPod]]


class Kubelet:
    """Asks the kubelet now and then. `look` and `find_pods` do not wait for one that hangs."""

    def __init__(self, socket: Path, is_expected: bool, notices: Notices) -> None:
        """`is_expected`: it should be there; else a node without it is nothing to speak of."""
        self._socket, self._is_expected, self._notices = socket, is_expected, notices
        self._attendant: Attendant[PodsByDevice] = Attendant("kubelet", self._list_pods)
        self._pods: PodsByDevice = {}
        self._answered_s = self._requested_s = float("-inf")
        self._is_waiting = False

    def look(self) -> None:
        """Ask it, if that was not done in the last seconds."""
        now = time.monotonic()
        if now - self._answered_s > BELIEVED_S:
            self._pods = {}
        until_s = now
        if not self._is_waiting:
            if now - self._requested_s < EVERY_S - WAIT_S or not self._is_there():
                return
            self._attendant.ask()
            self._is_waiting, self._requested_s, until_s = True, now, now + WAIT_S
        try:
            self._pods = self._attendant.wait(until_s)
        except NotAnsweredError:
            return  # it is waited for at the next look
        except Exception as error:  # of gRPC, or an answer that is none
            self._notices.say("kubelet", f"the kubelet does not say which pod was given which GPU ({_say(error)})")
        else:
            self._answered_s = now
            self._notices.end("kubelet", "the kubelet says again which pod was given which GPU")
        self._is_waiting = False

    def find_pods(self, names: Iterable[str]) -> list[GivenPod]:
        """The pods that were given a device with one of these names, or a share of it."""
        pods = self._pods
        return [pod for name in names for pod in pods.get(name, ())]

    def _is_there(self) -> bool:
        if self._socket.is_socket():
            self._notices.end("no kubelet", f"the kubelet listens on {self._socket}")
            return True
        if self._is_expected or self._socket.parent.is_dir():
            self._notices.say(
                "no kubelet", f"no kubelet listens on {self._socket}, so pods are known by their processes alone"
            )
        return False

    def _list_pods(self) -> PodsByDevice:
        """Raises ImportError without gRPC, grpc.RpcError where it does not answer, ValueError for an answer that is none."""
        import grpc  # only where there is a kubelet: it takes 16 MiB

        options = [
            ("grpc.default_authority", "localhost"),  # a path is none, and servers in Go refuse it
            ("grpc.max_receive_message_length", 16 * BYTES_PER_MIB),  # as the kubelet's own clients
        ]
        with grpc.insecure_channel(f"unix:{self._socket}", options) as channel:
            ask: Any = channel.unary_unary(_METHOD, response_deserializer=read_pods)
            found: PodsByDevice = ask(b"", timeout=ANSWER_WITHIN_S)
            return found


def read_pods(answer: bytes) -> PodsByDevice:
    """A ListPodResourcesResponse: the pods by the id of each device they were given. Raises ValueError for anything else."""
    found: PodsByDevice = {}
    for field, pod in read_parts(answer):
        if field != _PODS:
            continue
        parts = list(read_parts(pod))
        texts = {number: part.decode(errors="replace") for number, part in parts if number in (_NAME, _NAMESPACE)}
        for container in (part for number, part in parts if number == _CONTAINERS):
            inside = list(read_parts(container))
            name = next((part.decode(errors="replace") for number, part in inside if number == _CONTAINER_NAME), "")
            given = GivenPod(texts.get(_NAMESPACE, ""), texts.get(_NAME, ""), name)
            for devices in (part for number, part in inside if number == _DEVICES):
                for number, device in read_parts(devices):
                    if number == _DEVICE_ID:
                        found.setdefault(_REPLICA.sub("", device.decode(errors="replace")), []).append(given)
    return found


def _say(error: Exception) -> str:
    if isinstance(error, ImportError):
        return "the library for it is not there: pip install 'loadfactor-agent[kubernetes]'"
    code = getattr(error, "code", None)
    text = f"{code().name}: {error.details()}" if callable(code) and hasattr(error, "details") else f"{error}"
    return " ".join(text.split())[:200]
