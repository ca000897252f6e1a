"""How much work is receiving remote_write? 20 series of each of 1,000 GPUs with 13 labels, in requests of 2,000 samples.

`remote_write_scan_ns` is the processor time of a sample of known series from the packed request to points, snappy included, and
`remote_write_first_sight_us` that of a series never seen before, without what the decoder makes of it.
`remote_write_over_victoriametrics` is the processor time of our whole process over that of VictoriaMetrics for the same requests,
from the first one until both have been quiet for a while and ours has made rows of all: HTTP included, each server on one core,
every series new in the first scrape and one in a hundred new in each later one. `..._to_ack_...` is the same until the last
acknowledgement. VictoriaMetrics acknowledges before its data is on disk; we after. Both are measured where the program
`victoria-metrics` is installed (Debian's package of that name).
"""

import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.sources.prometheus.sender import HEADERS, pack_field, pack_label, pack_sample, pack_snappy

from loadfactor.sources.prometheus.remote_write import RemoteWriteScanner, WriteLimits

NAME = "remote_write"
GPUS, REQUEST, STEP_MS = 1_000, 2_000, 30_000
METRICS = {
    "DCGM_FI_DEV_SM_CLOCK": 1_000,
    "DCGM_FI_DEV_GPU_TEMP": 50,
    "DCGM_FI_DEV_POWER_USAGE": 400,
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": 400,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 0,
    "DCGM_FI_DEV_GPU_UTIL": 50,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 0,
    "DCGM_FI_DEV_FB_FREE": 20_000,
    "DCGM_FI_DEV_FB_USED": 40_000,
    "DCGM_FI_DEV_FB_RESERVED": 500,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5,
    "DCGM_FI_PROF_SM_ACTIVE": 0.5,
    "DCGM_FI_PROF_SM_OCCUPANCY": 0.2,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.3,
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": 0.1,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.4,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 1e9,
    "DCGM_FI_PROF_PCIE_RX_BYTES": 1e9,
    "DCGM_FI_PROF_NVLINK_TX_BYTES": 1e10,
    "DCGM_FI_PROF_NVLINK_RX_BYTES": 1e10,
}
"""What is sent, and around which values; 0: totals that only grow. All of them are understood."""
CHURN = 100  # one GPU in so many gets a new pod with every scrape
SERVER_CORE = 0
WARM_S, QUIET_S = 10.0, 15.0
START_S = 60.0  # within which a server has to answer


class RunningServer(NamedTuple):
    """A server to write to."""

    pid: int
    url: str  # of the write endpoint
    headers: dict[str, str] = {}  # noqa: RUF012 - a token, where it wants one


Start = Callable[[Path], AbstractContextManager[RunningServer]]


def run(quick: bool) -> dict[str, float]:
    """Nanoseconds of a sample, microseconds of a new series, and processor time over VictoriaMetrics'."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        results = _scan(5 if quick else 15)
        if shutil.which("victoria-metrics") is None:
            print("victoria-metrics is not installed: not compared with it")
            return results
        requests = list(make_requests(8 if quick else 40))
        ours = measure_cpu(start_loadfactor, Path(folder) / "books", requests)
        theirs = measure_cpu(start_victoria_metrics, Path(folder) / "vm", requests)
        return results | {
            "remote_write_ns": ours.in_all_ns,
            "victoriametrics_write_ns": theirs.in_all_ns,
            "remote_write_over_victoriametrics": ours.in_all_ns / theirs.in_all_ns,
            "remote_write_to_ack_over_victoriametrics": ours.to_ack_ns / theirs.to_ack_ns,
        }


def make_requests(scrapes: int) -> Iterator[bytes]:
    """The requests of so many scrapes, the last of them now."""
    began_ms = int(time.time() * 1000) - scrapes * STEP_MS
    labels = [_labels(gpu, 0) for gpu in range(GPUS)]
    for scrape in range(scrapes):
        for gpu in range(scrape % CHURN, GPUS if scrape else 0, CHURN):
            labels[gpu] = _labels(gpu, scrape)
        series = [
            pack_field(1, packed + pack_sample(began_ms + scrape * STEP_MS, _value(gpu, around, scrape)))
            for gpu in range(GPUS)
            for packed, around in zip(labels[gpu], METRICS.values(), strict=True)
        ]
        for at in range(0, len(series), REQUEST):
            yield pack_snappy(b"".join(series[at : at + REQUEST]))


def _value(gpu: int, around: float, scrape: int) -> float:
    """Another one with every scrape."""
    return round(around * (1 + (gpu * 37 + scrape * 11) % 100 / 100), 6) if around else scrape * 1024.0


def _labels(gpu: int, pod: int) -> list[bytes]:
    """The packed labels of the series of a GPU."""
    common = {
        "Hostname": f"node-{gpu // 8:04d}",
        "UUID": f"GPU-{gpu:08x}-1111-2222-3333-{gpu * 7919:012x}",
        "cluster": "prod",
        "container": "main",
        "device": f"nvidia{gpu % 8}",
        "gpu": str(gpu % 8),
        "instance": f"10.0.{gpu // 2048}.{gpu // 8 % 256}:9400",
        "job": "dcgm",
        "modelName": "NVIDIA H100 80GB HBM3",
        "namespace": f"team-{gpu % 12}",
        "pci_bus_id": f"00000000:{gpu % 8:02X}:00.0",
        "pod": f"train-{gpu}-{pod}",
    }
    return [b"".join(pack_label(*pair) for pair in sorted({**common, "__name__": name}.items())) for name in METRICS]


def _scan(rounds: int) -> dict[str, float]:
    """The scanner alone, compiled and warm."""
    scrapes = GPUS * len(METRICS) // REQUEST
    requests = list(make_requests(1))
    numbers = iter(range(10**9))
    RemoteWriteScanner(lambda *_: 0, WriteLimits()).scan(requests[0])
    scanner = RemoteWriteScanner(lambda *_: next(numbers), WriteLimits())
    spent = [_spend(scanner, requests) for _ in range(1 + rounds)]
    samples = scrapes * REQUEST
    return {
        "remote_write_scan_ns": min(spent[1:]) / samples * 1e9,
        "remote_write_first_sight_us": spent[0] / samples * 1e6,
    }


def _spend(scanner: RemoteWriteScanner, requests: list[bytes]) -> float:
    began = time.process_time()
    for request in requests:
        scanner.scan(request)
    return time.process_time() - began


class CpuTime(NamedTuple):
    """Nanoseconds of a server's processor time for a sample: until the last acknowledgement, and until it was quiet again."""

    to_ack_ns: float
    in_all_ns: float


