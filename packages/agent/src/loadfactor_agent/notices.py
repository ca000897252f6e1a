"""Errors and notices of the agent: each notice once, on stderr or wherever it is to go."""

import sys
import threading
from collections.abc import Callable


class AgentError(Exception):
    """One line: what is wrong, where, what to do next."""


def write_to_stderr(text: str) -> None:
    """One line."""
    print(f"loadfactor agent: {text}", file=sys.stderr, flush=True)


class Notices:
    """Says each thing once, until it is over; any thread may call."""

    def __init__(self, write: Callable[[str], None] = write_to_stderr) -> None:
        self._write = write
        self._written: set[str] = set()
        self._lock = threading.Lock()

    def say(self, topic: str, text: str) -> None:
        """Write the text, unless one of this topic was written since it last ended."""
        with self._lock:
            if topic in self._written:
                return
            self._written.add(topic)
        self._write(text)

    def end(self, topic: str, text: str) -> None:
        """End a topic; write the text, if its beginning was written."""
        with self._lock:
            if topic not in self._written:
                return
            self._written.discard(topic)
        self._write(text)
