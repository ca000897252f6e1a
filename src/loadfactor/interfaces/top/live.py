"""`loadfactor top` in a terminal: the page anew every few seconds, and at once after a key."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rich.console import Console
from rich.live import Live
from rich.text import Text

from loadfactor.base.errors import LoadfactorError
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.render.terminal import MAX_WIDTH, render_text
from loadfactor.interfaces.top.page import DOWN, ENTER, ESCAPE, KEYS, RUB_OUT, UP, TopView, build_history, build_page
from loadfactor.interfaces.top.readers import GpuHistory, ReadingsReader, TopAnswer, ask_history, ask_top

AROUND = 8
"""Lines of a page that are no rows."""
LOOK_S = 0.1
_NAMES = {"\x1b[A": UP, "\x1b[B": DOWN, "\r": ENTER, "\n": ENTER, "\x1b": ESCAPE, "\x7f": RUB_OUT, "\x08": RUB_OUT}


@dataclass(frozen=True)
class _Answered:
    """The last answer. `error`: what hindered it."""

    top: TopAnswer | None = None
    history: GpuHistory | None = None
    error: str = ""


def run_live(reader: ReadingsReader, view: TopView, last: str, where: tuple[str, ...], every_s: float) -> None:
    """Show it until a person quits."""
    console = Console(highlight=False)
    answered, due = _Answered(), 0.0
    with (
        ThreadPoolExecutor(1) as thread,
        _reading_keys() as fd,
        Live(console=console, screen=True, auto_refresh=False) as shown,
    ):
        pending: Future[_Answered] | None = None
        while not view.is_over:
            if pending is None and time.monotonic() >= due:
                pending = thread.submit(_ask, reader, view, last, where, answered)
            if pending is not None and pending.done():
                answered, pending = pending.result(), None
                due = time.monotonic() + every_s
            width = min(console.width, MAX_WIDTH)
            top, history = answered.top, answered.history
            page = Document("asking …")
            if view.gpu is not None and history is not None and history.gpu == view.gpu:
                page = build_history(history)
            elif top is not None and top.grouping == view.grouping:
                page = build_page(top, view, limit=max(1, console.height - AROUND), marks=True)
            below = [f"filter: {view.filter}_"] if view.is_typing else []
            below += [answered.error] if answered.error else []
            text = "\n".join([render_text(page, width), "", *below, KEYS])
            shown.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)
            for key in _read_keys(fd):
                before = view
                view = view.press(key, answered.top.rows if answered.top else ())
                if (view.grouping, view.gpu) != (before.grouping, before.gpu):
                    due = 0.0


def _ask(reader: ReadingsReader, view: TopView, last: str, where: tuple[str, ...], before: _Answered) -> _Answered:
    try:
        top = ask_top(reader, view.grouping, last, where)
        if view.gpu is None or top.end is None:
            return _Answered(top)
        return _Answered(top, ask_history(reader, view.gpu, top.end, before.history))
    except LoadfactorError as error:
        return replace(before, error=str(error))


@contextmanager
def _reading_keys() -> Iterator[int]:
    """The terminal gives each key as it is pressed, until the end."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _read_keys(fd: int) -> list[str]:
    if not select.select([fd], [], [], LOOK_S)[0]:
        return []
    return read_keys(os.read(fd, 1024).decode(errors="ignore"))


def read_keys(typed: str) -> list[str]:
    r"""The keys in what a terminal sends.

    >>> read_keys("s\x1b[B\x1b[A\r")
    ['s', 'down', 'up', 'enter']
    """
    found = []
    while typed:
        size = 3 if typed[:3] in _NAMES else 1
        found.append(_NAMES.get(typed[:size], typed[:size]))
        typed = typed[size:]
    return found
