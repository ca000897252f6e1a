"""Prometheus, VictoriaMetrics, vmagent, node-exporter and Alertmanager as processes of a test, on loopback."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from tests.live.up_process import free_port
from tests.waiting import LONGEST_S, wait_until

BINARIES = {
    "prometheus": "prometheus",
    "victoria-metrics": "victoria-metrics",
    "vmagent": "victoria-metrics",
    "prometheus-node-exporter": "prometheus-node-exporter",
    "prometheus-alertmanager": "prometheus-alertmanager",
}
"""Each program, and the Debian package it is in."""
_SCRAPED = "prometheus_remote_storage_highest_timestamp_in_seconds"
_SENT = "prometheus_remote_storage_queue_highest_sent_timestamp_seconds"
_PENDING = "vmagent_remotewrite_pending_data_bytes"
_FLUSH_S = 2.0
"""A vmagent gathers for a second what it has scraped."""
INTERVAL_S = 1
ONE_SHARD = ("    queue_config:", "      max_shards: 1")
"""What is sent comes in its order, as where senders need not catch up: of several shards one may be long behind another."""
JOB = "gpus"
NODES = "nodes"


def list_missing() -> list[str]:
    """The packages of the programs that are not installed."""
    return sorted({package for binary, package in BINARIES.items() if shutil.which(binary) is None})


class Component:
    """A program that serves HTTP; it may be stopped or killed and started again, with its port and its data."""

    def __init__(
        self, folder: Path, binary: str, arguments: Sequence[str], listen: str, ready: str, port: int | None = None
    ) -> None:
        """`listen`: how its argument begins that takes the address; `ready`: the path that answers 200 when it can be used."""
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        self._command = [binary, *arguments, f"{listen}127.0.0.1:{self.port}"]
        self._ready = self.url + ready
        self.log = folder / f"{binary}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it, and wait until it can be used."""
        with self.log.open("ab") as said:
            self._process = subprocess.Popen(self._command, stdout=said, stderr=said, cwd=self.folder)
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end and self._process.poll() is None:
            try:
                if httpx.get(self._ready, timeout=5).status_code == httpx.codes.OK:
                    return self
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"{self._command[0]} does not answer: {self.log.read_text()[-500:]}")

    def stop(self) -> None:
        """SIGTERM."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        assert self._process
        self._process.send_signal(how)
        self._process.wait(timeout=LONGEST_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process and self._process.poll() is None:
            self.kill()

    def wait_until_sent(self) -> None:
        """Until a Prometheus or a vmagent has sent what it scraped until now: one that is ended before may leave out some of it."""
        says = httpx.get(f"{self.url}/metrics", timeout=LONGEST_S).text
        if _SENT in says:
            scraped = self._read_own(
                _SCRAPED
            )  # whole seconds: what is of a later one was scraped after all that counts
            wait_until(lambda: self._read_own(_SENT) > scraped > 0, lambda: f"{self._command[0]} does not catch up")
        elif _PENDING in says:
            time.sleep(_FLUSH_S)
            wait_until(lambda: self._read_own(_PENDING) == 0, lambda: f"{self._command[0]} does not catch up")

    def _read_own(self, name: str) -> float:
        """The largest value of a metric of its own, 0 where there is none."""
        lines = httpx.get(f"{self.url}/metrics", timeout=LONGEST_S).text.splitlines()
        return max((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)), default=0.0)

    def list_instants(self, selector: str) -> list[int]:
        """When the samples of these series are, ms, each instant once: what the server itself keeps."""
        return sorted({at_ms for at_ms, _ in self.list_samples(selector)})

    def list_samples(self, selector: str) -> list[tuple[int, float]]:
        """The instants, ms, and values of these series that the server itself keeps, series by series: one each holder."""
        httpx.get(
            f"{self.url}/internal/force_flush", timeout=LONGEST_S
        )  # VictoriaMetrics answers with what it has flushed
        answer = httpx.get(
            f"{self.url}/api/v1/query", params={"query": f"{selector}[1h]", "nocache": "1"}, timeout=LONGEST_S
        )
        assert answer.status_code == httpx.codes.OK, answer.text
        series: list[Any] = json.loads(answer.text)["data"]["result"]
        return [(round(float(at) * 1000), float(v)) for one in series for at, v in one["values"] if v != "NaN"]


def write_scrapes(folder: Path, targets: Mapping[str, str], *further: str) -> Path:
    """A configuration that scrapes each job's target every INTERVAL_S, and has these further lines."""
    lines = ["global:", f"  scrape_interval: {INTERVAL_S}s", f"  scrape_timeout: {INTERVAL_S}s", "scrape_configs:"]
    for job, target in targets.items():
        lines += [f"  - job_name: {job}", "    static_configs:", f'      - targets: ["{target}"]']
    folder.mkdir()
    path = folder / "scrapes.yml"
    path.write_text("\n".join([*lines, *further, ""]))
    return path


def make_prometheus(
    folder: Path, targets: Mapping[str, str], write_to: str | None = None, port: int | None = None
) -> Component:
    """A Prometheus that scrapes these targets, and sends on what it scraped."""
    further = ("remote_write:", f"  - url: {write_to}/api/v1/write", *ONE_SHARD) if write_to else ()
    config = write_scrapes(folder, targets, *further)
    arguments = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn"]
    return Component(folder, "prometheus", arguments, "--web.listen-address=", "/-/ready", port)


def make_victoria_metrics(folder: Path, targets: Mapping[str, str] | None = None, port: int | None = None) -> Component:
    """A VictoriaMetrics that scrapes these targets, if any, and takes what is sent to it."""
    config = write_scrapes(folder, targets or {})
    arguments = [f"-storageDataPath={folder / 'data'}", "-retentionPeriod=1y", "-memory.allowedPercent=10"]
    arguments += [f"-promscrape.config={config}"] if targets else []
    return Component(folder, "victoria-metrics", arguments, "-httpListenAddr=", "/health", port)


def make_vmagent(folder: Path, targets: Mapping[str, str], write_to: Sequence[str]) -> Component:
    """A vmagent that scrapes these targets, and sends what it scraped to each of these servers."""
    config = write_scrapes(folder, targets)
    arguments = [f"-promscrape.config={config}", f"-remoteWrite.tmpDataPath={folder / 'data'}"]
    arguments += ["-remoteWrite.queues=1", *(f"-remoteWrite.url={url}/api/v1/write" for url in write_to)]
    return Component(folder, "vmagent", arguments, "-httpListenAddr=", "/health")


def make_node_exporter(folder: Path) -> Component:
    """A node-exporter of this machine."""
    folder.mkdir()
    return Component(folder, "prometheus-node-exporter", [], "--web.listen-address=", "/metrics")


def make_alertmanager(folder: Path) -> Component:
    """An Alertmanager that tells nobody."""
    folder.mkdir()
    config = folder / "alertmanager.yml"
    config.write_text("route:\n  receiver: nobody\nreceivers:\n  - name: nobody\n")
    arguments = [f"--config.file={config}", f"--storage.path={folder / 'data'}", "--cluster.listen-address="]
    return Component(folder, "prometheus-alertmanager", arguments, "--web.listen-address=", "/-/ready")
