"""What the agent takes of a node with 8 GPUs: CPU time at 1 s and 10 s, and memory. The driver is the fake one of the tests."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from packages.agent.tests.fake_driver import COMPILER, build_driver

NAME = "agent"
_KIB_PER_MIB = 1024


def run(quick: bool) -> dict[str, float]:
    """`agent_cpu_share` of one core at a sample a second, `agent_cpu_share_10s`, `agent_rss_mib`; the server only says 204."""
    if COMPILER is None:
        return {}
    sink = ThreadingHTTPServer(("127.0.0.1", 0), _Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    try:
        fast, rss_mib = _measure(sink.server_address[1], 1, 15 if quick else 60)
        slow, _ = _measure(sink.server_address[1], 10, 20 if quick else 60)
    finally:
        sink.shutdown()
    return {"agent_cpu_share": fast, "agent_cpu_share_10s": slow, "agent_rss_mib": rss_mib}


def _measure(port: int, every_s: int, for_s: int) -> tuple[float, float]:
    """Share of a core and MiB of an agent that has settled; whole steps are measured."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if k != "FAKE_NVML_STATE"}
        environment |= {"LD_LIBRARY_PATH": str(build_driver()), "FAKE_NVML_PID": str(os.getpid())}
        command = [sys.executable, "-m", "loadfactor_agent", "--server", f"http://127.0.0.1:{port}"]
        command += ["--every", f"{every_s}s", "--spool", str(Path(folder, "spool"))]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            time.sleep(5)  # it has started, and what is read once has been read
            began_s, before_s = time.monotonic(), _cpu_s(process.pid)
            time.sleep(for_s)
            share = (_cpu_s(process.pid) - before_s) / (time.monotonic() - began_s)
            return share, _rss_mib(process.pid)
        finally:
            process.terminate()
            process.wait()


def _cpu_s(pid: int) -> float:
    """Nanoseconds on a CPU, of all threads: finer than the ticks of /proc/PID/stat."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / _KIB_PER_MIB


class _Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Take it."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""
