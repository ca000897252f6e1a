"""The careful reader of lines: it says what every line of Prometheus text means, whatever stands there, one at a time."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Input
from loadfactor.sources.dcgm.fields import BY_KEY, parse_value
from loadfactor.sources.dcgm.known_series import (
    FOREIGN,
    GPU,
    HOLDERS,
    KEY,
    KIND,
    LABELS,
    NAME,
    NOWHERE,
    PLACE,
    UNKEPT,
    VALUE,
    KnownSeries,
)
from loadfactor.sources.gpu_scrapes.fields import READ_KEYS, UNTIMED, FieldValues
from loadfactor.sources.gpu_scrapes.scrape_table import TextGaps
from loadfactor.sources.parsing.text_blocks import TextBlock, split_blocks
from loadfactor.sources.parsing.times import EPOCH_MS_DIGITS, parse_epoch_ms


@dataclass(frozen=True)
class LineBatch:
    """Lines as they were read. `at_ms` is UNTIMED and `values` NaN where a line has none; `series` as in KnownSeries."""

    series: NDArray[np.int32]
    values: NDArray[np.float64]  # in our units
    at_ms: NDArray[np.int64]
    lines: NDArray[np.int64]


def find_values(
    batch: LineBatch, facts: NDArray[np.int32], is_total: NDArray[np.bool_], before: NDArray[np.int64], text: int
) -> FieldValues:
    """The lines of a batch that hold values."""
    at = np.flatnonzero((facts[batch.series, KIND] == VALUE) & ~np.isnan(batch.values))
    of = facts[batch.series[at]]
    return FieldValues(
        of[:, PLACE],
        of[:, GPU],
        of[:, KEY],
        of[:, LABELS],
        of[:, HOLDERS],
        of[:, NAME],
        is_total[at],
        batch.values[at],
        batch.at_ms[at],
        before[at],
        batch.lines[at],
        np.full(len(at), text, np.int32),
    )


_WHOLE: Final = re.compile(r"\.\d{6}")  # how the exporter ends a fraction: nothing of it is missing
_HEAD: Final = re.compile(r'[^{\s]*\s*\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}')  # a brace within quotes ends no labels
_OTHER: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*(?:\{.*\})?")  # a line of any exporter
SKIPPED: Final = {
    FOREIGN: "skipped: not a DCGM metric",
    UNKEPT: "skipped: a DCGM field that is not kept",
    NOWHERE: "skipped: a value that does not say of which GPU it is",
}


class MetricLine(NamedTuple):
    """A title, or a value of a series; the time is UNTIMED where the line has none, the value NaN where it has none."""

    series: int
    value: float
    at_ms: int


def sort_by_time(inputs: Sequence[Input]) -> Sequence[Input]:
    """Inputs by the first time in them, however rotation named them; those without times before, as they were named."""
    return sorted(inputs, key=_find_first_ms) if len(inputs) > 1 else inputs


class LineReader:
    """Parses the lines of one text. `found`: one is of a DCGM field; `unknown`: one is no exposition at all; `timed`: one has a
    time.
    """

    def __init__(self, label: str, known: KnownSeries, gaps: TextGaps) -> None:
        self.found = self.unknown = self.timed = False
        self._label, self._known, self._gaps = label, known, gaps

    def read(self, block: TextBlock) -> LineBatch:
        """The lines of a block that say something."""
        lines = block.data.decode().split("\n")
        last = block.line + len(lines) - 1  # a line without an end; where the text ends with one this is empty
        found, numbers = [], []
        for number, line in enumerate(lines, block.line):
            parsed = self.parse(line, number == last)
            if parsed is not None:
                found.append(parsed)
                numbers.append(number)
        series, values, at_ms = zip(*found, strict=True) if found else ((), (), ())
        return LineBatch(
            np.array(series, np.int32),
            np.array(values, np.float64),
            np.array(at_ms, np.int64),
            np.array(numbers, np.int64),
        )

    def parse(self, line: str, last: bool) -> MetricLine | None:
        """What this line says, or None; `last` where it has no end."""
        if line[:1] == "#":
            return MetricLine(self._known.identify(line), math.nan, UNTIMED)
        if not line or line.isspace():
            return None
        cut = find_head_end(line)
        head, rest = line[:cut], line[cut:].partition("#")[0].split()  # behind the mark stands an exemplar
        series = self._known.identify(head)
        facts = self._known.facts[series]
        kind = int(facts[KIND])
        if kind == FOREIGN or not 1 <= len(rest) <= 2:
            self.unknown = self.unknown or not (rest and is_name(head) and _is_number(rest[0]))
            self.skip(SKIPPED[FOREIGN])
            return None
        self.found = True
        self.timed = self.timed or len(rest) == 2
        nothing = MetricLine(series, math.nan, UNTIMED if len(rest) == 1 else 0)
        if kind in SKIPPED:
            self.skip(SKIPPED[kind])
            return nothing
        if last:  # saved scrapes often lack the last line end; logs are cut
            self.skip("last line without an end: it may be cut off")
            if len(rest[1]) != EPOCH_MS_DIGITS if len(rest) == 2 else self.timed or not _WHOLE.search(rest[0][-7:]):
                return nothing
        value = parse_value(rest[0], BY_KEY[READ_KEYS[facts[KEY]]])
        if isinstance(value, str):
            self.skip(f"{value} in {self._known.names.all[facts[NAME]]}")
            return nothing
        if len(rest) == 1:
            return MetricLine(series, value, UNTIMED)
        at_ms = parse_epoch_ms(rest[1])
        if at_ms is None:
            self.skip("skipped: a value with an unreadable time")
            return nothing
        return MetricLine(series, value, at_ms)

    def skip(self, what: str, count: int = 1) -> None:
        """So many lines are no measurement."""
        self._gaps.add(self._label, what, count)


def is_name(head: str) -> bool:
    """True when this is the name, with labels or without, of a metric of any exporter."""
    return _OTHER.fullmatch(head) is not None


def _find_first_ms(source: Input) -> int:
    """The first time in a text, 0 when its first lines have none; what is wrong with it is said when it is read."""
    try:
        for block in split_blocks(source, 1):
            for line in block.data.decode().split("\n"):
                rest = line[find_head_end(line) :].partition("#")[0].split() if line[:1] != "#" else []
                if rest:
                    return (parse_epoch_ms(rest[1]) or 0) if len(rest) == 2 else 0
    except SourceError:
        pass
    return 0


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def find_head_end(line: str) -> int:
    """Where name and labels of a line end and its value begins; 0 when nothing does.

    >>> find_head_end('a{b="}"} 1 # {c="d"} 2'), find_head_end("a 1"), find_head_end("a{b}} 1")
    (8, 1, 4)
    """
    last = line.rfind("}") + 1
    if not last:
        return max(0, line.find(" "))
    if "#" not in line and line.count("}") == 1:
        return last
    found = _HEAD.match(line)
    return found.end() if found is not None else last
