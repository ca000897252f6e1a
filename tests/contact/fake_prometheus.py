"""A Prometheus without a database: it answers the queries of `loadfactor check` from a list of series, at a clock of its own."""

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

Labels = Mapping[str, str]


@dataclass
class FakePrometheus:
    """Serves the series on loopback. Samples are `step_s` apart, the last `age_s` ago; its clock is `ahead_s` ahead."""

    series: Sequence[Labels]
    step_s: float = 15
    age_s: float = 5
    ahead_s: float = 0
    status: int = 200
    delay_s: float = 0
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                fake._answer(self, parse_qs(body)["query"][0])

            def date_time_string(self, _timestamp: float | None = None) -> str:
                return formatdate(time.time() + fake.ahead_s, usegmt=True)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler, query: str) -> None:
        time.sleep(self.delay_s)
        self.asked.append(query)
        rows = self._rows(query)
        body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()
        if self.status != 200:
            body = json.dumps({"status": "error", "error": "not allowed"}).encode()
        with suppress(ConnectionError):  # who asked may not wait
            request.send_response(self.status)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)

    def _rows(self, query: str) -> list[dict[str, Any]]:
        at_s = time.time() + self.ahead_s
        if query.startswith("count by (__name__)"):
            names = re.compile(query.split('__name__=~"')[1].split('"')[0])
            counts = Counter(s["__name__"] for s in self.series if names.fullmatch(s["__name__"]))
            return [{"metric": {"__name__": name}, "value": [at_s, str(n)]} for name, n in counts.items()]
        if query.endswith("s]"):  # raw samples of one series
            return [{"metric": {}, "values": [[at_s - self.age_s - n * self.step_s, "0"] for n in (2, 1, 0)]}]
        name = query.split('__name__="')[1].split('"')[0]
        chosen = [{k: v for k, v in s.items() if k != "__name__"} for s in self.series if s["__name__"] == name]
        return [{"metric": labels, "value": [at_s, str(at_s - self.age_s)]} for labels in chosen]


def list_gpus(names: Sequence[str], gpus: int = 16, **labels: str) -> list[Labels]:
    """Series of dcgm-exporter: each metric of each GPU, eight to a node, with further labels."""
    return [
        {
            "__name__": name,
            "UUID": f"GPU-{gpu:08x}-0000-4000-8000-000000000000",
            "gpu": str(gpu % 8),
            "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": f"node-{gpu // 8}",
            "instance": f"node-{gpu // 8}:9400",
            "job": "dcgm",
            **labels,
        }
        for name in names
        for gpu in range(gpus)
    ]
