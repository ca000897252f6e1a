"""An exporter's page as a body: as it came, with when it was asked for and what is known of the exporter in front."""

import json
import struct
import zlib
from typing import Final, NamedTuple

import cramjam

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.collect.http_fetch import GZIP_WINDOW
from loadfactor.sources.prometheus.metrics_page import TargetLabels

LARGEST_PAGE_BYTES: Final = 16 * BYTES_PER_MIB
"""Of a page, unpacked: some 1,000 GPUs. An exporter with more to say is refused."""
_HEAD: Final = struct.Struct("<qII?")  # when it was asked for, ms; bytes of the labels and of the page; is it gzip


class ScrapedPage(NamedTuple):
    """A page of metrics, asked for at `at_ms` (ms UTC) of the exporter with these labels."""

    at_ms: int
    target: TargetLabels
    page: bytes


def pack_page(at_ms: int, target: TargetLabels, answer: bytes, is_gzip: bool) -> bytes:
    """The body of an answer: packed as the exporter packed it, else with lz4."""
    labels = json.dumps(target).encode()
    content = answer if is_gzip else bytes(cramjam.lz4.compress_block(answer, store_size=False))
    return _HEAD.pack(at_ms, len(labels), len(answer), is_gzip) + labels + content


def unpack_page(body: bytes) -> ScrapedPage:
    """The page in a body. Raises SourceError where it is none, or is larger than is taken."""
    try:
        at_ms, labels, size, is_gzip = _HEAD.unpack_from(body)
        end = _HEAD.size + labels
        target = tuple((name, value) for name, value in json.loads(body[_HEAD.size : end]))
        if is_gzip:
            page = unpack_gzip(body[end:])
        else:
            page = bytes(cramjam.lz4.decompress_block(body[end:], output_len=size))
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
