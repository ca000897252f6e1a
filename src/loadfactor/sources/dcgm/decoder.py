"""Decoder of dcgm-exporter's text: lines into scrapes, scrapes in the order of time into rows."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final

import numpy as np

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.dcgm.known_series import SERIES_MAX, KnownSeries
from loadfactor.sources.dcgm.metric_lines import LineBatch, LineReader, find_values, sort_by_time
from loadfactor.sources.dcgm.scrape_order import ScrapeOrder, follow_lines
from loadfactor.sources.dcgm.scrape_window import ScrapeWindow, WindowSteps, date_values
from loadfactor.sources.gpu_scrapes.device_events import DeviceEvents
from loadfactor.sources.gpu_scrapes.fields import FieldValues, join_values
from loadfactor.sources.gpu_scrapes.known_devices import Numbering
from loadfactor.sources.gpu_scrapes.scrape_table import TextGaps, Timeline
from loadfactor.sources.gpu_scrapes.table_rows import ScrapeRows
from loadfactor.sources.parsing.text_blocks import EmptyInputError, split_blocks, strip_endings

COMPILE_FROM_BYTES: Final = 3 * BYTES_PER_MIB
"""From here on the order of lines is followed by compiled code; for less, loading Numba takes longer."""


@cache
def _compile_follow() -> Callable[..., None]:
    from loadfactor.base.compiled import entry  # loads Numba

    return entry(follow_lines)


class TextReader:
    """Reads one text after the other."""

    def __init__(self, known: KnownSeries, gaps: TextGaps) -> None:
        self._known, self._gaps = known, gaps
        self._order = ScrapeOrder()
        self._bytes = 0
        self._texts: Numbering[str] = Numbering()

    @property
    def texts(self) -> list[str]:
        """The labels of the texts read, by their numbers."""
        return self._texts.all

    def read(self, source: Input, alone: bool) -> Iterator[FieldValues]:
        """The values of DCGM fields that the tables keep, in the order of the text; all else is counted as gaps.

        SourceError when the text holds no DCGM field at all; one among others may be a scrape of a node that had no GPU just then,
        or of an exporter that did not answer.
        """
        self._known.begin(strip_endings(source.name or source.label))
        text = self._texts.number(source.label)
        self._order.begin(text)
        reader = LineReader(source.label, self._known, self._gaps)
        try:
            for block in split_blocks(source):
                self._bytes += len(block.data)
                yield self._follow(reader.read(block), text)
                if len(self._known) > SERIES_MAX:
                    self._order.forget_series(self._known)
        except EmptyInputError:
            if alone:
                raise
            self._gaps.add(source.label, "empty file")
            return
        if not reader.found and not reader.unknown and not alone:
            self._gaps.add(source.label, "scrape without a GPU")
        elif not reader.found:
            raise SourceError(
                f"{source.label}: no DCGM fields in it; save the exporter's answer, for example "
                "curl http://NODE:9400/metrics > dcgm.prom"
            )

    def _follow(self, batch: LineBatch, text: int) -> FieldValues:
        state = self._order.grow(self._known)
        is_total = np.zeros(len(batch.series), bool)
        before = np.empty(len(batch.series), np.int64)
        follow = _compile_follow() if self._bytes > COMPILE_FROM_BYTES else follow_lines
        follow(batch.series, batch.at_ms, batch.values, self._known.facts, state, is_total, before)
        return find_values(batch, self._known.facts, is_total, before, text)


VALUES_AT_ONCE: Final = 200_000


def decode_scrapes(scrapes: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The rows and gaps of these texts, in the order of the first times in them; scrapes without times come before.

    Raises SourceError naming the text: no DCGM field in it, no times and none given, lines far out of order.
    """
    if not scrapes:
        return
    alone, gaps, known = len(scrapes) == 1, TextGaps(), KnownSeries(options.node)
    reader = TextReader(known, gaps)
    where = scrapes[0].label if alone else f"{scrapes[0].label} …"
    decoding = _Decoding(options, where, known, gaps)
    waiting: list[FieldValues] = []
    try:
        for text in sort_by_time(scrapes):
            for readings in reader.read(text, alone):
                waiting.append(readings)
                if sum(map(len, waiting)) >= VALUES_AT_ONCE:
                    waiting, ready = [], waiting
                    yield from decoding.feed(ready, reader.texts)
                    yield from gaps.drain()
    except SourceError:
        yield from decoding.feed(waiting, reader.texts)  # what is wrong before it is reported first
        raise
    yield from decoding.feed(waiting, reader.texts)
    yield from decoding.end()
    yield from gaps.drain()


class _Decoding:
    def __init__(self, options: ReadOptions, where: str, known: KnownSeries, gaps: TextGaps) -> None:
        self._options, self._gaps = options, gaps
        self._window = ScrapeWindow(known, gaps)
        self._steps = WindowSteps(options.step_s)
        self._events = DeviceEvents(known, where, options.events_before)
        self._rows = ScrapeRows(options.pool, where, known, gaps)

    def feed(self, values: list[FieldValues], texts: list[str]) -> Iterator[Rows]:
        """Adds values; the rows of the older scrapes where so many are held that those are taken out."""
        if not values:
            return
        readings = self._events.feed(date_values(join_values(values), self._options, texts, self._gaps))
        while len(readings):
            readings = readings.pick(slice(self._window.feed(readings, texts), None))
            if self._window.full:
                yield from self._take(everything=False)

    def end(self) -> Iterator[Rows]:
        """The rows of all that is left, the allocations still open, and the devices."""
        yield from self._take(everything=True)
        yield from self._rows.make_allocations(self._rows.holders.list_open(self._rows.holders.open))
        yield from self._rows.make_devices(self._rows.gpus)

    def _take(self, everything: bool) -> Iterator[Rows]:
        complete = self._window.drain(everything)
        line = Timeline(complete.scrapes)
        self._steps.find_intervals(line, complete.times_ms)
        yield from self._rows.add(complete.scrapes, line)
        yield from self._events.drain(None if everything else self._window.done_ms)
