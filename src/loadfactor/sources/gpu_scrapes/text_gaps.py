"""Gaps of many texts: how many kinds of one are told apart does not depend on how many others are read with it."""

from collections.abc import Iterator

from loadfactor.sources.base import Gap
from loadfactor.sources.parsing.gaps import Gaps


class TextGaps:
    """Counts gaps by text; `take` hands them over and starts again."""

    def __init__(self) -> None:
        self._of: dict[str, Gaps] = {}

    def add(self, where: str, what: str, count: int = 1) -> None:
        """`count` more of this kind."""
        self._of.setdefault(where, Gaps()).add(where, what, count)

    def take(self) -> Iterator[Gap]:
        """Every kind of every text once."""
        of, self._of = self._of, {}
        for gaps in of.values():
            yield from gaps.take()
