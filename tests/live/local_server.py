"""An HTTP server of a test on loopback, in threads of its own; what it answers is for its kinds to say."""

import socket
import time
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Self


def _is_left(connection: socket.socket) -> bool:
    """Whether who asked waits no more: what would be answered counts nowhere."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


class LocalServer:
    """Serves while it is entered; the port stays the same when it is entered again. Its clock is `ahead_s` ahead."""

    port: int = 0  # 0: any that is free
    ahead_s: float = 0.0
    delay_s: float = 0.0

    def respond(self, path: str, body: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        """The status, headers and content of an answer; header names of the request are in lower case."""
        raise NotImplementedError

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{self.address}"

    def __enter__(self) -> Self:
        """Serves from a thread."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._answer(self)

            do_POST = do_GET  # noqa: N815 - so http.server calls it

            def date_time_string(self, _timestamp: float | None = None) -> str:
                return formatdate(time.time() + server.ahead_s, usegmt=True)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        time.sleep(self.delay_s)
        body = request.rfile.read(int(request.headers.get("Content-Length", 0))).decode()
        if _is_left(request.connection):
            return
        status, headers, content = self.respond(
            request.path, body, {name.lower(): value for name, value in request.headers.items()}
        )
        with suppress(ConnectionError):  # who asked may not wait
            request.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(content)
