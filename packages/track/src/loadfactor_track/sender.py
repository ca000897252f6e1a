"""The thread that sends records to a server: its own file's, and those that killed processes left beside it."""

from __future__ import annotations

import threading
from typing import Final
from urllib.parse import urlsplit

from .notices import say_once
from .record_file import ENDING, RecordFile
from .units import BYTES_PER_MIB

PATH: Final = "/api/v1/progress"
TIMEOUT_S: Final = 10.0


def post_records(url: str, token: str, body: bytes) -> tuple[int, str]:
    """Send records; status and text of the answer.

    Raises OSError where nobody answers in time, or what answers speaks no HTTP, or the address is none.
    """
    import http.client  # loaded by the thread that sends alone

    headers = {"Content-Type": "application/x-ndjson"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        address = urlsplit(url)
        kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        connection = kind(address.hostname or "", address.port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", f"{address.path}{PATH}", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(BYTES_PER_MIB).decode(errors="replace").strip()
        finally:
            connection.close()
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(str(error)) from error


try:
    import fcntl
except ImportError:  # no Unix
    fcntl = None  # type: ignore[assignment]

MOST_SENT: Final = BYTES_PER_MIB
KEPT_BYTES: Final = BYTES_PER_MIB
"""A file of which everything arrived is cut off when it is larger."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
GATHER_S: Final = 0.2
_MALFORMED: Final = (400, 413, 422)


class ProgressSender:
    """Sends until it is ended; what did not arrive by then stays in the file, for the next process that tracks a run here."""

    def __init__(self, file: RecordFile, url: str, token: str) -> None:
        self._file, self._token = file, token
        self._url = url if "//" in url else f"http://{url}"
        self._sent = 0
        self.refused = 0
        """Bodies that the server will never take."""
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="loadfactor send", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._wake.set()
        self._thread.start()

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    def end(self, within_s: float) -> None:
        """Send what is left, for so long."""
        self._ending.set()
        self._wake.set()
        is_done = self._done.wait(within_s)
        self._file.close(remove=is_done and self._sent >= self._file.size)

    def _work(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # a defect of ours must not end a run
            say_once("sender", f"progress is not sent ({type(error).__name__}: {error}); it stays in {self._file.path}")
        finally:
            self._done.set()

    def _send_all(self) -> None:
        wait_s = 0.0
        has_left = True
        while True:
            self._wake.wait()
            self._ending.wait(wait_s or GATHER_S)
            self._wake.clear()
            is_last = self._ending.is_set()
            if self._send_file():
                wait_s = 0.0
                if has_left and not is_last:
                    has_left = False
                    self._send_left_behind()
            elif is_last:
                return
            else:
                wait_s = min(LONGEST_WAIT_S, 2 * wait_s or FIRST_WAIT_S)
                self._wake.set()
            if is_last and self._sent >= self._file.size:
                return

    def _send_file(self) -> bool:
        """Send what is new in the own file; false where the server did not take it."""
        while lines := self._file.read(self._sent, MOST_SENT):
            body = lines if self._sent == 0 else self._file.begin + lines
            if not self._post(body):
                return False
            self._sent += len(lines)
        if self._sent > KEPT_BYTES and self._file.forget(self._sent):
            self._sent = len(self._file.begin)
        return True

    def _send_left_behind(self) -> None:
        """Send the files of processes that are gone: of those nobody holds the lock."""
        if fcntl is None:
            return
        for path in sorted(self._file.path.parent.glob(f"*{ENDING}")):
            if path == self._file.path or self._ending.is_set():
                continue
            try:
                with path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if self._send_left(file.read().splitlines(keepends=True)):
                        path.unlink()
            except OSError:  # its process lives, or another one sends it
                continue

    def _send_left(self, lines: list[bytes]) -> bool:
        begin, sent = lines[:1], 1
        while sent < len(lines):
            size, until = 0, sent
            while until < len(lines) and size < MOST_SENT:
                size, until = size + len(lines[until]), until + 1
            whole = [line for line in lines[sent:until] if line.endswith(b"\n")]
            if not self._post(b"".join(begin + whole)):
                return False
            sent = until
        return True

    def _post(self, body: bytes) -> bool:
        """Whether the server has it, or will never take it, which is counted."""

        try:
            status, text = post_records(self._url, self._token, body)
        except OSError as error:
            say_once("server", f"{self._url} does not answer ({error}); progress waits in {self._file.path.parent}")
            return False
        if status < 300:
            return True
        if status in _MALFORMED:
            self.refused += 1
            say_once("refused", f"{self._url} refuses progress ({status}: {text[:200]}); it is dropped")
            return True
        say_once(f"status {status}", f"{self._url} answers {status} ({text[:200]}); progress waits")
        return False
