"""The lines of Prometheus text that hold values of DCGM fields, whatever else stands between them."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from loadfactor.errors import SourceError
from loadfactor.sources.base import Input
from loadfactor.sources.dcgm.series_identity import TOTAL, SeriesIdentity, parse_series
from loadfactor.sources.dcgm.values import parse_value
from loadfactor.sources.parsing.file_names import strip_endings
from loadfactor.sources.parsing.gaps import Gaps
from loadfactor.sources.parsing.text_blocks import EmptyInputError, split_blocks
from loadfactor.sources.parsing.times.stamps import EPOCH_MS_DIGITS, parse_epoch_ms

_CACHE_MAX: Final = 100_000
_WHOLE: Final = re.compile(r"\.\d{6}")  # how the exporter ends a fraction: nothing of it is missing
_HEAD: Final = re.compile(r'[^{\s]*\s*\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}')  # a brace within quotes ends no labels
_OTHER: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*(?:\{.*\})?")  # a line of any exporter


class _ScrapeCount:
    """The scrape that a line without a time is of; its number goes up where another scrape begins."""

    def __init__(self) -> None:
        self.number = 0
        self._lines: set[int] = set()
        self._read: set[tuple[str, str | None, str | None]] = set()
        self._names: set[str] = set()
        self._name = ""  # of the line above

    def see_title(self, name: str) -> None:
        """A title: each field has but one in a scrape."""
        if name in self._names:
            self._next()

    def see_line(self, head: str, of: SeriesIdentity) -> None:
        """A scrape has each line once and the lines of a field in a row; whoever holds a GPU, and the labels, may change."""
        what = (of.name, of.gpu, of.instance)
        if hash(head) in self._lines or (of.name != self._name and what in self._read):
            self._next()
        self._lines.add(hash(head))
        self._name = of.name
        if of.field is not None and of.gpu is not None:
            self._read.add(what)
            self._names.add(of.name.removesuffix(TOTAL))

    def _next(self) -> None:
        self.number += 1
        self._lines.clear()
        self._read.clear()
        self._names.clear()


class MetricLine(NamedTuple):
    """One value of one series. `at_ms` is None where the line carries no time; `scrape` counts the scrapes of the input."""

    of: SeriesIdentity
    counts: bool
    value: float
    at_ms: int | None
    scrape: int
    line: int


def sort_by_time(inputs: Sequence[Input]) -> Sequence[Input]:
    """Inputs by the first time in them, however rotation named them; those without times before, as they were named."""
    return sorted(inputs, key=_find_first_ms) if len(inputs) > 1 else inputs


def read_metric_lines(source: Input, node: str | None, gaps: Gaps, alone: bool = True) -> Iterator[MetricLine]:
    """The values of DCGM fields that the tables keep, in the order of the text; all else is counted as gaps.

    SourceError when the text holds no DCGM field at all; one among others may be a scrape of a node that had no GPU just then,
    or of an exporter that did not answer.
    """
    reader = _LineReader(source, node, gaps)
    try:
        for block in split_blocks(source):
            lines = block.data.decode().split("\n")
            last = block.line + len(lines) - 1  # a line without an end; where the text ends with one this is empty
            for number, line in enumerate(lines, block.line):
                if line[:1] == "#":
                    reader.see_comment(line)
                elif line and not line.isspace():
                    value = reader.parse(line, number, number == last)
                    if value is not None:
                        yield value
    except EmptyInputError:
        if alone:
            raise
        gaps.add(source.label, "empty file")
        return
    if not reader.found and not reader.unknown and not alone:
        gaps.add(source.label, "scrape without a GPU")
    elif not reader.found:
        raise SourceError(
            f"{source.label}: no DCGM fields in it; save the exporter's answer, for example "
            "curl http://NODE:9400/metrics > dcgm.prom"
        )


class _LineReader:
    """Parses the lines of one text. `found`: one is of a DCGM field; `unknown`: one is no exposition at all."""

    def __init__(self, source: Input, node: str | None, gaps: Gaps) -> None:
        self.found = self.unknown = False
        self._label, self._gaps = source.label, gaps
        self._node, self._machine = node, strip_endings(source.name or source.label)
        self._heads: dict[str, SeriesIdentity | None] = {}
        self._counters: set[str] = set()
        self._scrapes = _ScrapeCount()
        self._timed = False

    def see_comment(self, line: str) -> None:
        """A title begins a field, and says whether it is a counter."""
        words = line.split(maxsplit=3)
        if words[1:2] in (["TYPE"], ["HELP"]) and len(words) > 2:
            self._scrapes.see_title(words[2])
        if words[1:2] == ["TYPE"] and len(words) == 4:
            (self._counters.add if words[3].strip() == "counter" else self._counters.discard)(words[2])

    def parse(self, line: str, number: int, last: bool) -> MetricLine | None:
        """The value in this line, or None; `last` where the line has no end."""
        cut = _find_head_end(line)
        head, rest = line[:cut], line[cut:].partition("#")[0].split()  # behind the mark stands an exemplar
        of = self._identify(head)
        if of is None or not 1 <= len(rest) <= 2:
            self.unknown = self.unknown or not (rest and _OTHER.fullmatch(head) and _is_number(rest[0]))
            self._skip("skipped: not a DCGM metric")
            return None
        self.found = True
        if len(rest) == 1:
            self._scrapes.see_line(head, of)
        else:
            self._timed = True
        if of.field is None:
            self._skip("skipped: a DCGM field that is not kept")
            return None
        if of.gpu is None:
            self._skip("skipped: a value that does not say of which GPU it is")
            return None
        if last:  # saved scrapes often lack the last line end; logs are cut
            self._skip("last line without an end: it may be cut off")
            if len(rest[1]) != EPOCH_MS_DIGITS if len(rest) == 2 else self._timed or not _WHOLE.search(rest[0][-7:]):
                return None
        value = parse_value(rest[0], of.field)
        if isinstance(value, str):
            self._skip(f"{value} in {of.name}")
            return None
        at_ms = parse_epoch_ms(rest[1]) if len(rest) == 2 else None
        if len(rest) == 2 and at_ms is None:
            self._skip("skipped: a value with an unreadable time")
            return None
        counts = of.field.counts or (of.field.either and (of.name in self._counters or of.name.endswith(TOTAL)))
        return MetricLine(of, counts, value, at_ms, self._scrapes.number, number)

    def _identify(self, head: str) -> SeriesIdentity | None:
        if head not in self._heads:
            if len(self._heads) >= _CACHE_MAX:
                self._heads.clear()
            self._heads[head] = parse_series(head, self._node, self._machine) if head else None
        return self._heads[head]

    def _skip(self, what: str) -> None:
        self._gaps.add(self._label, what)


def _find_first_ms(source: Input) -> int:
    """The first time in a text, 0 when its first lines have none; what is wrong with it is said when it is read."""
    try:
        for block in split_blocks(source, 1):
            for line in block.data.decode().split("\n"):
                rest = line[_find_head_end(line) :].partition("#")[0].split() if line[:1] != "#" else []
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


def _find_head_end(line: str) -> int:
    """Where name and labels of a line end and its value begins; 0 when nothing does.

    >>> _find_head_end('a{b="}"} 1 # {c="d"} 2'), _find_head_end("a 1"), _find_head_end("a{b}} 1")
    (8, 1, 4)
    """
    last = line.rfind("}") + 1
    if not last:
        return max(0, line.find(" "))
    if "#" not in line and line.count("}") == 1:
        return last
    found = _HEAD.match(line)
    return found.end() if found is not None else last
