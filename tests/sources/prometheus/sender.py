"""Requests as senders of remote_write make them: series of labels and samples as protobuf, packed with snappy."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import cramjam

VARINT, FIXED64, BYTES = 0, 1, 2


@dataclass
class SentSeries:
    """One series: labels as a mapping or as pairs in order; samples as (milliseconds, value)."""

    labels: Mapping[str, str] | Sequence[tuple[str, str]]
    samples: Sequence[tuple[int, float]] = ()
    exemplars: int = 0
    histograms: int = 0
    pairs: list[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        """Labels of a mapping are sorted, as senders do."""
        self.pairs = sorted(self.labels.items()) if isinstance(self.labels, Mapping) else list(self.labels)


def pack_varint(number: int) -> bytes:
    """A number as protobuf writes it, a negative one in ten bytes."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def pack_field(number: int, content: bytes) -> bytes:
    """A field of bytes: text, or a message in a message."""
    return pack_varint(number << 3 | BYTES) + pack_varint(len(content)) + content


def pack_label(name: str | bytes, value: str | bytes) -> bytes:
    """A label; proto3 leaves out what is empty."""
    texts = [text.encode() if isinstance(text, str) else text for text in (name, value)]
    return pack_field(1, b"".join(pack_field(k, text) for k, text in enumerate(texts, 1) if text))


def pack_sample(at_ms: int, value: float) -> bytes:
    """A sample; proto3 leaves out zeros, but not -0."""
    bits = struct.pack("<d", value)
    content = (b"\x09" + bits if any(bits) else b"") + (b"\x10" + pack_varint(at_ms) if at_ms else b"")
    return pack_field(2, content)


def pack_series(series: SentSeries) -> bytes:
    labels = b"".join(pack_label(*pair) for pair in series.pairs)
    samples = b"".join(pack_sample(*sample) for sample in series.samples)
    exemplar = pack_field(3, pack_label("trace_id", "1") + b"\x11" + struct.pack("<d", 1.0))
    histogram = pack_field(4, b"\x08\x05" + b"\x19" + struct.pack("<d", 2.0))
    return pack_field(1, labels + samples + exemplar * series.exemplars + histogram * series.histograms)


def pack_metadata(name: str, text: str) -> bytes:
    """What a metric means: a gauge, with its help."""
    return pack_field(3, b"\x08\x02" + pack_field(2, name.encode()) + pack_field(4, text.encode()))


def pack_snappy(content: bytes) -> bytes:
    """Snappy's block format."""
    return bytes(cramjam.snappy.compress_raw(content))


def pack_request(series: Iterable[SentSeries], *, metadata: bytes = b"") -> bytes:
    return pack_snappy(b"".join(map(pack_series, series)) + metadata)


HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
"""What a sender says of its body."""
