"""Decoder of dcgm-exporter's text: lines into scrapes, scrapes in the order of time into rows."""

from collections.abc import Iterator, Sequence
from typing import Final

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.dcgm.metric_lines import sort_by_time
from loadfactor.sources.dcgm.scrape_window import ScrapeWindow, WindowSteps, date_values
from loadfactor.sources.dcgm.text_reader import SeriesCache, TextReader
from loadfactor.sources.gpu_scrapes.device_events import DeviceEvents
from loadfactor.sources.gpu_scrapes.fields import FieldValues, join_values
from loadfactor.sources.gpu_scrapes.scrape_table import TextGaps, Timeline
from loadfactor.sources.gpu_scrapes.table_rows import ScrapeRows

__all__ = ["SeriesCache", "decode_scrapes"]
VALUES_AT_ONCE: Final = 200_000


def decode_scrapes(
    scrapes: Sequence[Input], options: ReadOptions, cache: SeriesCache | None = None
) -> Iterator[Rows | Gap]:
    """The rows and gaps of these texts, in the order of the first times in them; scrapes without times come before.

    `cache` remembers names and labels from one call to the next, where the same exporters are read again and again.
    Raises SourceError naming the text: no DCGM field in it, no times and none given, lines far out of order.
    """
    if not scrapes:
        return
    alone, gaps, cache = len(scrapes) == 1, TextGaps(), cache or SeriesCache()
    cache.begin()
    reader = TextReader(cache, options.node, gaps)
    where = scrapes[0].label if alone else f"{scrapes[0].label} …"
    decoding = _Decoding(options, where, cache, gaps)
    waiting: list[FieldValues] = []
    try:
        for text in sort_by_time(scrapes):
            for readings in reader.read(text, alone):
                waiting.append(readings)
                if sum(map(len, waiting)) >= VALUES_AT_ONCE:
                    waiting, ready = [], waiting
                    yield from decoding.put(ready, reader.texts)
                    yield from gaps.take()
    except SourceError:
        yield from decoding.put(waiting, reader.texts)  # what is wrong before it is said first
        raise
    yield from decoding.put(waiting, reader.texts)
    yield from decoding.end()
    yield from gaps.take()


class _Decoding:
    """Values into scrapes, and scrapes into rows, in the order of time."""

    def __init__(self, options: ReadOptions, where: str, cache: SeriesCache, gaps: TextGaps) -> None:
        known = cache.known
        self._options, self._gaps = options, gaps
        self._window = ScrapeWindow(known, gaps)
        self._steps = WindowSteps(options.step_s)
        self._events = DeviceEvents(known, where, options.events_before, cache.last)
        self._rows = ScrapeRows(options.pool, where, known, gaps)

    def put(self, values: list[FieldValues], texts: list[str]) -> Iterator[Rows]:
        """Adds values; the rows of the older scrapes where so many are held that those are taken out."""
        if not values:
            return
        readings = self._events.put(date_values(join_values(values), self._options, texts, self._gaps))
        while len(readings):
            readings = readings.pick(slice(self._window.put(readings, texts), None))
            if self._window.full:
                yield from self._take(everything=False)

    def end(self) -> Iterator[Rows]:
        """The rows of all that is left, the allocations still open, and the devices."""
        yield from self._take(everything=True)
        yield from self._rows.make_allocations(self._rows.holders.list_open(self._rows.holders.open))
        yield from self._rows.make_devices(self._rows.gpus)

    def _take(self, everything: bool) -> Iterator[Rows]:
        ripe = self._window.take(everything)
        line = Timeline(ripe.scrapes)
        self._steps.find_intervals(line, ripe.times_ms)
        yield from self._rows.add(ripe.scrapes, line)
        yield from self._events.take(None if everything else self._window.done_ms)
