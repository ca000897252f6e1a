"""Serves /metrics, for a Prometheus that scrapes the node."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from .errors import AgentError
from .exposition import CONTENT_TYPE

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
