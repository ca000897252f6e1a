"""Sends the bodies of a spool to a server, in order, each until the server took it."""

import http.client
import random
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from .notices import AgentError, Notices
from .spool import Spool, Waiting

PATH: Final = "/api/v1/write"
TIMEOUT_S: Final = 30.0
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
_UNREADABLE: Final = frozenset({400, 413, 415, 422})
"""Statuses that say that this body will never be taken; with all others it is sent again."""
_SHOWN_BYTES: Final = 300


@dataclass
class SendCounts:
    """Counts of bodies since the process began."""

    sent_bodies: int = 0
    refused_bodies: int = 0
    failures: int = 0


class Sender:
    """A thread that sends until it is stopped."""

    def __init__(self, server: str, token_file: Path | None, spool: Spool, notices: Notices) -> None:
        """Raises AgentError for what is no URL."""
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise AgentError(f"{server!r} is no address of a server; write --server http://HOST:9417")
        self._server, self._parts, self._token_file = server, parts, token_file
        self._spool, self._notices = spool, notices
        self.counts = SendCounts()
        self._stop = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._read_token()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, within_s: float) -> None:
        """Send what can be sent in so long, and end; the rest waits in the spool."""
        self._stop.set()
        self._thread.join(within_s)

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            waiting = self._spool.take(0.0 if self._stop.is_set() else 1.0)
            if waiting is None:
                if self._stop.is_set():
                    return
                continue
            pause_at_least_s = self._send(waiting)
            if pause_at_least_s is None:
                pause_s = FIRST_PAUSE_S
                continue
            if self._stop.wait(max(pause_at_least_s, pause_s * random.uniform(0.5, 1.0))):
                return
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _send(self, waiting: Waiting) -> float | None:
        """Send one body; None where it is done with, else how long the server asks to be left alone (0 where it does not say)."""
        try:
            status, text, after_s = self._post(waiting.body)
        except (OSError, http.client.HTTPException, AgentError) as error:
            self._disconnect()
            return self._fail(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        if 200 <= status < 300:
            self.counts.sent_bodies += 1
            self._spool.confirm(waiting)
            self._notices.end("server", f"{self._server} takes samples again")
            return None
        if status in _UNREADABLE:
            self.counts.refused_bodies += 1
            self._spool.confirm(waiting)
            self._notices.say(
                "refused", f"{self._server} refused samples ({status}: {text}); they are dropped and counted"
            )
            return None
        return self._fail(f"{status}: {text}", after_s)

    def _fail(self, why: str, after_s: float = 0.0) -> float:
        self.counts.failures += 1
        self._notices.say("server", f"{self._server} does not take samples ({why}); they wait in the spool")
        return after_s

    def _post(self, body: bytes) -> tuple[int, str, float]:
        """Status, text and Retry-After in seconds."""
        connection = self._connect()
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
            "User-Agent": "loadfactor-agent",
        }
        if token := self._read_token():
            headers["Authorization"] = f"Bearer {token}"
        connection.request("POST", f"{self._parts.path.rstrip('/')}{PATH}", body, headers)
        answer = connection.getresponse()
        text = " ".join(answer.read(_SHOWN_BYTES).decode(errors="replace").split())
        after = answer.getheader("Retry-After", "")
        if not answer.isclosed():  # more than we read
            self._disconnect()
        return answer.status, text, min(float(after), LONGEST_PAUSE_S) if after.isdigit() else 0.0

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            host, port = self._parts.hostname or "", self._parts.port
            if self._parts.scheme == "https":
                context = ssl.create_default_context()
                self._connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
            else:
                self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read_token(self) -> str:
        """Read each time, so that it may be renewed."""
        if self._token_file is None:
            return ""
        try:
            return self._token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AgentError(f"the token cannot be read: {error}; see --token-file") from error
