"""`loadfactor up` as a process of a test: started, asked, killed and started again."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

LONGEST_START_S = 240.0


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


class UpProcess:
    """The server on one store and port; it may be killed and started again."""

    def __init__(
        self,
        store: Path,
        port: int | None = None,
        config: Path | None = None,
        environment: Mapping[str, str] = os.environ,
        within: Sequence[str] = (),
    ) -> None:
        """`within`: a command that runs it, such as prlimit."""
        self._within = within
        self._environment = dict(environment)
        self.store, self.port, self._config = store, port or free_port(), config
        self.url = f"http://127.0.0.1:{self.port}"
        self._client = httpx.Client(verify=False)  # no certificates are read for each request
        self.process: subprocess.Popen[bytes] | None = None
        self.log = store.with_name(f"{store.name}.log")

    def start(self) -> "UpProcess":
        """Start it, and wait until it answers."""
        command = [
            *self._within,
            sys.executable,
            "-c",
            "from loadfactor.interfaces.cli import main; main()",
            "up",
            "--store",
            str(self.store),
            "--listen",
            f"127.0.0.1:{self.port}",
        ]
        if self._config:
            command += ["--config", str(self._config)]
        with self.log.open("ab") as said:
            self.process = subprocess.Popen(
                command, stdout=said, stderr=said, cwd=self.store.parent, env=self._environment
            )
        end = time.monotonic() + LONGEST_START_S
        while time.monotonic() < end:
            try:
                if self._client.get(f"{self.url}/health", timeout=5).status_code == httpx.codes.OK:
                    return self
            except httpx.HTTPError:
                if self.process.poll() is not None:
                    break
            time.sleep(0.1)
        raise AssertionError(f"no answer: {self.log.read_text()[-500:]}")

    def kill(self) -> None:
        """kill -9."""
        assert self.process
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=240)

    def write(self, body: bytes, timeout_s: float = 20.0) -> int:
        """Send a packed remote_write request; the status."""
        headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
        return self._client.post(
            f"{self.url}/api/v1/write", content=body, headers=headers, timeout=timeout_s
        ).status_code

    def ask(self, path: str, **question: str) -> Any:
        """The JSON of an answer."""
        answer = self._client.get(f"{self.url}{path}", params=question, timeout=60)
        assert answer.status_code == httpx.codes.OK, answer.text
        return json.loads(answer.text)

    def wait_until_booked(self, longest_s: float = 240.0) -> None:
        """Until readers see everything that was acknowledged."""
        end = time.monotonic() + longest_s
        while (lag_s := self.ask("/health")["lag_s"]) > 0:
            assert time.monotonic() < end, f"not booked after {longest_s} s: {lag_s} s behind"
            time.sleep(0.2)

    def readings(self, metric: str, by: str = "", **question: str) -> dict[str | None, float | None]:
        """The values of a metric by the names of one dimension, or under None."""
        found = (
            self.ask("/api/v1/readings", metric=metric, by=by, **question)
            if by
            else self.ask("/api/v1/readings", metric=metric, **question)
        )
        return {next(iter((r["by"] or {}).values()), None): r["value"] for r in found["readings"]}

    def __enter__(self) -> "UpProcess":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process and self.process.poll() is None:
            self.kill()
