"""Lanes of those that are asked: servers that do not answer wait among themselves, so that no other waits for them."""

import asyncio
from typing import Final

from loadfactor.collect.http_connection import NameLookups

MOST_ANSWERING: Final = 500
MOST_DOUBTFUL: Final = 500
"""So many servers are asked at once: of those that answered last, and of those that did not or were never asked."""
MOST_LONG: Final = 4
"""So many of a lane receive a long answer at once."""


class Lane:
    """Turns to ask, and among those that have one, to look a name up and to receive a long answer."""

    def __init__(self, most: int = 1) -> None:
        self.turns = asyncio.Semaphore(most)
        self.long_turns = asyncio.Semaphore(MOST_LONG)
        self.lookups = NameLookups()


class Lanes:
    """The lanes that everything that is asked shares."""

    def __init__(self) -> None:
        self._answering = Lane(MOST_ANSWERING)
        self._doubtful = Lane(MOST_DOUBTFUL)

    def choose(self, answers: bool) -> Lane:
        """The lane of a server that answered when it was asked last, or of one that did not."""
        return self._answering if answers else self._doubtful
