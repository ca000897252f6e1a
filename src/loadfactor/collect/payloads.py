"""Formats of payloads: answers of queries, exporters' pages, and events of what was listed, packed to be kept and read again.

A remote_write request is kept as it came.
"""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import cramjam

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.collect.http_fetch import GZIP_WINDOW
from loadfactor.sources.prometheus.metrics_page import TargetLabels
from loadfactor.sources.serving_engines.live_decoder import read_scrape

REMOTE_WRITE: Final = "remote_write"
"""A snappy remote_write request; the id of the stream of those that name none, too."""
QUERY: Final = "query"
PAGE: Final = "page"
EVENTS: Final = "listed"
LARGEST_PAGE_BYTES: Final = 16 * BYTES_PER_MIB
"""Of a page, unpacked: some 1,000 GPUs. An exporter with more to say is refused."""
_COVERS: Final = struct.Struct("<qqq")  # from and to, ms; bytes of the answer
_PAGE_HEAD: Final = struct.Struct("<qII?")  # when it was fetched, ms; bytes of the labels and of the page; is it gzip
_QUICK: Final = 1


def pack_answer(answer: bytes, from_ms: int, to_ms: int) -> bytes:
    """The payload of an answer with all samples after `from_ms`, through `to_ms`."""
    return _COVERS.pack(from_ms, to_ms, len(answer)) + bytes(cramjam.lz4.compress_block(answer, store_size=False))


def unpack_answer(payload: bytes) -> bytes:
    """The answer in a payload. Raises SourceError where it is none."""
    try:
        size = _COVERS.unpack_from(payload)[2]
        return bytes(cramjam.lz4.decompress_block(payload[_COVERS.size :], output_len=size))
    except (struct.error, cramjam.DecompressionError, MemoryError, OverflowError) as error:
        raise SourceError(f"a kept answer cannot be read: {error}") from error


def read_span(payload: bytes) -> tuple[int, int]:
    """After which, and through when all samples of an answer are (ms); those before were requested again."""
    from_ms, to_ms, _ = _COVERS.unpack_from(payload)
    return from_ms, to_ms


class ScrapedPage(NamedTuple):
    """A page of metrics, fetched at `at_ms` (ms UTC) from the exporter with these labels."""

    at_ms: int
    target: TargetLabels
    page: bytes


def pack_page(at_ms: int, target: TargetLabels, answer: bytes, is_gzip: bool) -> bytes:
    """The payload of a page: packed as the exporter packed it, else with lz4."""
    labels = json.dumps(target).encode()
    content = answer if is_gzip else bytes(cramjam.lz4.compress_block(answer, store_size=False))
    return _PAGE_HEAD.pack(at_ms, len(labels), len(answer), is_gzip) + labels + content


def unpack_page(payload: bytes) -> ScrapedPage:
    """The page in a payload. Raises SourceError where it is none, or is larger than is taken."""
    try:
        at_ms, labels, size, is_gzip = _PAGE_HEAD.unpack_from(payload)
        end = _PAGE_HEAD.size + labels
        target = tuple((name, value) for name, value in json.loads(payload[_PAGE_HEAD.size : end]))
        if is_gzip:
            page = unpack_gzip(payload[end:])
        else:
            page = bytes(cramjam.lz4.decompress_block(payload[end:], output_len=size))
    except (struct.error, cramjam.DecompressionError, MemoryError, OverflowError, ValueError, TypeError) as error:
        raise SourceError(f"a kept page cannot be read: {error}") from error
    return ScrapedPage(at_ms, target, page)


def unpack_gzip(answer: bytes) -> bytes:
    """The page that an exporter packed with gzip. Raises SourceError where it did not, or the page is larger than is taken."""
    try:
        unpacking = zlib.decompressobj(GZIP_WINDOW)
        page = unpacking.decompress(answer, LARGEST_PAGE_BYTES + 1)
    except zlib.error as error:
        raise SourceError("its page is not packed with gzip, though it says so") from error
    if len(page) > LARGEST_PAGE_BYTES:
        raise SourceError(f"its page is larger than {LARGEST_PAGE_BYTES // BYTES_PER_MIB} MiB")
    if not unpacking.eof:
        raise SourceError("its page is cut off")
    return page


class Events(NamedTuple):
    """Events for a decoder, and by name where the collector goes on after them; "" takes an entry of the cursor away."""

    events: list[Any]
    cursor: dict[str, str]


def pack_events(events: Sequence[Any], cursor: Mapping[str, str] | None = None) -> bytes:
    """The payload of these events."""
    return zlib.compress(json.dumps([list(events), dict(cursor or {})], separators=(",", ":")).encode(), _QUICK)


def unpack_events(payload: bytes) -> Events:
    """The events in a payload. Raises SourceError where it is none."""
    try:
        events, cursor = json.loads(zlib.decompress(payload))
    except (zlib.error, ValueError, TypeError) as error:
        raise SourceError(f"a kept list cannot be read: {error}") from error
    return Events(events, cursor)


def pack_engine_page(scraped: bytes, step_ms: float) -> bytes:
    """The events of an engine's page that `pack_page` packed, scraped every `step_ms`. Raises SourceError where it is none."""
    at_ms, labels, page = unpack_page(scraped)
    return pack_events(read_scrape(page, dict(labels), at_ms, step_ms))
