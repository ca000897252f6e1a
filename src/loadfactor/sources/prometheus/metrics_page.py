"""Pages of metrics as exporters serve them (Prometheus text, one scrape each) as points: what Prometheus does before it stores.

The lines are cut and their labels read as `sources/dcgm` does; what a series means is the decoder's to say. A page repeats the
names and labels of the page before it, so a series is looked at once and afterwards costs the look-up of a text.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.sources.base import Skip
from loadfactor.sources.dcgm.known_series import find_field
from loadfactor.sources.parsing.exposition import TOTAL, find_head_end, list_labels, read_sample, split_head
from loadfactor.sources.prometheus.remote_write import NOT_UNDERSTOOD, Points

_EXAMPLE: Final = 120
"""So many characters of a line that cannot be kept are shown."""
KNOWN_MAX: Final = 500_000
"""So many names with labels are remembered at most; then all are forgotten, and remembered again as they come."""
_AS_TITLED: Final = -2
_BROKEN: Final = -3
_COUNTER: Final = " counter"
TargetLabels = tuple[tuple[str, str], ...]
"""Labels of the exporter that was scraped; those that it writes itself come first."""
Identify = Callable[[dict[str, str]], int]


class PageReader:
    """Reads pages of many exporters, one after the other; not for several threads at once."""

    def __init__(self, identify: Identify, skip: Callable[[Skip], object]) -> None:
        """`identify` gives the number of a series or NOT_UNDERSTOOD; lines that cannot be kept are given to `skip`."""
        self._identify = identify
        self._skip = skip
        self._known: dict[TargetLabels, dict[str, int]] = {}
        self._size = 0

    def read(self, page: bytes, target: TargetLabels, at_ms: int) -> Points:
        """The points of a page that was scraped at `at_ms` (ms UTC); a line with a time of its own keeps it.

        Lines that cannot be read are left out and counted. Raises SourceError, of one line, for what is no page, or half of one.
        """
        if self._size > KNOWN_MAX:
            self._known, self._size = {}, 0
        known = self._known.setdefault(target, {})
        series: list[int] = []
        values: list[float] = []
        times: list[int] = []
        counter, example, lines, broken = "", "", 0, 0
        for line in _list_lines(page):
            if line[:1] == "#":
                if line.startswith("# TYPE "):
                    counter = line.split()[2] if line.endswith(_COUNTER) else ""
                continue
            lines += 1
            cut = find_head_end(line)
            head = line[:cut]
            number = known.get(head)
            if number is None:
                number = known[head] = self._learn(head, target)
                self._size += 1
            if number == _AS_TITLED:
                number = self._learn_titled(known, head, target, counter)
            if number == NOT_UNDERSTOOD:
                continue
            sample = read_sample(line[cut:]) if number != _BROKEN else None
            sampled_ms = at_ms if sample is None or sample[1] is None else sample[1]
            if sample is None:
                broken += 1
                example = line
                continue
            if not EARLIEST_MS <= sampled_ms <= LATEST_MS:
                self._skip(Skip("no_instant", head[:_EXAMPLE], 1, is_read=True))
                continue
            series.append(number)
            values.append(sample[0])
            times.append(sampled_ms)
        if lines and broken == lines:
            raise SourceError("its answer is no page of metrics; is it the address of an exporter?")
        if broken:
            self._skip(Skip("unreadable", example[:_EXAMPLE], broken, is_read=True))
        return Points(np.array(series, np.int32), np.array(times, np.int64), np.array(values, np.float64))

    def _learn(self, head: str, target: TargetLabels) -> int:
        parts = split_head(head)
        if parts is None:
            return _BROKEN
        name, labels = parts
        if (field := find_field(name)) is not None and field.either:
            return _AS_TITLED
        return self._identify({**dict(target), **list_labels(labels), "__name__": name})

    def _learn_titled(self, known: dict[str, int], head: str, target: TargetLabels, counter: str) -> int:
        """The number of a series that is a rate or a total under one name, as this page says (dcgm-exporter has both)."""
        name, _, labels = head.partition("{")
        name = name.strip()
        is_total = name.endswith(TOTAL) or name == counter
        base = name.removesuffix(TOTAL) + (TOTAL.upper() if is_total else "")
        titled = f"{base} {{{labels}"  # with a space, which the heads of no line have
        number = known.get(titled)
        if number is None:
            own = list_labels(labels.rpartition("}")[0])
            number = known[titled] = self._identify({**dict(target), **own, "__name__": base})
            self._size += 1
        return number


def list_series(page: bytes, target: TargetLabels) -> Iterator[dict[str, str]]:
    """The labels of each series of a page, its name under `__name__`. Raises SourceError where it is half a page."""
    for line in _list_lines(page):
        parts = split_head(line[: find_head_end(line)]) if line[:1] != "#" else None
        if parts is not None:
            yield {**dict(target), **list_labels(parts[1]), "__name__": parts[0]}


def _list_lines(page: bytes) -> list[str]:
    """The lines that are not empty. Raises SourceError where the last one has no end: the rest is missing."""
    if page and not page.endswith(b"\n"):
        raise SourceError("its page ends in the middle of a line")
    return [line for line in page.decode("utf-8", "replace").replace("\r\n", "\n").split("\n") if line]