def measure_cpu(start: Start, folder: Path, requests: list[bytes]) -> CpuTime:
    """What these requests cost a server, from the first one on."""
    with start(folder) as server:
        send(server, requests[:1])  # what is done once, whatever is sent
        time.sleep(WARM_S)
        times = [_cpu_s(server.pid)]
        send(server, requests[1:])
        times.append(_cpu_s(server.pid))
        time.sleep(QUIET_S)
        times.append(_cpu_s(server.pid))
    samples = (len(requests) - 1) * REQUEST
    return CpuTime(*((until - times[0]) / samples * 1e9 for until in times[1:]))


def send(server: RunningServer, requests: list[bytes]) -> None:
    """Posts the requests one after the other over one connection; each has to be acknowledged."""
    where = urlsplit(server.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port)
    for request in requests:
        connection.request("POST", where.path, request, HEADERS | server.headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != http.HTTPStatus.NO_CONTENT:
            raise RuntimeError(f"{server.url} answered {answer.status}: {content[:200]!r}")
    connection.close()


@contextmanager
def start_victoria_metrics(folder: Path) -> Iterator[RunningServer]:
    """VictoriaMetrics on one core, ended with the block."""
    address = f"127.0.0.1:{find_port()}"
    command = ["victoria-metrics", f"-storageDataPath={folder}", f"-httpListenAddr={address}", "-retentionPeriod=1y"]
    with run_server(command, f"http://{address}/health") as pid:
        yield RunningServer(pid, f"http://{address}/api/v1/write")


@contextmanager
def start_loadfactor(folder: Path) -> Iterator[RunningServer]:
    """`loadfactor up` on one core, ended with the block."""
    address = f"127.0.0.1:{find_port()}"
    program = "from loadfactor.interfaces.cli import main; main()"
    command = [sys.executable, "-c", program, "up", f"--store={folder}", f"--listen={address}"]
    with run_server(command, f"http://{address}/health") as pid:
        yield RunningServer(pid, f"http://{address}/api/v1/write")


@contextmanager
def run_server(command: list[str], health: str) -> Iterator[int]:
    """Runs a server on SERVER_CORE until the block ends; gives its pid once `health` answers."""
    core = sorted(os.sched_getaffinity(0))[SERVER_CORE]
    process = subprocess.Popen(
        ["taskset", "-c", str(core), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(health, process)
        yield process.pid  # taskset becomes the server
    finally:
        process.terminate()
        process.wait()


def wait_for(health: str, process: subprocess.Popen[bytes]) -> None:
    """Returns when the server answers."""
    where, until = urlsplit(health), time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=1)
            connection.request("GET", where.path)
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} did not answer at {health}")


def find_port() -> int:
    """A port that is free on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _cpu_s(pid: int) -> float:
    """Seconds of processor time that a process and its threads have taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
