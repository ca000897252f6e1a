"""`loadfactor up` as a process of a test: started, asked, killed and started again."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from tests.waiting import LONGEST_S, wait_until

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000


def free_port() -> int:
    """A port of this machine that nobody uses; where Linux deals out those above, also none that it gives somebody meanwhile."""
    lowest_dealt = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 0
    while True:
        with socket.socket() as s, suppress(OSError):
            s.bind(
                (
                    "127.0.0.1",
                    random.SystemRandom().randrange(_LOWEST, lowest_dealt) if lowest_dealt > 2 * _LOWEST else 0,
                )
            )
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
        names_store: bool = True,
    ) -> None:
        """`within`: a command that runs it, such as prlimit; `names_store`: whether its command names the store."""
        self._names_store = names_store
        self._within = within
        self._environment = dict(environment)
        self.store, self.port, self._config = store, port or free_port(), config
        self.url = f"http://127.0.0.1:{self.port}"
        # no certificates are read for each request; a server may close a connection that rests as the next one is sent
        self._client = httpx.Client(verify=False, limits=httpx.Limits(max_keepalive_connections=0))
        self.process: subprocess.Popen[bytes] | None = None
        self.log = store.with_name(f"{store.name}.log")

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        command = [
            *self._within,
            sys.executable,
            "-c",
            "from loadfactor.interfaces.cli import main; main()",
            "up",
            "--listen",
            f"127.0.0.1:{self.port}",
        ]
        if self._names_store:
            command += ["--store", str(self.store)]
        if self._config:
            command += ["--config", str(self._config)]
        with self.log.open("ab") as said:
            self.process = subprocess.Popen(
                command, stdout=said, stderr=said, cwd=self.store.parent, env=self._environment
            )
        end = time.monotonic() + LONGEST_S
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
        return self.process.wait(timeout=LONGEST_S)

    def write(self, body: bytes, timeout_s: float = LONGEST_S) -> int:
        """Send a packed remote_write request; the status."""
        headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
        return self._client.post(
            f"{self.url}/api/v1/write", content=body, headers=headers, timeout=timeout_s
        ).status_code

    def ask(self, path: str, **question: str) -> Any:
        """The JSON of an answer."""
        answer = self._client.get(f"{self.url}{path}", params=question, timeout=LONGEST_S)
        assert answer.status_code == httpx.codes.OK, answer.text
        return json.loads(answer.text)

    def wait_until_booked(self) -> None:
        """Until readers see everything that was acknowledged."""
        self.wait_until(lambda: self.ask("/health")["lag_s"] <= 0)

    def wait_until(self, holds: Callable[[], object]) -> None:
        """Until something holds; where it does not, what /health and the log say is the error."""
        wait_until(holds, lambda: f"{json.dumps(self.ask('/health'))}\n{self.log.read_text()[-2000:]}")

    def wait_for_health(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first answer of /health of which something holds."""
        health: dict[str, Any] = {}

        def ask() -> object:
            nonlocal health
            health = self.ask("/health")
            return holds(health)

        self.wait_until(ask)
        return health

    def readings(self, metric: str, by: str = "", **question: str) -> dict[str | None, float | None]:
        """The values of a metric by the names of one dimension, or under None."""
        found = (
            self.ask("/api/v1/readings", metric=metric, by=by, **question)
            if by
            else self.ask("/api/v1/readings", metric=metric, **question)
        )
        return {next(iter((r["by"] or {}).values()), None): r["value"] for r in found["readings"]}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process and self.process.poll() is None:
            self.kill()
