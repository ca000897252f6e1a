"""Decoder of dcgm-exporter's text: lines into scrapes, scrapes in the order of time into rows."""

from collections.abc import Iterator, Sequence

from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.dcgm.metric_lines import read_metric_lines, sort_by_time
from loadfactor.sources.dcgm.scrape_window import ScrapeWindow
from loadfactor.sources.dcgm.table_rows import DEFAULT_STEP_S, DcgmRows
from loadfactor.sources.parsing.gaps import Gaps

__all__ = ["DEFAULT_STEP_S", "decode_scrapes"]


def decode_scrapes(scrapes: Sequence[Input], options: ReadOptions) -> Iterator[Rows | Gap]:
    """The rows and gaps of these texts, in the order of the first times in them; scrapes without times come before.

    Raises SourceError naming the text: no DCGM field in it, no times and none given, lines far out of order.
    """
    if not scrapes:
        return
    gaps, alone = Gaps(), len(scrapes) == 1
    window = ScrapeWindow(options, gaps)
    rows = DcgmRows(options, scrapes[0].label if alone else f"{scrapes[0].label} …", gaps)
    for text in sort_by_time(scrapes):
        for line in read_metric_lines(text, options.node, gaps, alone):
            window.put(text.label, line)
            if window.full:
                yield from _take(window, rows, everything=False)
        yield from gaps.take()
    yield from _take(window, rows, everything=True)
    yield from rows.end()
    yield from gaps.take()


def _take(window: ScrapeWindow, rows: DcgmRows, everything: bool) -> Iterator[Rows]:
    times_ms = {gpu: window.times(gpu) for gpu in window.gpus}
    for gpu, scrapes in window.take(everything):
        yield from rows.add(gpu, scrapes, times_ms[gpu])
