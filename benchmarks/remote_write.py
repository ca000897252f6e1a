"""How much work is receiving remote_write? 20 series of each of 1,000 GPUs with 13 labels, in requests of 2,000 samples.

`remote_write_scan_ns` is the processor time of a sample of known series from the packed request to points, snappy included, and
`remote_write_first_sight_us` that of a series never seen before, without what the decoder makes of it.
`remote_write_over_victoriametrics` is the processor time of our server over that of VictoriaMetrics for the same requests, from the
first one to the last acknowledgement: HTTP included, each server alone on one core, every series new in the first scrape and one in
a hundred new in each later one. VictoriaMetrics acknowledges before its data is on disk; we after. It is measured where the program
`victoria-metrics` is installed (Debian's package of that name).
"""

import http.client
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.sources.prometheus.sender import HEADERS, pack_field, pack_label, pack_sample, pack_snappy

from loadfactor.sources.prometheus.remote_write import RemoteWriteScanner
from loadfactor.sources.prometheus.remote_write_limits import WriteLimits

NAME = "remote_write"
GPUS, METRICS, REQUEST, STEP_MS = 1_000, 20, 2_000, 30_000
CHURN = 100  # one GPU in so many gets a new pod with every scrape
SERVER_CORE = 0
START_S = 30.0  # within which a server has to answer


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
        results["victoriametrics_write_ns"] = measure_cpu_ns(start_victoria_metrics, Path(folder) / "vm", requests)
    return results


def make_requests(scrapes: int) -> Iterator[bytes]:
    """The requests of so many scrapes, the last of them now."""
    began_ms = int(time.time() * 1000) - scrapes * STEP_MS
    labels = [_labels(gpu, 0) for gpu in range(GPUS)]
    for scrape in range(scrapes):
        for gpu in range(scrape % CHURN, GPUS if scrape else 0, CHURN):
            labels[gpu] = _labels(gpu, scrape)
        series = [
            pack_field(1, packed + pack_sample(began_ms + scrape * STEP_MS, (gpu * 37 + metric * scrape) % 1000 / 10))
            for gpu in range(GPUS)
            for metric, packed in enumerate(labels[gpu])
        ]
        for at in range(0, len(series), REQUEST):
            yield pack_snappy(b"".join(series[at : at + REQUEST]))


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
    return [
        b"".join(pack_label(*pair) for pair in sorted({**common, "__name__": f"DCGM_FI_DEV_METRIC_NUMBER_{k}"}.items()))
        for k in range(METRICS)
    ]


def _scan(rounds: int) -> dict[str, float]:
    """The scanner alone, compiled and warm."""
    scrapes = GPUS * METRICS // REQUEST
    requests = list(make_requests(1))
    numbers = iter(range(10**9))
    RemoteWriteScanner(lambda _: 0, WriteLimits()).scan(requests[0])
    scanner = RemoteWriteScanner(lambda _: next(numbers), WriteLimits())
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


def measure_cpu_ns(start: Start, folder: Path, requests: list[bytes]) -> float:
    """Nanoseconds of the server's processor time for a sample, from the first request to the last acknowledgement."""
    with start(folder) as server:
        before = _cpu_s(server.pid)
        send(server, requests)
        return (_cpu_s(server.pid) - before) / (len(requests) * REQUEST) * 1e9


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
