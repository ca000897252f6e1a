"""The instant of each row of a log: local times of nvidia-smi, or times that carry their zone, in ms since 1970 UTC."""

from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.units import NS_PER_MS
from loadfactor.sources.nvidia_smi.cells import Cells
from loadfactor.sources.parsing.gaps import Gaps
from loadfactor.sources.parsing.times.local_clock import LocalClock
from loadfactor.sources.parsing.times.stamps import parse_slashed_ms, parse_stamp

MISSING: Final = np.iinfo(np.int64).min


@dataclass(frozen=True)
class WrittenTimes:
    """The column of times of a part of a log: ms since 1970, MISSING where a row has none, and in which ways they are written."""

    name: str
    at_ms: NDArray[np.int64]  # of UTC where the zone is written, else of the local clock
    zoned: frozenset[bool]


def parse_times(cells: Cells) -> WrittenTimes:
    """The times in a column of text."""
    slashed = parse_slashed_ms(cells.texts)
    if slashed is not None:
        return WrittenTimes(cells.name, slashed.to_numpy(zero_copy_only=False)[cells.codes], frozenset((False,)))
    stamps = [parse_stamp(text) for text in cells.distinct()]
    distinct_ms = np.array([MISSING if s is None else s.at_ns // NS_PER_MS for s in stamps], dtype=np.int64)
    return WrittenTimes(cells.name, distinct_ms[cells.codes], frozenset(s.zoned for s in stamps if s is not None))


class Timestamps:
    """The times of one log: all local, or all with their zone."""

    def __init__(self, label: str, zone: tzinfo | None, gaps: Gaps) -> None:
        self._label, self._gaps = label, gaps
        self._clock = LocalClock(zone) if zone is not None else None
        self._utc: bool | None = None

    def place(self, written: WrittenTimes, line: int) -> NDArray[np.int64]:
        """The instant of every row, MISSING where it has none."""
        kinds = set(written.zoned) if self._utc is None else {*written.zoned, self._utc}
        if len(kinds) == 2:
            raise SourceError(
                f"{self._label}, near line {line}: times with and without a zone are mixed; split the file or write one kind"
            )
        found = written.at_ms.copy()
        readable = found != MISSING
        self._gaps.add(self._label, f"row without a readable time in {written.name}", int((~readable).sum()))
        if kinds == {False}:
            self._utc = False
            if self._clock is None:
                raise SourceError(
                    f"{self._label}: its times are local times without a zone; say which with --timezone, "
                    "for example --timezone Europe/Berlin"
                )
            utc, exists = self._clock.convert(found[readable])
            self._gaps.add(
                self._label, "row at a local time that does not exist (clock set forward)", int((~exists).sum())
            )
            self._gaps.add(self._label, "row in a repeated hour, taken for its first pass", self._clock.guessed)
            self._clock.guessed = 0
            found[readable] = np.where(exists, utc, MISSING)
        elif kinds:
            self._utc = True
        return found
