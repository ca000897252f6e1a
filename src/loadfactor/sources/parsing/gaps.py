"""How often was something there that is no measurement? One count per file and kind, however many lines there are."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from loadfactor.sources.base import Gap

_KINDS_MAX: Final = 200  # a file of garbage must not make a list as long as itself


class Gaps:
    """Counts gaps; `each` hands them over and starts again."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, where: Path, what: str, count: int = 1) -> None:
        """`count` more of this kind; nothing when it is 0."""
        if count:
            key = (str(where), what)
            if key not in self._counts and len(self._counts) >= _KINDS_MAX:
                key = (str(where), "of other kinds")
            self._counts[key] += int(count)

    def each(self) -> Iterator[Gap]:
        """Every kind once, in the order first seen."""
        counts, self._counts = self._counts, Counter()
        for (where, what), count in counts.items():
            yield Gap(where, what, count)
