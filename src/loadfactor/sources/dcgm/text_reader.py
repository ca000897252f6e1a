"""Reads texts into values in columns: short ones line by line, long ones by the compiled scanner."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.base import Input
from loadfactor.sources.dcgm.known_series import SERIES_MAX, KnownSeries
from loadfactor.sources.dcgm.metric_lines import LineBatch, LineReader, find_values
from loadfactor.sources.dcgm.scrape_order import ScrapeOrder, follow_lines
from loadfactor.sources.gpu_scrapes.device_events import LastTold
from loadfactor.sources.gpu_scrapes.fields import FieldValues
from loadfactor.sources.gpu_scrapes.known_devices import Numbering
from loadfactor.sources.gpu_scrapes.scrape_table import TextGaps
from loadfactor.sources.parsing.text_blocks import EmptyInputError, TextBlock, split_blocks, strip_endings

if TYPE_CHECKING:
    from loadfactor.sources.dcgm.line_scanner import LineScanner


SCAN_FROM_BYTES: Final = 3 * BYTES_PER_MIB
"""From here on the scanner; less is read line by line before the scanner is loaded."""


class SeriesCache:
    """What is known of the series of exporters that are read again and again, and the scanner that knows them.

    Hand the same one to every call for the same exporters: their names and labels are then compared, not parsed, and events are
    told once. It is bounded.
    """

    def __init__(self) -> None:
        self.known = KnownSeries()
        self.scanner: LineScanner | None = None
        self.last = LastTold()
        self._bytes = 0

    def begin(self) -> None:
        """Another decoding begins; what would grow without end starts again."""
        if self.known.is_large:
            self.known = KnownSeries()
            self.scanner = None
            self.last = LastTold()

    def wants_scanner(self, block: TextBlock) -> bool:
        """True when so much has been read that the scanner is worth its loading."""
        self._bytes += len(block.data)
        return self._bytes > SCAN_FROM_BYTES


class TextReader:
    """Reads one text after the other."""

    def __init__(self, cache: SeriesCache, node: str | None, gaps: TextGaps) -> None:
        self._cache, self._known, self._node, self._gaps = cache, cache.known, node, gaps
        self._order = ScrapeOrder()
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
        self._known.begin(self._node, strip_endings(source.name or source.label))
        text = self._texts.number(source.label)
        self._order.begin(text)
        reader = LineReader(source.label, self._known, self._gaps)
        try:
            for block in split_blocks(source):
                yield self._follow(self._read_block(block, reader), text)
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

    def _read_block(self, block: TextBlock, reader: LineReader) -> LineBatch:
        if self._cache.wants_scanner(block) and self._cache.scanner is None:
            from loadfactor.sources.dcgm.line_scanner import LineScanner  # loads Numba

            self._cache.scanner = LineScanner(self._known)
        return reader.read(block) if self._cache.scanner is None else self._cache.scanner.read(block, reader)

    def _follow(self, batch: LineBatch, text: int) -> FieldValues:
        """The values of a batch, each with its scrape and whether it is a total."""
        state = self._order.grow(self._known)
        is_total = np.zeros(len(batch.series), bool)
        before = np.empty(len(batch.series), np.int64)
        scanner = self._cache.scanner
        follow = follow_lines if scanner is None else scanner.follow_lines
        follow(batch.series, batch.at_ms, batch.values, self._known.facts, state, is_total, before)
        return find_values(batch, self._known.facts, is_total, before, text)
