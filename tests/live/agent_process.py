"""`loadfactor-agent` as a process of a test, on the fake driver."""

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from packages.agent.tests.fake_driver import FakeDriver


class AgentProcess:
    """The agent with a spool of its own; it may be killed and started again."""

    def __init__(self, driver: FakeDriver, folder: Path, *options: str) -> None:
        self._driver, self._options = driver, (*options, "--spool", str(folder / "spool"))
        self.spool, self.log = folder / "spool", folder / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> "AgentProcess":
        """Start it."""
        with self.log.open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "loadfactor_agent", *self._options],
                env={**self._driver.environment, "NODE_NAME": "node-7"},
                stdout=said,
                stderr=said,
            )
        return self

    def kill(self) -> None:
        """kill -9."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=240)

    def __enter__(self) -> "AgentProcess":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process and self.process.poll() is None:
            self.kill()
