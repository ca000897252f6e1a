"""A Prometheus without a database: it answers the queries of `loadfactor check` from a list of series, at a clock of its own."""

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from tests.live.local_server import LocalServer

Labels = Mapping[str, str]


@dataclass
class FakePrometheus(LocalServer):
    """Serves the series on loopback. Samples are `step_s` apart, the last `age_s` ago; its clock is `ahead_s` ahead."""

    series: Sequence[Labels]
    step_s: float = 15
    age_s: float = 5
    ahead_s: float = 0
    status: int = 200
    delay_s: float = 0
    asked: list[str] = field(default_factory=list)

    def respond(self, _path: str, body: str, _headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        """The answer to a query."""
        query = parse_qs(body)["query"][0]
        self.asked.append(query)
        rows = self._rows(query)
        content = json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()
        if self.status != 200:
            content = json.dumps({"status": "error", "error": "not allowed"}).encode()
        return self.status, {}, content

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
