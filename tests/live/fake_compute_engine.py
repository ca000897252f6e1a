"""Compute Engine's REST on loopback: lists over zones and pages, quotas that are used up, and refusals."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

ZONES = ("us-central1-a", "us-central1-b")
_URL = "https://www.googleapis.com/compute/v1/projects/p"


def make_instance(number: int, name: str, gpus: int = 1, zone: str = ZONES[0], **said: Any) -> dict[str, Any]:
    """An instance as the API writes it; `gpus` of the model L4."""
    accelerators = [{"acceleratorType": f"{_URL}/zones/{zone}/acceleratorTypes/nvidia-l4", "acceleratorCount": gpus}]
    return {
        "kind": "compute#instance",
        "id": str(number),
        "name": name,
        "zone": f"{_URL}/zones/{zone}",
        "selfLink": f"{_URL}/zones/{zone}/instances/{name}",
        "machineType": f"{_URL}/zones/{zone}/machineTypes/g2-standard-8",
        "status": "RUNNING",
        "creationTimestamp": "2026-11-20T01:00:00.000-08:00",
        "lastStartTimestamp": "2026-11-20T02:00:00.000-08:00",
        **({"guestAccelerators": accelerators} if gpus else {}),
        **said,
    }


class FakeComputeEngine:
    """The server of one project: `instances` and `operations` by zone, `page` of them a page.

    `failures`: codes with which the next requests are answered; `forbidden`: lists that may not be asked for; `away`: zones that
    cannot be reached.
    """

    def __init__(self) -> None:
        self.instances: dict[str, list[dict[str, Any]]] = {zone: [] for zone in ZONES}
        self.operations: dict[str, list[dict[str, Any]]] = {zone: [] for zone in ZONES}
        self.page = 2
        self.failures: list[int] = []
        self.forbidden: set[str] = set()
        self.away: set[str] = set()
        self.requests: list[str] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, said = fake.answer(self.path)
                content = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """The status and the answer of a request."""
        place, asked = urlsplit(path), parse_qs(urlsplit(path).query)
        what = place.path.rpartition("/")[2]
        self.requests.append(path)
        assert place.path == f"/compute/v1/projects/p/aggregated/{what}"
        if what in self.forbidden:
            return 403, _make_error(403, f"Required 'compute.{what}.list' permission for 'projects/p'")
        if self.failures:
            code = self.failures.pop(0)
            return code, _make_error(code, "Quota exceeded" if code == 429 else "The service is away")
        found = [(zone, one) for zone, some in getattr(self, what).items() for one in some]
        if what == "operations":
            assert asked["filter"] == ['operationType="compute.instances.preempted"']
        begin = int(asked.get("pageToken", ["0"])[0])
        end = begin + min(self.page, int(asked["maxResults"][0]))
        items: dict[str, dict[str, Any]] = {f"zones/{zone}": {} for zone in ZONES}
        for zone, one in found[begin:end]:
            items[f"zones/{zone}"].setdefault(what, []).append(one)
        for zone in ZONES:
            if not items[f"zones/{zone}"]:
                code = "UNREACHABLE" if zone in self.away else "NO_RESULTS_ON_PAGE"
                items[f"zones/{zone}"]["warning"] = {"code": code, "message": f"{zone}: nothing"}
        more = {"nextPageToken": str(end)} if end < len(found) else {}
        return 200, {"kind": f"compute#{what[:-1]}AggregatedList", "items": items, **more}

    def __enter__(self) -> "FakeComputeEngine":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _make_error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "errors": [{"message": message, "reason": "test"}]}}
