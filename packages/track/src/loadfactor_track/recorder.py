"""The thread of a run: it takes what the loop reported, makes records and writes them to the file; the sender is another one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from .identity import Rank, describe_rank, find_identity, find_local_rank, find_rank, is_loader_worker
from .merging import Call, Merger
from .notices import say_once
from .own_gpus import find_gpus
from .record_file import RecordFile
from .units import NS_PER_MS

FLUSH_S: Final = 0.05
"""Calls are gathered for so long, so that records reach the disk within a tenth of a second."""
ALIVE_S: Final = 60.0
"""A run that reports nothing says so often that it lives, so that a kill does not hide how long it held its GPUs."""
END_S: Final = 3.0
"""So long the end of a run may take where disk or server do not answer."""
UNSENT: Final = "unsent"
"""The folder of what is on its way to a server, beside the records that nobody sends."""
FORMAT: Final = 1
ID_BYTES: Final = 16


class Recorder:
    """Everything that happens beside the loop."""

    is_awake = False

    def __init__(self, give: Callable[[], list[Call]], settings: dict[str, Any], folder: str, counts: str) -> None:
        self._give, self._settings, self._counts = give, settings, counts
        self._url = os.environ.get("LOADFACTOR_URL", "").rstrip("/")
        self._folder = Path(folder, UNSENT) if self._url else Path(folder)
        self._began_ns = time.time_ns()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._state = ""
        self._dropped_calls = 0
        self._file: RecordFile | None = None
        self._sender: Any = None
        self._knows_gpus = False
        self._rank = Rank(0, 1)
        self._speaks = True
        self._thread = threading.Thread(target=self._work, name="loadfactor", daemon=True)

    def start(self) -> None:
        """Begin; the first line is written at once."""
        self.wake()
        self._thread.start()

    def wake(self) -> None:
        """There is something to write."""
        self.is_awake = True
        self._wake.set()

    @property
    def dropped(self) -> int:
        """Records that could not be kept."""
        return (self._file.dropped if self._file else 0) + (self._sender.refused if self._sender else 0)

    def end(self, state: str, dropped: int) -> None:
        """Write everything, and have it sent, as far as that takes no longer than `END_S`."""
        until_s = time.monotonic() + END_S
        self._state, self._dropped_calls = state, dropped
        self._ended.set()
        self.wake()
        self._thread.join(END_S)
        if self._sender is not None:
            self._sender.end(max(0.2, until_s - time.monotonic()))

    def leave(self) -> None:
        """In a process that was forked."""
        if self._file is not None:
            self._file.leave()

    def _work(self) -> None:
        try:
            self._record()
        except Exception as error:  # a defect of ours must not end a run
            say_once("recorder", f"progress is not kept any more ({type(error).__name__}: {error}); the run goes on")

    def _record(self) -> None:
        merger = Merger(self._began_ns // NS_PER_MS)
        is_run = not is_loader_worker()
        self._rank = find_rank(os.environ)
        # Of ranks that say together what all did, the others say which GPUs are theirs, and nothing where they have none.
        self._speaks = self._counts == "rank" or self._rank.rank == 0
        if is_run and self._speaks:
            self._open()
        if is_run:
            self._find_gpus()
        while True:
            if not self._wake.wait(ALIVE_S) and self._file is not None:
                self._file.write([{"kind": "alive", "at": time.time_ns() // NS_PER_MS}])
            self._ended.wait(FLUSH_S)
            is_last = self._ended.is_set()
            self._wake.clear()
            self.is_awake = False
            calls = self._give()
            if self._file is not None and self._speaks:
                self._file.write(merger.merge(calls))
            if is_run and calls and not self._knows_gpus:
                self._find_gpus()
            if self._sender is not None:
                self._sender.wake()
            if is_last:
                break
        if self._file is not None:
            self._close(self._file)

    def _open(self) -> RecordFile:
        """Begin the file, and the sending of it."""
        begin = {"kind": "begin", "format": FORMAT, "id": os.urandom(ID_BYTES).hex(), "at": self._began_ns // NS_PER_MS}
        begin |= find_identity(self._settings["experiment"], self._settings["job"], os.environ)
        self._file = file = RecordFile(self._folder, begin | describe_rank(self._rank, self._counts))
        file.write([{"kind": "alive", "at": self._began_ns // NS_PER_MS}])
        self._begin_sending(file)
        return file

    def _find_gpus(self) -> None:
        """Write which GPUs the run sees; where nobody can say it yet, again when it has made a step.

        The first rank of a machine says it for those that see the same; one that sees a GPU alone says it itself.
        """
        found = find_gpus(os.environ)
        self._knows_gpus = found is not None
        if found and (self._speaks or len(found) == 1 or find_local_rank(os.environ) == 0):
            file = self._file or self._open()
            file.write([{"kind": "devices", "at": time.time_ns() // NS_PER_MS, "devices": found}])

    def _begin_sending(self, file: RecordFile) -> None:
        if self._url:
            from .sender import ProgressSender  # runs without a server need none

            self._sender = ProgressSender(file, self._url, os.environ.get("LOADFACTOR_TOKEN", ""))
            self._sender.start()

    def _close(self, file: RecordFile) -> None:
        end: dict[str, Any] = {"kind": "end", "at": time.time_ns() // NS_PER_MS, "state": self._state}
        if self._dropped_calls:
            end["dropped_calls"] = self._dropped_calls
        file.write([end])
        if self._sender is None:
            file.close()
