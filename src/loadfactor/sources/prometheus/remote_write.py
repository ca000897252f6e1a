"""Prometheus remote_write 1.0 as points: requests unpacked and scanned, their series known again by the bytes of their labels.

https://prometheus.io/docs/specs/prw/remote_write_spec. A sender repeats the same labels in every request, so a series is given to
`identify` once, and afterwards costs a comparison of bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from secrets import randbits
from typing import Final, NamedTuple

import cramjam
import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import shorten
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.sources.prometheus.families import is_about_sender
from loadfactor.sources.prometheus.protobuf_wire import LONG_LABEL, MANY_LABELS, NAME_SPANS, split_labels
from loadfactor.sources.prometheus.remote_write_series import (
    COUNT,
    DONE,
    EXEMPLARS,
    FULL,
    HISTOGRAMS,
    LONG_LABELS,
    MANY_SERIES,
    NO_ROOM,
    SERIES_FAULTS,
    LabelSets,
    ScannedSamples,
    grow_sets,
    keep_first,
    make_sets,
    scan_series,
)

MOST_NAMES: Final = 1000
"""So many names of metrics that are not understood are counted one by one; the rest together."""


class BodyTooLarge(SourceError):  # noqa: N818 - what is wrong, as the HTTP status says it
    """A request holds more than the limits let in; a smaller one would be taken."""


@dataclass(frozen=True)
class WriteLimits:
    """Limits of one request, and how many series the scanner remembers.

    Senders put 500 to 10,000 samples into a request. Where the remembered series or their bytes would pass their limit, all are
    forgotten, and remembered again as they come.
    """

    packed_bytes: int = 32 * BYTES_PER_MIB
    unpacked_bytes: int = 128 * BYTES_PER_MIB
    series: int = 200_000
    samples: int = 1_000_000
    labels: int = 64
    label_bytes: int = 2048  # of a name, and of a value
    known_series: int = 500_000
    known_bytes: int = 256 * BYTES_PER_MIB  # of the labels of all known series

    @property
    def labels_bytes(self) -> int:
        """The bytes that the labels of one series may take at most: two lengths and tags of up to six bytes beside the text."""
        return self.labels * 2 * (self.label_bytes + 12)

    def __post_init__(self) -> None:
        """One series fits into what is remembered."""
        assert self.known_series >= 1
        assert self.known_bytes >= self.labels_bytes


NOT_UNDERSTOOD: Final = -1
"""The number of a series of which nothing is kept."""
_PASSED_OVER: Final = int(np.iinfo(np.int32).min)
"""Stands for a series that is known and of which nothing is kept."""
OTHER_NAMES: Final = "(other names)"
_NAME: Final = "__name__"
_MOST_UNPACKED: Final = 22  # a copy of 64 bytes takes three in snappy's block format
_OTHERS: Final = 10_000
"""Sets of labels but the name that are remembered: the series of a device share one."""
_SETS, _SET_BYTES, _SAMPLES = 1024, 1 << 18, 1 << 14
"""Room to begin with."""
_USUAL_BYTES: Final = 4 * BYTES_PER_MIB
"""Requests of up to so many bytes are unpacked into the same memory, which need not be mapped and cleared each time."""
Others = tuple[str, ...]
"""The labels of a series but its name: names and values in turn, by name."""
Identify = Callable[[str, Others], int]
"""Gives the number of the series of this name with these labels, or NOT_UNDERSTOOD."""


class Points(NamedTuple):
    """Samples of series that are understood, in the order they came. Prometheus marks a series that has ended with NaN."""

    series: NDArray[np.int32]  # as `identify` numbered it
    at_ms: NDArray[np.int64]
    value: NDArray[np.float64]


class RemoteWriteScanner:
    """Scans the requests of one stream of senders, one after the other; not for several threads at once."""

    def __init__(self, identify: Identify, limits: WriteLimits) -> None:
        self._identify, self._limits = identify, limits
        self.samples = self.exemplars = self.histograms = 0
        """Counts of all requests so far that were not refused; exemplars and histograms are skipped."""
        self.not_understood: dict[str, int] = {}
        """Samples of series that are not understood, by metric name."""
        self._bounds = np.array([limits.series, limits.labels_bytes], np.int64)
        self._spans = np.zeros(4 * limits.labels + NAME_SPANS, np.int64)
        self._others: dict[bytes, Others] = {}  # by their bytes
        self._names: dict[str, int] = {OTHER_NAMES: 0}
        self._out = _make_samples(min(_SAMPLES, limits.samples))
        self._data = np.empty(_USUAL_BYTES, np.uint8)
        self.forget_series()

    def forget_series(self) -> None:
        """Asks `identify` again for every series: for a caller whose numbers have changed."""
        room = min(_SETS, self._limits.known_series), min(_SET_BYTES, self._limits.known_bytes)
        self._known: LabelSets = make_sets(*room, randbits(63))
        self._numbers: NDArray[np.int32] = np.zeros(room[0], np.int32)
        self._identified = 0

    def scan(self, payload: bytes) -> Points:
        """The points of one request as it came, packed with snappy.

        Raises SourceError where it is malformed, BodyTooLarge where it passes the limits; then nothing of it counts.
        """
        data = self._unpack(payload)
        counts = np.zeros(HISTOGRAMS + 1, np.int64)
        i = k = settled = 0
        try:
            while True:
                i, k, why = scan_series(data, i, self._known, self._out, k, counts, self._bounds)
                if why not in (DONE, NO_ROOM, FULL):
                    raise self._describe_fault(why, i)
                self._settle(settled, k)
                settled = k
                if why == DONE:
                    break
                self._make_room() if why == NO_ROOM else self._make_room_for_samples()
        except BaseException:
            keep_first(self._known, self._identified)
            raise
        self.samples += k
        self.exemplars += int(counts[EXEMPLARS])
        self.histograms += int(counts[HISTOGRAMS])
        return self._take_points(k)

    def _unpack(self, payload: bytes) -> NDArray[np.uint8]:
        """The request, unpacked no further than the limits say; valid until the next one."""
        limits = self._limits
        if len(payload) > limits.packed_bytes:
            raise _too_large("bytes packed", len(payload), limits.packed_bytes)
        try:
            size = cramjam.snappy.decompress_raw_len(payload)
            if size > limits.unpacked_bytes:
                raise _too_large("bytes unpacked", size, limits.unpacked_bytes)
            if not payload or size > _MOST_UNPACKED * len(payload):
                raise cramjam.DecompressionError(f"{len(payload)} bytes cannot hold {size:,}")
            data = self._data if size <= len(self._data) else np.empty(size, np.uint8)
            unpacked = cramjam.snappy.decompress_raw_into(payload, data.data) if size else 0
        except cramjam.DecompressionError as error:
            raise SourceError(
                f"a remote_write request is not packed with snappy's block format ({error}); have the sender use it"
            ) from None
        return data[:unpacked]

    def _settle(self, since: int, k: int) -> None:
        """Identifies the labels that are new, and puts the numbers of series in the place of those of labels."""
        while self._identified < self._known.state[COUNT]:
            name, others = self._read_labels(self._identified)
            number = self._identify(name, others)
            if number < 0:
                number = _PASSED_OVER if is_about_sender(name) else -1 - self._number_name(name)
            self._numbers[self._identified] = number
            self._identified += 1
        labels_of = self._out.labels[since:k]
        labels_of[:] = self._numbers[labels_of]

    def _read_labels(self, number: int) -> tuple[str, Others]:
        """The name of a series and its other labels, which are read once for all series that share them."""
        known, spans = self._known, self._spans
        start, end = int(known.start[number]), int(known.start[number + 1])
        count = split_labels(known.bytes, start, end, spans, self._limits.label_bytes)
        if count < 0:
            raise self._describe_fault(count, None)
        content = known.bytes[start:end].tobytes()
        name, name_end, field, field_end = (spans[-NAME_SPANS:] - start).tolist()
        rest = content[:field] + content[field_end:]
        others = self._others.get(rest)
        try:
            if others is None:
                others = _list_others(content, (spans[: 4 * count] - start).tolist())
                if len(self._others) >= _OTHERS:
                    self._others.clear()
                self._others[rest] = others
            return content[name:name_end].decode(), others
        except UnicodeDecodeError as error:
            raise SourceError(f"a label of a remote_write request is not UTF-8: {shorten(error.object)}") from None

    def _number_name(self, name: str) -> int:
        if len(self._names) > MOST_NAMES:
            return self._names.get(name, 0)
        return self._names.setdefault(name, len(self._names))

    def _make_room(self) -> None:
        limits, known = self._limits, self._known
        sets, size = len(known.after), len(known.bytes)
        full = known.state[COUNT] == sets
        if (sets if full else size) >= (limits.known_series if full else limits.known_bytes):
            self.forget_series()
            return
        sets, size = (min(2 * sets, limits.known_series), size) if full else (sets, min(2 * size, limits.known_bytes))
        self._known = grow_sets(known, sets, size)
        self._numbers = np.concatenate([self._numbers, np.zeros(sets - len(self._numbers), np.int32)])

    def _make_room_for_samples(self) -> None:
        room, most = len(self._out.labels), self._limits.samples
        if room >= most:
            raise _too_large("samples", most + 1, most)
        more = _make_samples(min(2 * room, most))
        more.labels[:room], more.at_ms[:room], more.bits[:room] = self._out
        self._out = more

    def _take_points(self, k: int) -> Points:
        """The samples scanned; those of series that are not understood are counted and left out."""
        out = self._out
        series, at_ms, bits = out.labels[:k], out.at_ms[:k], out.bits[:k]
        kept = series >= 0
        if kept.all():
            return Points(series.copy(), at_ms.copy(), bits.copy().view(np.float64))
        counts = np.bincount(-1 - series[~kept & (series != _PASSED_OVER)], minlength=len(self._names))
        for name, count in zip(self._names, counts.tolist(), strict=True):
            if count:
                self.not_understood[name] = self.not_understood.get(name, 0) + count
        return Points(series[kept], at_ms[kept], bits[kept].view(np.float64))

    def _describe_fault(self, why: int, byte: int | None) -> SourceError:
        limits = self._limits
        if why == MANY_SERIES:
            return _too_large("series", limits.series + 1, limits.series)
        if why == MANY_LABELS:
            return _too_large("labels of one series", limits.labels + 1, limits.labels)
        if why == LONG_LABEL:
            return BodyTooLarge(
                f"a remote_write request has a label of more than {limits.label_bytes:,} bytes; drop it by relabelling"
            )
        if why == LONG_LABELS:
            return BodyTooLarge(
                f"a series of a remote_write request has more than {limits.labels_bytes:,} bytes of labels; "
                "drop some by relabelling"
            )
        where = "" if byte is None else f", in what begins at byte {byte:,} of it unpacked"
        return SourceError(f"a remote_write request {SERIES_FAULTS[why]}{where}")


def compile_scanner() -> None:
    """Have everything compiled that scans: seconds on a machine where it was never done, milliseconds later."""
    name = b"\x0a\x0d\x0a\x08__name__\x12\x01x"
    sample = b"\x12\x10\x09" + bytes(8) + b"\x10" + b"\x80\xd0\x95\xff\xbc\x31"
    series = name + sample
    scanner = RemoteWriteScanner(lambda _name, _others: 0, WriteLimits())
    scanner.scan(bytes(cramjam.snappy.compress_raw(b"\x0a" + bytes([len(series)]) + series)))
    keep_first(grow_sets(scanner._known, 2 * _SETS, 2 * _SET_BYTES), 0)


def _list_others(content: bytes, ends: list[int]) -> Others:
    """All labels but the name, whose names and values end there. Raises SourceError where they are no labels of a series."""
    parts = [content[a:b].decode() for a, b in zip(ends[::2], ends[1::2], strict=True)]
    labels = dict(zip(parts[::2], parts[1::2], strict=True))
    if 2 * len(labels) < len(parts):
        twice = next(name for name in labels if parts[::2].count(name) > 1)
        raise SourceError(f"a series of a remote_write request has the label {shorten(twice)} twice")
    if labels.pop(_NAME, None) is None:
        raise SourceError(f"a series of a remote_write request has no name (label {_NAME}); it has {shorten(labels)}")
    return tuple(text for pair in sorted(labels.items()) for text in pair)


def _make_samples(room: int) -> ScannedSamples:
    return ScannedSamples(np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.uint64))


def _too_large(what: str, found: int, most: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"a remote_write request has {found:,} {what}, and at most {most:,} are taken; have the sender write smaller ones"
    )
