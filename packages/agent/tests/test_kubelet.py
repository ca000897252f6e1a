"""Pods of devices as the kubelet reports them, by a real gRPC server: on the series of the device, whether or not the pod runs."""

import atexit
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import pytest
from fake_driver import FakeDriver, needs_compiler
from hypothesis import given
from hypothesis import strategies as st
from pages import Lines, read_page

from loadfactor_agent import kubelet as module
from loadfactor_agent.holder import GivenPod, Holder, join_holders
from loadfactor_agent.kubelet import Kubelet, read_pods
from loadfactor_agent.notices import Notices
from loadfactor_agent.write_request import write_varint

Pods = Mapping[tuple[str, str], Mapping[str, Sequence[str]]]
"""Ids of devices by container, by namespace and name of the pod."""


def write_part(number: int, content: str | bytes) -> bytes:
    """A text or message as field of a message."""
    body = content.encode() if isinstance(content, str) else content
    return write_varint(number << 3 | 2) + write_varint(len(body)) + body


def write_answer(pods: Pods) -> bytes:
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


GPUS = [f"GPU-{gpu:08x}-0000-4000-8000-000000000000" for gpu in (0, 1)]
MIG = [f"MIG-00000000-000{place}-4000-8000-000000000000" for place in (0, 1)]
TRAINER = GivenPod("research", "llm-0", "trainer")
WRITTEN_BY_GOOGLE = bytes.fromhex(
    "0a690a056c6c6d2d30120872657365617263681a4e0a07747261696e657212270a0e6e76696469612e636f6d2f677075"
    "12054750552d3112084750552d323a3a331a040a0208011a040001ac0222140a066d656d6f72791080808080201a040a02"
    "08011a060a04736964650a0f0a0469646c65120764656661756c74"
)
"""By Google's protobuf: of pod research/llm-0 the container `trainer` has GPU-1, GPU-2::3, CPUs and memory of a NUMA node, and
`side` nothing; pod default/idle has no container."""


def look(driver: FakeDriver, *options: str) -> tuple[Lines, list[str]]:
    """One look of the agent: the lines of its page, and what it said."""
    done = driver.run("-m", "loadfactor_agent", "--once", *options)
    assert done.returncode == 0, done.stderr
    return read_page(done.stdout), done.stderr.splitlines()


def holders_of(lines: Lines, gpu: int, instance: str = "", metric: str = "DCGM_FI_DEV_FB_TOTAL") -> list[str]:
    """Holders of devices on the page: namespace/pod/container."""
    found = (labels for name, labels, _ in lines if name == metric and labels["gpu"] == str(gpu))
    return [
        "/".join(labels.get(part, "") for part in ("namespace", "pod", "container"))
        for labels in found
        if labels.get("GPU_I_ID", "") == instance
    ]


def test_answer_of_the_real_encoder_is_read() -> None:
    """Fields that are not needed are passed over; a replica of a shared GPU is that GPU."""
    assert read_pods(WRITTEN_BY_GOOGLE) == {"GPU-1": [TRAINER], "GPU-2": [TRAINER]}


@given(st.binary(max_size=60), st.integers(0, len(WRITTEN_BY_GOOGLE)))
def test_answer_that_is_none_is_refused(junk: bytes, at: int) -> None:
    """Whatever stands in it, it is read or refused with ValueError."""
    for answer in (junk, WRITTEN_BY_GOOGLE[:at] + junk):
        with suppress(ValueError):
            assert all(isinstance(pods, list) for pods in read_pods(answer).values())


@needs_compiler
def test_pod_without_a_process_holds_its_gpu(tmp_path: Path) -> None:
    """Every series of the GPU has pod, namespace and container; the GPU beside it, which nobody was given, has none."""
    with FakeKubelet({("research", "llm-0"): {"trainer": [GPUS[0]], "side": []}}) as kubelet:
        lines, said = look(FakeDriver(tmp_path), "--kubelet-socket", str(kubelet.socket))
    assert holders_of(lines, 0) == holders_of(lines, 0, metric="DCGM_FI_DEV_GPU_UTIL") == ["research/llm-0/trainer"]
    assert holders_of(lines, 1) == ["//"]
    assert kubelet.asked == [b""]
    assert not any("kubelet" in line for line in said)


@needs_compiler
@pytest.mark.parametrize("names", [MIG, ["nvidia0/gi1", "nvidia0/gi2/vgpu1"]], ids=["nvidia", "gke"])
def test_mig_instances_are_held_one_by_one(tmp_path: Path, names: list[str]) -> None:
    """An instance is the pod's that was given it, under the names of NVIDIA's device plugin and of GKE's; the GPU is nobody's."""
    driver = FakeDriver(tmp_path)
    driver.set(0, mig=2)
    pods: Pods = {("a", "one"): {"c": [names[0]]}, ("b", "two"): {"d": [names[1]]}}
    with FakeKubelet(pods) as kubelet:
        lines, _ = look(driver, "--kubelet-socket", str(kubelet.socket))
    assert holders_of(lines, 0, "1") == ["a/one/c"]
    assert holders_of(lines, 0, "2") == ["b/two/d"]
    assert holders_of(lines, 0) == ["//"]


