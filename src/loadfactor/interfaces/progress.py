"""Progress of what takes a while, on standard error and only where a person looks at it: a bar, the pace, and the time left."""

import sys
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from loadfactor.base.spelling import spell_out
from loadfactor.base.units import PERCENT
from loadfactor.interfaces.formats import duration, number

Thing = TypeVar("Thing")
BAR_CHARACTERS = 16


class ProgressBar:
    """A progress bar shown only to a person. Use it as a context; call it with what is done and the share of that done so far.

    The time left is that of the stage, which the first word of what is done names.
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = monotonic) -> None:
        # a terminal alone counts, as variables of the environment that force colours do not make a reader
        console = console or Console(stderr=True, force_terminal=sys.stderr.isatty())
        what = TextColumn(
            "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
        )
        self._progress = Progress(
            what,
            BarColumn(BAR_CHARACTERS),
            PaceColumn(table_column=Column(no_wrap=True)),
            console=console,
            transient=True,
            expand=True,
            disable=not console.is_terminal or console.is_dumb_terminal,
            get_time=clock,
        )
        self._stage, self._share = "", 0.0
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> "ProgressBar":
        self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._progress.stop()

    def __call__(self, what: str, share: float) -> None:
        """Tell what is being done; a share of zero means nobody knows how long it takes."""
        stage = what.partition(" ")[0]
        if stage != self._stage or share < self._share:
            self._progress.reset(self._task)
        self._stage, self._share = stage, share
        self._progress.update(self._task, description=spell_out(what), completed=share)
        self._progress.tasks[0].total = 1.0 if share else None


class PaceColumn(ProgressColumn):
    """The share done, how fast it grows, the time the stage took so far and the time it still takes at that pace."""

    def render(self, task: Task) -> Text:
        """One line; the time alone where the share is not known."""
        elapsed_s, share = task.elapsed or 0.0, task.completed
        elapsed = duration(round(elapsed_s))
        if not (
            task.total and elapsed_s and share
        ):  # a stage that begins while the bar is drawn has a total and no share
            return Text(elapsed)
        left = duration(round(elapsed_s * (1 - share) / share))
        return Text(f"{share * PERCENT:.0f} %, {number(share / elapsed_s * PERCENT, 2)} %/s, {elapsed}, {left} left")


def show_progress(things: Sequence[Thing], what: str) -> Iterable[Thing]:
    """Go through the things with a bar that says what is done."""
    with ProgressBar() as bar:
        for done, thing in enumerate(things):
            bar(what, done / len(things))
            yield thing
