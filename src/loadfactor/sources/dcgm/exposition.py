"""What readings does a file of Prometheus text hold? Line by line, whatever else stands between them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from loadfactor.errors import SourceError
from loadfactor.sources.dcgm.series import TOTAL, Series, series
from loadfactor.sources.dcgm.values import value
from loadfactor.sources.parsing.gaps import Gaps
from loadfactor.sources.parsing.lines import blocks, stem
from loadfactor.units import MS_PER_S

_CACHE_MAX: Final = 100_000
_SECONDS_BELOW: Final = 10**11  # a time smaller than this is in seconds (OpenMetrics), not in milliseconds
_MS_MAX: Final = 10**13
_DIGITS: Final = len(str(_MS_MAX)) - 1  # of a whole time in milliseconds
_WHOLE: Final = re.compile(r"\.\d{6}")  # how the exporter ends a fraction: nothing of it is missing
_HEAD: Final = re.compile(r'[^{\s]*\s*\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}')  # a brace within quotes ends no labels
_OTHER: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*(?:\{.*\})?")  # a reading of any exporter


class _Scrapes:
    """Which scrape of the file is a line without a time of? Its number goes up where another scrape begins."""

    def __init__(self) -> None:
        self.number = 0
        self._lines: set[int] = set()
        self._read: set[tuple[str, str | None, str | None]] = set()
        self._names: set[str] = set()
        self._name = ""  # of the line above

    def titled(self, name: str) -> None:
        """A title: each field has but one in a scrape."""
        if name in self._names:
            self._next()

    def line(self, head: str, of: Series) -> None:
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


class Reading(NamedTuple):
    """One value of one series. `at_ms` is None where the line carries no time; `scrape` counts the scrapes of the file."""

    of: Series
    counts: bool
    value: float
    at_ms: int | None
    scrape: int
    line: int


def in_order(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Files by the first time in them, however rotation named them; those without times before, as they were named."""
    return tuple(sorted(paths, key=_first_ms)) if len(paths) > 1 else paths


def readings(path: Path, node: str | None, gaps: Gaps, alone: bool = True) -> Iterator[Reading]:
    """The readings of DCGM fields that the books keep, in the order of the file; all else is counted as gaps.

    SourceError when the file holds no DCGM field at all; one among others may be a scrape of a node that had no GPU just then,
    or of an exporter that did not answer.
    """
    if not alone and path.exists() and path.stat().st_size == 0:
        gaps.add(path, "empty file")
        return
    heads: dict[str, Series | None] = {}
    counters: set[str] = set()
    scrapes, found, timed, other = _Scrapes(), False, False, False
    for block in blocks(path):
        lines = block.data.decode().split("\n")
        for number, line in enumerate(lines, block.line):
            if not line or line.isspace():
                continue
            if line[0] == "#":
                words = line.split(maxsplit=3)
                if words[1:2] in (["TYPE"], ["HELP"]) and len(words) > 2:
                    scrapes.titled(words[2])
                if words[1:2] == ["TYPE"] and len(words) == 4:
                    (counters.add if words[3].strip() == "counter" else counters.discard)(words[2])
                continue
            cut = _head_end(line)
            head, rest = line[:cut], line[cut:].partition("#")[0].split()  # behind the mark stands an exemplar
            if head not in heads:
                if len(heads) >= _CACHE_MAX:
                    heads.clear()
                heads[head] = series(head, node, stem(path)) if cut > 0 else None
            of = heads[head]
            if of is None or not 1 <= len(rest) <= 2:
                gaps.add(path, "line that is no reading of DCGM")
                other = other or not (rest and _OTHER.fullmatch(head) and _is_number(rest[0]))
                continue
            found = True
            if len(rest) == 1:
                scrapes.line(head, of)
            else:
                timed = True
            if of.field is None:
                gaps.add(path, "reading of a field that the books do not keep")
                continue
            if of.gpu is None:
                gaps.add(path, "reading that does not say of which GPU it is")
                continue
            if number == block.line + len(lines) - 1:  # saved scrapes often lack the last line end; logs are cut
                gaps.add(path, "last line without an end: it may be cut off")
                if len(rest[1]) != _DIGITS if len(rest) == 2 else timed or not _WHOLE.search(rest[0][-7:]):
                    continue
            amount = value(rest[0], of.field)
            if isinstance(amount, str):
                gaps.add(path, f"{amount} in {of.name}")
                continue
            at_ms = _time(rest[1]) if len(rest) == 2 else None
            if len(rest) == 2 and at_ms is None:
                gaps.add(path, "reading with an unreadable time")
                continue
            counts = of.field.counts or (of.field.either and (of.name in counters or of.name.endswith(TOTAL)))
            yield Reading(of, counts, amount, at_ms, scrapes.number, number)
    if not found and not other and not alone:
        gaps.add(path, "scrape without a GPU")
    elif not found:
        raise SourceError(
            f"{path}: no DCGM fields in it; save the exporter's answer, for example curl http://NODE:9400/metrics > dcgm.prom"
        )


def _first_ms(path: Path) -> int:
    """The first time in a file, 0 when its first lines have none; what is wrong with it is said when it is read."""
    try:
        for block in blocks(path, 1):
            for line in block.data.decode().split("\n"):
                rest = line[_head_end(line) :].partition("#")[0].split() if line[:1] != "#" else []
                if rest:
                    return (_time(rest[1]) or 0) if len(rest) == 2 else 0
    except SourceError:
        pass
    return 0


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _head_end(line: str) -> int:
    """Where name and labels of a line end and its value begins; 0 when nothing does.

    >>> _head_end('a{b="}"} 1 # {c="d"} 2'), _head_end("a 1"), _head_end("a{b}} 1")
    (8, 1, 4)
    """
    last = line.rfind("}") + 1
    if not last:
        return max(0, line.find(" "))
    if "#" not in line and line.count("}") == 1:
        return last
    found = _HEAD.match(line)
    return found.end() if found is not None else last


def _time(text: str) -> int | None:
    """Milliseconds since 1970 of a time at the end of a line, or None.

    >>> _time("1700000000123"), _time("1700000000.5"), _time("soon")
    (1700000000123, 1700000000500, None)
    """
    try:
        at = int(text) if text.isdigit() else float(text)
    except ValueError:
        return None
    if not 0 <= at < _MS_MAX:  # also when it is NaN
        return None
    return int(at) if at >= _SECONDS_BELOW else round(at * MS_PER_S)
