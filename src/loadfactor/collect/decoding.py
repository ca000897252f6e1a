"""Decoding of bodies: the readers of each format, what is left out of the rows, and finding the bodies that cannot be decoded."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np

from loadfactor.base.errors import SourceError
from loadfactor.collect.pulled_body import unpack_answer
from loadfactor.collect.scraped_page import unpack_page
from loadfactor.sources.base import Gap, Rows
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.metrics_page import PageReader
from loadfactor.sources.prometheus.query_answers import read_answer
from loadfactor.sources.prometheus.remote_write import Points, RemoteWriteScanner, WriteLimits
from loadfactor.store.live import LiveBatch, ReceivedBody
from loadfactor.store.live_database import encode
from loadfactor.store.row_checks import validate_rows

REMOTE_WRITE: Final = "remote_write"
QUERY: Final = "query"
PAGE: Final = "page"
"""Formats of bodies: a snappy remote_write request, a packed answer of a query, an exporter's page. `REMOTE_WRITE` is an origin
as well."""
NO_POINTS: Final = Points(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0))

Readers = dict[str, Callable[[bytes], Points]]
"""By format: what reads a body as points of series of one decoder."""
Numbered = tuple[int, ReceivedBody]


def make_readers(decoder: PrometheusDecoder) -> tuple[RemoteWriteScanner, Readers]:
    """The readers whose points are of this decoder's series, and the one of requests, which counts."""
    scanner = RemoteWriteScanner(decoder.identify_series, WriteLimits())
    pages = PageReader(decoder.identify, decoder.not_understood)

    def read_page(content: bytes) -> Points:
        at_ms, target, page = unpack_page(content)
        return pages.read(page, target, at_ms)

    return scanner, {
        REMOTE_WRITE: scanner.scan,
        QUERY: lambda content: read_answer(unpack_answer(content), decoder.identify),
        PAGE: read_page,
    }


def pick_valid(rows: Rows, count: Callable[[Gap], None]) -> Iterator[Rows]:
    """The rows without those that say what cannot be, which are counted: one broken exporter must not stop the others."""
    try:
        validate_rows(rows, 0)
        yield rows
    except SourceError as error:
        half = rows.data.num_rows // 2
        if not half:
            count(Gap(rows.where, str(error)))
            return
        for part in (rows.data.slice(0, half), rows.data.slice(half)):
            yield from pick_valid(replace(rows, data=part), count)


def try_bodies(decoded: bytes, bodies: Iterable[Numbered]) -> None:
    """Raises what decoding these bodies raises with a decoder of this state; nothing is kept."""
    decoder = PrometheusDecoder(decoded)
    _, readers = make_readers(decoder)
    for number, body in bodies:
        decoder.put(readers[body.format](body.content), number, 0.0)
    for item in chain(decoder.take(None), decoder.take_progress()):
        for part in pick_valid(item, lambda _gap: None) if isinstance(item, Rows) else ():
            encode(LiveBatch(part.where, part.table, part.data, part.where))
    decoder.state()


def find_poison(bodies: Sequence[Numbered], decode: Callable[[Sequence[Numbered]], None]) -> list[Numbered]:
    """The bodies that `decode` raises with; all of them where they only do harm together."""
    try:
        decode(bodies)
    except MemoryError:
        raise
    except Exception:  # whatever it is
        half = len(bodies) // 2
        parts = (bodies[:half], bodies[half:]) if half else ()
        return [one for part in parts for one in find_poison(part, decode)] or list(bodies)
    return []
