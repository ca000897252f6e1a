"""A kubelet's pod-resources socket: a real gRPC server on a unix socket that answers List as it is told to."""

import atexit
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from loadfactor_agent.write_request import write_varint

Pods = Mapping[tuple[str, str], Mapping[str, Sequence[str]]]
"""Ids of devices by container, by namespace and name of the pod."""


def write_part(number: int, content: str | bytes) -> bytes:
    """A text or message as field of a message."""
    body = content.encode() if isinstance(content, str) else content
    return write_varint(number << 3 | 2) + write_varint(len(body)) + body


def write_answer(pods: Pods) -> bytes:
    """A ListPodResourcesResponse."""
    answer = b""
    for (namespace, name), containers in pods.items():
        pod = write_part(1, name) + write_part(2, namespace)
        for container, ids in containers.items():
            devices = write_part(1, "nvidia.com/gpu") + b"".join(write_part(2, one) for one in ids)
            pod += write_part(3, write_part(1, container) + write_part(2, devices))
        answer += write_part(1, pod)
    return answer


class FakeKubelet:
    """Listens from `with` on; `answer` may be changed. Its socket has a short path, as unix sockets need,
    in a folder that is there until this process ends."""

    def __init__(self, pods: Pods, folder: Path | None = None) -> None:
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="kubelet-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.socket = folder / "kubelet.sock"
        self.answer = write_answer(pods)
        self.hangs = False
        self.asked: list[bytes] = []

    def _list(self, request: bytes, context: Any) -> bytes:
        self.asked.append(request)
        while self.hangs and context.is_active():
            time.sleep(0.02)
        return self.answer

    def __enter__(self) -> "FakeKubelet":
        self._server = grpc.server(ThreadPoolExecutor(4))
        handlers = {"List": grpc.unary_unary_rpc_method_handler(self._list)}
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),)
        )
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hangs = False
        self._server.stop(None).wait()
        self.socket.unlink(missing_ok=True)
