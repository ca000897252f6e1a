"""Readings as the page that Prometheus scrapes, and the server of /metrics."""

import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from .notices import AgentError
from .write_request import SeriesValues, is_counter

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_TARGET: Final = ("instance", "job")
"""Labels that whoever scrapes gives."""


def write_page(readings: Iterable[SeriesValues]) -> str:
    """The page: the values of a metric together, below its type.

    >>> from loadfactor_agent.write_request import Labels
    >>> print(write_page([SeriesValues(Labels({"gpu": "0"}), 0, {"DCGM_FI_DEV_GPU_UTIL": 97.0})]), end="")
    # TYPE DCGM_FI_DEV_GPU_UTIL gauge
    DCGM_FI_DEV_GPU_UTIL{gpu="0"} 97
    """
    by_name: dict[str, list[str]] = {}
    for labels, _, values in readings:
        shown = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.pairs if name not in _TARGET)
        for name, value in values.items():
            by_name.setdefault(name, []).append(f"{name}{{{shown}}} {_write_number(value)}\n")
    parts = []
    for name, lines in by_name.items():
        parts.append(f"# TYPE {name} {'counter' if is_counter(name) else 'gauge'}\n")
        parts.extend(lines)
    return "".join(parts)


def _write_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


_TIMEOUT_S: Final = 10.0


class PageServer(ThreadingHTTPServer):
    """Serves what `write_page` gives, from threads."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, listen: str, write_page: Callable[[], str]) -> None:
        """`listen`: HOST:PORT. Raises AgentError where it cannot listen there."""
        host, _, port = listen.rpartition(":")
        if not host or not port.isascii() or not port.isdigit():
            raise AgentError(f"{listen!r} is no address to listen on; write 127.0.0.1:9418")
        self.write_page = write_page
        try:
            super().__init__((host.strip("[]"), int(port)), _PageHandler)
        except (OSError, OverflowError) as error:
            raise AgentError(f"cannot listen on {listen}: {error}; choose another with --listen") from error

    @property
    def address(self) -> str:
        """Where it listens."""
        host, port = self.server_address[:2]
        return f"{host!s}:{port}"

    def start(self) -> None:
        """Serve, from a thread."""
        threading.Thread(target=self.serve_forever, name="page", daemon=True).start()


class _PageHandler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT_S
    server: PageServer

    def do_GET(self) -> None:
        """The page, or 404."""
        found = self.path.partition("?")[0] == "/metrics"
        page = self.server.write_page().encode() if found else b"see /metrics\n"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not worth a line each."""