@needs_compiler
@pytest.mark.parametrize("names", [(f"{GPUS[1]}::0", f"{GPUS[1]}::3"), ("nvidia1/vgpu0", "nvidia1/vgpu1")])
def test_pods_that_share_a_gpu_hold_it_together(tmp_path: Path, names: tuple[str, str]) -> None:
    """Time-sliced replicas are their GPU: the first pod has its numbers, each further one a series that says so."""
    pods: Pods = {("b", "two"): {"c": [names[0]]}, ("a", "one"): {"c": [names[1]], "d": [names[1]]}}
    with FakeKubelet(pods) as kubelet:
        lines, _ = look(FakeDriver(tmp_path), "--kubelet-socket", str(kubelet.socket))
    assert holders_of(lines, 1) == ["a/one/c", "b/two/c"]
    assert holders_of(lines, 1, metric="DCGM_FI_DEV_GPU_UTIL") == ["a/one/c"]


def test_process_and_pod_are_one_holder() -> None:
    """A pod that runs on what it was given is known by its process's experiment and its container; others beside it stay."""
    pod, job = Holder(pod="llm-0", namespace="research", experiment="lr"), Holder(job="7", user="ana")
    both = Holder(pod="llm-0", namespace="research", experiment="lr", container="trainer")
    assert join_holders({pod, job}, [TRAINER]) == sorted([both, job], key=repr)
    nameless = Holder(pod="0b6e2a4c-aaaa-bbbb-cccc-000000000000", experiment="lr")
    assert join_holders({nameless}, [TRAINER]) == [both]
    other = GivenPod("research", "llm-1", "trainer")
    assert [holder.pod for holder in join_holders({nameless}, [TRAINER, other])] == ["llm-0", "llm-1"]
    assert join_holders({nameless, job}, []) == sorted([nameless, job], key=repr)


@needs_compiler
def test_node_without_a_kubelet_is_said_once_where_one_is_expected(tmp_path: Path) -> None:
    """A socket that is not there is one line where it was named, and none on a machine that is not of Kubernetes."""
    lines, said = look(FakeDriver(tmp_path), "--kubelet-socket", str(tmp_path / "none.sock"))
    assert holders_of(lines, 0) == ["//"]
    assert [line for line in said if "kubelet" in line] == [
        f"loadfactor agent: no kubelet listens on {tmp_path / 'none.sock'}, so pods are known by their processes alone"
    ]
    if not module.SOCKET.parent.is_dir():
        assert not any("kubelet" in line for line in look(FakeDriver(tmp_path))[1])


@needs_compiler
def test_agent_without_grpc_goes_on(tmp_path: Path) -> None:
    """Without the extra everything else is read, and one line says what to install."""
    without = "import sys; sys.modules['grpc'] = None; from loadfactor_agent.main import main; main()"
    with FakeKubelet({}) as kubelet:
        done = FakeDriver(tmp_path).run("-c", without, "--once", "--kubelet-socket", str(kubelet.socket))
    assert done.returncode == 0
    assert "DCGM_FI_DEV_GPU_UTIL" in done.stdout
    assert [line for line in done.stderr.splitlines() if "kubelet" in line] == [
        "loadfactor agent: the kubelet does not say which pod was given which GPU"
        " (the library for it is not there: pip install 'loadfactor-agent[kubernetes]')"
    ]


class TestKubeletThatFails:
    """The last answer holds for a while; it is said once that it fails, and once that it is back."""

    @pytest.fixture(autouse=True)
    def _ask_always(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "EVERY_S", 0.0)
        monkeypatch.setattr(module, "WAIT_S", 240.0)

    def test_started_anew(self) -> None:
        """A kubelet that is started anew is asked again on its new socket; pods that ended meanwhile hold nothing."""
        said: list[str] = []
        with FakeKubelet({("research", "llm-0"): {"trainer": ["GPU-1"]}}) as first:
            asked = Kubelet(first.socket, True, Notices(said.append))
            asked.look()
            assert asked.find_pods(["GPU-1", "nvidia0"]) == [TRAINER]
        for _ in range(2):
            asked.look()
        assert asked.find_pods(["GPU-1"]) == [TRAINER]
        with FakeKubelet({}, first.socket.parent):
            asked.look()
        assert asked.find_pods(["GPU-1"]) == []
        assert ["no kubelet listens" in line for line in said] == [True, False]

    def test_hanging(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One that hangs is given up after a while and does not hold up samples; when it answers again its answer counts."""
        monkeypatch.setattr(module, "ANSWER_WITHIN_S", 0.3)
        said: list[str] = []
        with FakeKubelet({("research", "llm-0"): {"trainer": ["GPU-1"]}}) as kubelet:
            kubelet.hangs = True
            asked = Kubelet(kubelet.socket, True, Notices(said.append))
            asked.look()
            asked.look()
            assert asked.find_pods(["GPU-1"]) == []
            kubelet.hangs = False
            asked.look()
            assert asked.find_pods(["GPU-1"]) == [TRAINER]
        assert len(said) == 2
        assert "DEADLINE_EXCEEDED" in said[0]
        assert "says again" in said[1]

    def test_long_silent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The last answer is not believed for ever."""
        with FakeKubelet({("research", "llm-0"): {"trainer": ["GPU-1"]}}) as kubelet:
            asked = Kubelet(kubelet.socket, True, Notices(lambda _: None))
            asked.look()
        monkeypatch.setattr(module, "BELIEVED_S", 0.0)
        asked.look()
        assert asked.find_pods(["GPU-1"]) == []

    def test_answering_nonsense(self) -> None:
        """An answer that is no message is said and nothing else."""
        said: list[str] = []
        with FakeKubelet({}) as kubelet:
            kubelet.answer = b"\xff\xff"
            asked = Kubelet(kubelet.socket, True, Notices(said.append))
            asked.look()
        assert asked.find_pods(["GPU-1"]) == []
        assert len(said) == 1
