"""What was left out or assumed, counted by kind, with the line where it came first."""

from collections.abc import Iterator

from loadfactor.sources.base import Gap


class Notes:
    """Notes of one import; `make_gaps` hands them over and starts again."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._lines: dict[tuple[str, str], int] = {}

    def add(self, label: str, what: str, count: int = 1, line: int | None = None) -> None:
        """`count` more of this kind, the first of them in `line`; nothing when it is 0."""
        if count:
            self._counts[label, what] = self._counts.get((label, what), 0) + int(count)
            if line is not None:
                self._lines.setdefault((label, what), int(line))

    def make_gaps(self) -> Iterator[Gap]:
        """Every kind once."""
        counts, self._counts = self._counts, {}
        lines, self._lines = self._lines, {}
        for (label, what), count in counts.items():
            line = lines.get((label, what))
            yield Gap(label, what if line is None else f"{what} (first in line {line})", count)
