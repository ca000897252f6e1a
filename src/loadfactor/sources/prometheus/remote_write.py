"""Prometheus remote_write 1.0 as points: requests unpacked and scanned, their series known again by the bytes of their labels.

https://prometheus.io/docs/specs/prw/remote_write_spec. A sender repeats the same labels in every request, so a series is given to
`identify` once, and afterwards costs a comparison of bytes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from secrets import randbits
from typing import Final, NamedTuple

import cramjam
import numpy as np
from numpy.typing import NDArray

from loadfactor.base.errors import SourceError
from loadfactor.base.units import BYTES_PER_KIB, BYTES_PER_MIB
from loadfactor.sources.base import Skip
from loadfactor.sources.prometheus.families import is_own
from loadfactor.sources.prometheus.protobuf_wire import MANY_LABELS, NAME_SPANS, NAMELESS, split_labels
from loadfactor.sources.prometheus.read_names import is_read
from loadfactor.sources.prometheus.remote_write_series import (
    COUNT,
    DONE,
    EXEMPLARS,
    FULL,
    HISTOGRAMS,
    LABELS_FROM,
    LABELS_TO,
    LATE_LABELS,
    LONG_LABELS,
    MANY_SERIES,
    NO_INSTANT,
    NO_LABELS,
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
    labels: int = 1000  # of one series: pods and nodes with many labels have hundreds
    labels_bytes: int = 256 * BYTES_PER_KIB
    known_series: int = 500_000
    known_bytes: int = 256 * BYTES_PER_MIB  # of the labels of all known series

    def __post_init__(self) -> None:
        """One series fits into what is remembered."""
        assert self.known_series >= 1
        assert self.known_bytes >= self.labels_bytes


NOT_UNDERSTOOD: Final = -1
"""The number of a series of which nothing is kept."""
_PASSED_OVER: Final = int(np.iinfo(np.int32).min)
"""Stands for a series that is known and of which nothing is kept."""
_SKIPPED: Final = _PASSED_OVER + 1
"""Stands for a series that cannot be kept."""
_REASONS: Final = {
    NAMELESS: "no_label_name",
    MANY_LABELS: "many_labels",
    NO_LABELS: "no_name",
    LATE_LABELS: "late_labels",
    LONG_LABELS: "long_labels",
}
_EXAMPLE: Final = 120
"""So many characters of a series that was skipped are shown."""
_EXAMPLE_LABELS: Final = 6
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


class _Odd(NamedTuple):
    """A series that cannot be kept: one of SKIPPED, what to show of it, and whether a decoder reads series of its name."""

    reason: str
    example: str
    is_read: bool


class Points(NamedTuple):
    """Samples of series that are understood, in the order they came. Prometheus marks a series that has ended with NaN."""

    series: NDArray[np.int32]  # as `identify` numbered it
    at_ms: NDArray[np.int64]
    value: NDArray[np.float64]


class RemoteWriteScanner:
    """Scans the requests of one stream of senders, one after the other; not for several threads at once."""

    def __init__(self, identify: Identify, limits: WriteLimits) -> None:
        self._identify, self._limits = identify, limits
        self.samples = 0
        """Samples of all requests so far that were not refused."""
        self.skipped: list[Skip] = []
        """Those of the last request that are not kept though somebody could read such ones, exemplars and histograms."""
        self.not_understood: dict[str, int] = {}
        """Samples of series that are not understood, by metric name."""
        self._bounds = np.array([limits.series, limits.labels_bytes], np.int64)
        self._spans = np.zeros(4 * limits.labels + NAME_SPANS, np.int64)
        self._skips: dict[tuple[str, bool], tuple[str, int]] = {}  # of this request: an example and how many, by kind
        self._others: dict[bytes, Others] = {}  # by their bytes
        self._names: dict[str, int] = {OTHER_NAMES: 0}
        self._out = _make_samples(min(_SAMPLES, limits.samples))
        self._data = np.empty(_USUAL_BYTES, np.uint8)
        self.forget_series()

    def take_skipped(self) -> list[Skip]:
        """`skipped`, once."""
        skipped, self.skipped = self.skipped, []
        return skipped

    def forget_series(self) -> None:
        """Asks `identify` again for every series: for a caller whose numbers have changed."""
        room = min(_SETS, self._limits.known_series), min(_SET_BYTES, self._limits.known_bytes)
        self._known: LabelSets = make_sets(*room, randbits(63))
        self._numbers: NDArray[np.int32] = np.zeros(room[0], np.int32)
        self._identified = 0
        self._odd: dict[int, _Odd] = {}  # by the number of their labels

    def scan(self, payload: bytes) -> Points:
        """The points of one request as it came, packed with snappy. What cannot be kept of it is counted in `skipped`.

        Raises SourceError where it is malformed, BodyTooLarge where it passes the limits; then nothing of it counts.
        """
        self.skipped, self._skips = [], {}
        data = self._unpack(payload)
        counts = np.zeros(LABELS_TO + 1, np.int64)
        i = k = settled = 0
        try:
            while True:
                i, k, why = scan_series(data, i, self._known, self._out, k, counts, self._bounds)
                if why not in (DONE, NO_ROOM, FULL, NO_LABELS, LATE_LABELS, LONG_LABELS):
                    raise self._describe_fault(why, i)
                if why in _REASONS:
                    self._pass_over(data[counts[LABELS_FROM] : counts[LABELS_TO]], why, settled, k)
                self._settle(settled, k)
                settled = k
                if why == DONE:
                    break
                if why == NO_ROOM:
                    self._make_room()
                elif why == FULL:
                    self._make_room_for_samples()
        except BaseException:
            keep_first(self._known, self._identified)
            raise
        self.samples += k
        self._skip(_Odd("exemplar", "", is_read=False), int(counts[EXEMPLARS]))
        self._skip(_Odd("histogram", "", is_read=False), int(counts[HISTOGRAMS]))
        self.skipped = [Skip(reason, text, n, is_of_ours) for (reason, is_of_ours), (text, n) in self._skips.items()]
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
            self._numbers[self._identified] = self._identify_labels(self._identified)
            self._identified += 1
        labels_of, at_ms = self._out.labels[since:k], self._out.at_ms[since:k]
        left = labels_of < 0  # was passed over
        numbers = self._numbers[np.where(left, 0, labels_of)]
        odd = ((numbers == _SKIPPED) | (at_ms == NO_INSTANT)) & ~left
        if odd.any():
            for label, count in zip(*np.unique(labels_of[odd], return_counts=True), strict=True):
                found = self._odd.get(int(label)) or _Odd("no_instant", *self._describe_labels(int(label)))
                self._skip(found, int(count))
        labels_of[:] = np.where(left, labels_of, np.where(odd, _SKIPPED, numbers))

    def _pass_over(self, labels: NDArray[np.uint8], why: int, since: int, k: int) -> None:
        """Counts the samples of a series that cannot be kept, whose labels are these bytes."""
        mine = np.flatnonzero(self._out.labels[since:k] == why) + since
        name = self._split(labels, 0, len(labels))[1] if len(labels) else b""
        if why == LONG_LABELS and name and not is_read(name.decode(errors="replace")):
            self._out.labels[mine] = -1 - self._number_name(name.decode(errors="replace"))
            return
        self._out.labels[mine] = _SKIPPED
        self._skip(_Odd(_REASONS[why], *_describe(name, labels[:_EXAMPLE].tobytes())), len(mine))

    def _skip(self, odd: _Odd, samples: int) -> None:
        if samples:
            kind = odd.reason, odd.is_read
            self._skips[kind] = odd.example, samples + self._skips.get(kind, ("", 0))[1]

    def _split(self, data: NDArray[np.uint8], start: int, end: int) -> tuple[int, bytes, slice]:
        """How many labels lie there, or why they cannot be kept; the name, and where its whole field lies."""
        count = split_labels(data, start, end, self._spans)
        if count < 0 and count not in _REASONS:
            raise self._describe_fault(count, None)
        name, name_end, field, field_end = self._spans[-NAME_SPANS:].tolist()
        return count, data[name:name_end].tobytes(), slice(field, field_end)

    def _describe_labels(self, number: int) -> tuple[str, bool]:
        start, end = self._known.start[number : number + 2].tolist()
        _, name, _ = self._split(self._known.bytes, start, end)
        return _describe(name, self._known.bytes[start:end].tobytes())

    def _identify_labels(self, number: int) -> int:
        """The number of the series with these labels, which are read once for all series that share all but the name."""
        known, spans = self._known, self._spans
        start, end = int(known.start[number]), int(known.start[number + 1])
        count, name_bytes, field = self._split(known.bytes, start, end)
        content = known.bytes[start:end].tobytes()
        rest = content[: field.start - start] + content[field.stop - start :] if name_bytes else content
        name = name_bytes.decode(errors="replace")
        reason = "no_name" if not name else "not_utf8" if "\ufffd" in name else _REASONS.get(count, "")
        others = self._others.get(rest) if not reason else None
        if others is None and not reason:
            found = _list_others(content, (spans[: 4 * count] - start).tolist())
            if isinstance(found, str):
                reason = found
            else:
                others = self._others[rest] = found
        if others is None:
            if name and not is_read(name):
                return -1 - self._number_name(name)
            self._odd[number] = _Odd(reason, *_describe(name_bytes, content))
            return _SKIPPED
        if len(self._others) >= _OTHERS:
            self._others.clear()
        series = self._identify(name, others)
        if series >= 0:
            return series
        return _PASSED_OVER if is_own(name) else -1 - self._number_name(name)

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
        counts = np.bincount(-1 - series[~kept & (series > _SKIPPED)], minlength=len(self._names))
        for name, count in zip(self._names, counts.tolist(), strict=True):
            if count:
                self.not_understood[name] = self.not_understood.get(name, 0) + count
        return Points(series[kept], at_ms[kept], bits[kept].view(np.float64))

    def _describe_fault(self, why: int, byte: int | None) -> SourceError:
        limits = self._limits
        if why == MANY_SERIES:
            return _too_large("series", limits.series + 1, limits.series)
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


def _list_others(content: bytes, ends: list[int]) -> Others | str:
    """All labels but the name, whose names and values end there, or the reason that they are none of a series."""
    try:
        parts = [content[a:b].decode() for a, b in zip(ends[::2], ends[1::2], strict=True)]
    except UnicodeDecodeError:
        return "not_utf8"
    labels = dict(zip(parts[::2], parts[1::2], strict=True))
    if 2 * len(labels) < len(parts):
        return "label_twice"
    del labels[_NAME]
    return tuple(text for pair in sorted(labels.items()) for text in pair)


def _describe(name: bytes, labels: bytes) -> tuple[str, bool]:
    """How a series that cannot be kept is shown, its labels shortened, and whether a decoder reads series of this name."""
    text = name.decode(errors="replace")
    words = re.findall(r"[\w:./-]{2,}", labels.decode(errors="replace"))
    shown = " ".join(word for word in words[: 2 * _EXAMPLE_LABELS] if word not in (text, _NAME))
    return f"{text}{{{shown}}}"[:_EXAMPLE], is_read(text)


def _make_samples(room: int) -> ScannedSamples:
    return ScannedSamples(np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.uint64))


def _too_large(what: str, found: int, most: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"a remote_write request has {found:,} {what}, and at most {most:,} are taken; have the sender write smaller ones"
    )
