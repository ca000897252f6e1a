"""A standalone cluster of Spark on loopback: a master and two workers, as processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark
from tests.live.up_process import free_port

LONGEST_S = 300.0
JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
"""Compiled once and quickly: these processes live for a minute."""
DEFAULTS = """spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.sql.shuffle.partitions 2
spark.default.parallelism 2
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executor.memory 512m
"""


class SparkCluster:
    """Its master's address, and the environment in which a driver finds it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port, self._page = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{port}"
        (folder / "spark-defaults.conf").write_text(DEFAULTS)
        self.environment: Mapping[str, str] = {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_CONF_DIR": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = port

    def __enter__(self) -> Self:
        try:
            self._start("master.Master", "--port", str(self._port), "--webui-port", str(self._page))
            self._wait(0)
            for _ in range(2):
                self._start("worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0", self.master)
            self._wait(2)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End all of it, executors too."""
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()

    def find_executors(self) -> list[int]:
        """The processes in which workers run tasks."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words, where = path.read_bytes(), (path.parent / "cwd").readlink()
            except OSError:
                continue
            if b"CoarseGrainedExecutorBackend" in words and where.is_relative_to(self.folder):
                found.append(int(path.parent.name))
        return sorted(found)

    def _start(self, kind: str, *words: str) -> None:
        jars = Path(pyspark.__file__).parent / "jars"
        command = ["java", *JAVA, "-cp", f"{jars}/*", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *words]
        with (self.folder / f"{kind}-{len(self._processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        self._processes.append(process)

    def _wait(self, workers: int) -> None:
        """Until the master says that so many workers are there."""
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=10) as answer:
                    if json.load(answer)["aliveworkers"] >= workers:
                        return
            except (OSError, ValueError):  # it has not begun, or answers with a page as it begins
                pass
            time.sleep(0.2)
        logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log"))
        raise AssertionError(f"Spark has not begun:\n{logs}")
