"""Runs a command of the site for what it writes: without a shell, for so long and so many bytes at most."""

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Final

from loadfactor.base.errors import LoadfactorError

_READ_BYTES: Final = 1 << 16
_LOOK_EVERY_S: Final = 0.5
_SAID_BYTES: Final = 8192
_SAID_CHARACTERS: Final = 200
_NOT_THERE: Final = 127
"""What `env` and remote shells end with where there is no such command."""


class CommandError(LoadfactorError):
    """A command could not be run, failed, or took too long."""


class TooMuchSaidError(CommandError):
    """It wrote more than is read of it."""


def run_command(
    words: Sequence[str], name: str, timeout_s: float, most_bytes: int, stopped: threading.Event | None = None
) -> bytes:
    """What a command writes. It and what it started are ended when time is up, or when `stopped` is set. Raises CommandError."""
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise CommandError(f"{words[0]} cannot be run: {error.strerror or error}") from error
    assert process.stdout
    assert process.stderr
    try:
        said, complaint = _read(process.stdout, process.stderr, name, time.monotonic() + timeout_s, most_bytes, stopped)
        code = process.wait(timeout=_LOOK_EVERY_S)
    except TimeoutError:
        raise CommandError(f"{name} did not answer within {timeout_s:g} seconds") from None
    except subprocess.TimeoutExpired:
        raise CommandError(f"{name} said everything and does not end") from None
    finally:
        _end(process)
    if code:
        reason = _pick_line(complaint) or f"it ended with {code}"
        raise CommandError(
            f"there is no command {name}: {reason}" if code == _NOT_THERE else f"{name}: {_cut(reason, name)}"
        )
    return said


def _read(
    out: IO[bytes], err: IO[bytes], name: str, end_s: float, most_bytes: int, stopped: threading.Event | None
) -> tuple[bytes, bytes]:
    """Both streams to their end. Raises TimeoutError, CommandError."""
    said, complaint = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        for stream, into in ((out, said), (err, complaint)):
            selector.register(stream, selectors.EVENT_READ, into)
        while selector.get_map():
            if time.monotonic() >= end_s:
                raise TimeoutError
            if stopped is not None and stopped.is_set():
                raise CommandError(f"{name} was stopped with this process")
            for key, _ in selector.select(min(_LOOK_EVERY_S, max(0.0, end_s - time.monotonic()))):
                piece = os.read(key.fd, _READ_BYTES)
                if not piece:
                    selector.unregister(key.fileobj)
                elif key.data is said:
                    said += piece
                    if len(said) > most_bytes:
                        raise TooMuchSaidError(f"{name} wrote over {most_bytes:,} bytes")
                elif len(complaint) < _SAID_BYTES:
                    complaint += piece
    return bytes(said), bytes(complaint)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Nothing of it is left."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream:
            stream.close()


def _cut(reason: str, name: str) -> str:
    """Without the name of the command, which most say themselves.

    >>> _cut("sacct: error: Invalid field", "sacct"), _cut("it ended with 1", "sacct")
    ('Invalid field', 'it ended with 1')
    """
    return reason.removeprefix(f"{name.split()[0]}: ").removeprefix("error: ")


def _pick_line(complaint: bytes) -> str:
    """The first line that somebody complained in, for a message of one line."""
    lines = (line.strip() for line in complaint.decode(errors="replace").splitlines())
    return "".join(c if c.isprintable() else "?" for c in next(filter(None, lines), ""))[:_SAID_CHARACTERS]
