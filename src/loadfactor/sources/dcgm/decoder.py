"""Decoder of dcgm-exporter's text: lines into scrapes, scrapes in the order of time into rows."""

from collections.abc import Iterator, Sequence
from typing import Final

from loadfactor.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.dcgm.line_values import LineValues, join_values
from loadfactor.sources.dcgm.metric_lines import sort_by_time
from loadfactor.sources.dcgm.scrape_window import ScrapeWindow, date_values
from loadfactor.sources.dcgm.table_rows import DEFAULT_STEP_S, DcgmRows
from loadfactor.sources.dcgm.text_gaps import TextGaps
from loadfactor.sources.dcgm.text_reader import SeriesCache, TextReader

__all__ = ["DEFAULT_STEP_S", "SeriesCache", "decode_scrapes"]

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
    rows = DcgmRows(options, scrapes[0].label if alone else f"{scrapes[0].label} …", cache.known, gaps)
    window = ScrapeWindow(cache.known, gaps)
    waiting: list[LineValues] = []
    try:
        for text in sort_by_time(scrapes):
            for readings in reader.read(text, alone):
                waiting.append(readings)
                if sum(map(len, waiting)) >= VALUES_AT_ONCE:
                    waiting, ready = [], waiting
                    yield from _put(ready, window, rows, options, reader.texts, gaps)
                    yield from gaps.take()
    except SourceError:
        yield from _put(waiting, window, rows, options, reader.texts, gaps)  # what is wrong before it is said first
        raise
    yield from _put(waiting, window, rows, options, reader.texts, gaps)
    yield from rows.add(window.take(everything=True))
    yield from rows.end()
    yield from gaps.take()


def _put(
    waiting: list[LineValues],
    window: ScrapeWindow,
    rows: DcgmRows,
    options: ReadOptions,
    texts: list[str],
    gaps: TextGaps,
) -> Iterator[Rows]:
    if not waiting:
        return
    readings = date_values(join_values(waiting), options, texts, gaps)
    while len(readings):
        readings = readings.pick(slice(window.put(readings, texts), None))
        if window.full:
            yield from rows.add(window.take(everything=False))
