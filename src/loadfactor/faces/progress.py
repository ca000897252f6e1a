"""Progress through a list of things that take a while, on standard error and only where a person looks at it."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track

Thing = TypeVar("Thing")


def show_progress(things: Sequence[Thing], what: str) -> Iterable[Thing]:
    """Go through the things with a bar that says what is done."""
    screen = Console(stderr=True)
    return track(things, what, console=screen, transient=True, disable=not screen.is_terminal)
