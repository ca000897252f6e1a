"""What readings does a file of Prometheus text hold? Line by line, whatever else stands between them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from loadfactor.errors import SourceError
from loadfactor.sources.dcgm.series import Series, series
from loadfactor.sources.dcgm.values import value
from loadfactor.sources.gaps import Gaps
from loadfactor.sources.lines import blocks, stem
from loadfactor.units import MS_PER_S

_CACHE_MAX: Final = 100_000
_SECONDS_BELOW: Final = 10**11  # a time smaller than this is in seconds (OpenMetrics), not in milliseconds
_MS_MAX: Final = 10**13
_DIGITS: Final = len(str(_MS_MAX)) - 1  # of a whole time in milliseconds


class Reading(NamedTuple):
    """One value of one series. `at_ms` is None where the line carries no time; `scrape` counts the scrapes of the file."""

    of: Series
    counts: bool
    value: float
    at_ms: int | None
    scrape: int
    line: int


def readings(path: Path, node: str | None, gaps: Gaps) -> Iterator[Reading]:
    """The readings of DCGM fields that the books keep, in the order of the file; all else is counted as gaps.

    SourceError when the file holds no DCGM field at all.
    """
    heads: dict[str, Series | None] = {}
    counters: set[str] = set()
    seen: set[int] = set()
    scrape, found = 0, False
    for block in blocks(path):
        lines = block.data.decode().split("\n")
        for number, line in enumerate(lines, block.line):
            if not line or line.isspace():
                continue
            if line[0] == "#":
                words = line.split()
                if words[1:2] == ["TYPE"] and len(words) == 4:
                    (counters.add if words[3] == "counter" else counters.discard)(words[2])
                continue
            cut = line.rfind("}") + 1 or line.find(" ")
            head, rest = line[:cut], line[cut:].split()
            if head not in heads:
                if len(heads) >= _CACHE_MAX:
                    heads.clear()
                heads[head] = series(head, node, stem(path)) if cut > 0 else None
            of = heads[head]
            if of is None or not 1 <= len(rest) <= 2:
                gaps.add(path, "line that is no reading of DCGM")
                continue
            found = True
            if len(rest) == 1:  # without times a scrape ends where a series comes again
                if hash(head) in seen:
                    seen.clear()
                    scrape += 1
                seen.add(hash(head))
            if of.field is None:
                gaps.add(path, "reading of a field that the books do not keep")
                continue
            if of.gpu is None:
                gaps.add(path, "reading that does not say of which GPU it is")
                continue
            if number == block.line + len(lines) - 1:  # saved scrapes often lack the last line end; logs are cut
                gaps.add(path, "last line without an end: it may be cut off")
                if len(rest) == 2 and len(rest[1]) != _DIGITS:
                    continue
            amount = value(rest[0], of.field)
            if isinstance(amount, str):
                gaps.add(path, f"{amount} in {of.name}")
                continue
            at_ms = _time(rest[1]) if len(rest) == 2 else None
            if len(rest) == 2 and at_ms is None:
                gaps.add(path, "reading with an unreadable time")
                continue
            counts = of.field.counts or (of.field.either and of.name in counters)
            yield Reading(of, counts, amount, at_ms, scrape, number)
    if not found:
        raise SourceError(
            f"{path}: no DCGM fields in it; save the exporter's answer, for example curl http://NODE:9400/metrics > dcgm.prom"
        )


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
