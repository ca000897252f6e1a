"""What comes out of a remote_write request, and which are refused."""

import random
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.prometheus.sender import (
    SentSeries,
    pack_field,
    pack_label,
    pack_metadata,
    pack_request,
    pack_sample,
    pack_series,
    pack_snappy,
    pack_varint,
)

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.sources.prometheus.decoder import PrometheusDecoder
from loadfactor.sources.prometheus.remote_write import (
    MOST_NAMES,
    NOT_UNDERSTOOD,
    OTHER_NAMES,
    BodyTooLarge,
    RemoteWriteScanner,
    WriteLimits,
)
from loadfactor_agent.write_request import AGENT_PREFIX

FIRST_MS, LAST_MS = 946_684_800_000, 4_133_980_799_999


class MalformedError(Exception):
    """The request is none."""


def read_request(data: bytes) -> list[tuple[dict[str, str], list[tuple[int, int]]]]:
    """Every series that can be kept with its labels and its samples, as (milliseconds, bits of the value)."""
    found = []
    for number, wire, content in read_fields(data):
        if number in (4, 5) or (number == 1 and wire != 2):
            raise MalformedError(number)
        if number == 1 and (series := _read_series(content)) is not None:
            found.append(series)
    return found


def _read_series(data: bytes) -> tuple[dict[str, str], list[tuple[int, int]]] | None:
    """None for one that is whole and cannot be kept."""
    labels: dict[str, str] = {}
    samples, begun, is_odd = [], False, False
    for number, wire, content in read_fields(data):
        if number in (1, 2) and wire != 2:
            raise MalformedError(number)
        is_odd |= number == 1 and begun
        if number == 1 and not begun:
            texts = {1: b"", 2: b""}
            for part, kind, text in read_fields(content):
                if part in (1, 2):
                    if kind != 2:
                        raise MalformedError(part)
                    texts[part] = text
            name, value = (text.decode(errors="surrogateescape") for text in texts.values())
            is_odd |= (
                not name
                or (value != "" and name in labels)
                or any("\ud800" <= letter <= "\udfff" for letter in name + value)
            )
            if value:
                labels[name] = value
        begun = begun or number != 1
        if number == 2:
            bits, at = 0, 0
            for part, kind, inside in read_fields(content):
                if (part, kind) == (1, 1):
                    bits = inside
                elif (part, kind) == (2, 0):
                    at = inside - (1 << 64) if inside >> 63 else inside
                elif part in (1, 2):
                    raise MalformedError(part)
            if FIRST_MS <= at <= LAST_MS:
                samples.append((at, bits))
    return None if is_odd or "__name__" not in labels else (labels, samples)


def read_fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and content of every field."""
    i = 0
    while i < len(data):
        tag, i = _read_varint(data, i)
        number, wire = tag >> 3, tag & 7
        if number == 0 or tag >> 32:
            raise MalformedError("tag")
        content: Any
        if wire == 0:
            content, i = _read_varint(data, i)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            if len(data) - i < size:
                raise MalformedError("ends")
            content = struct.unpack("<Q" if wire == 1 else "<I", data[i : i + size])[0]
            i += size
        elif wire == 2:
            size, i = _read_varint(data, i)
            if size > len(data) - i:
                raise MalformedError("length")
            content = data[i : i + size]
            i += size
        else:
            raise MalformedError("wire type")
        yield number, wire, content


def _read_varint(data: bytes, i: int) -> tuple[int, int]:
    found = 0
    for k in range(10):
        if i + k >= len(data):
            raise MalformedError("ends")
        byte = data[i + k]
        if k == 9 and byte > 1:
            raise MalformedError("long")
        found |= (byte & 127) << 7 * k
        if byte < 128:
            return found, i + k + 1
    raise MalformedError("long")


START = 1_772_409_600_000
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
UTIL = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "Hostname": "node-1"}


class Known:
    """Numbers series in the order first seen; those whose name begins with `other` are not understood."""

    def __init__(self) -> None:
        self.all: list[dict[str, str]] = []

    def identify(self, name: str, others: tuple[str, ...]) -> int:
        labels = {"__name__": name, **dict(zip(others[::2], others[1::2], strict=True))}
        if labels["__name__"].startswith("other"):
            return NOT_UNDERSTOOD
        if labels not in self.all:
            self.all.append(labels)
        return self.all.index(labels)


def make_scanner(**limits: int) -> tuple[RemoteWriteScanner, Known]:
    known = Known()
    return RemoteWriteScanner(known.identify, WriteLimits(**limits)), known


def scan_all(scanner: RemoteWriteScanner, known: Known, body: bytes) -> list[tuple[dict[str, str], int, float]]:
    points = scanner.scan(body)
    assert [column.dtype for column in points] == [np.int32, np.int64, np.float64]
    columns = (column.tolist() for column in points)
    return [(known.all[series], at_ms, value) for series, at_ms, value in zip(*columns, strict=True)]


def test_points_of_a_request() -> None:
    """Samples come as series, instants and values, in order, whatever stands beside them in the request."""
    scanner, known = make_scanner()
    power = {"__name__": "DCGM_FI_DEV_POWER_USAGE", "gpu": "0", "pod": "träin-0"}
    body = pack_request(
        [
            SentSeries(UTIL, [(START, 97.0), (START + 1000, 0.0), (START + 2000, -0.0)], exemplars=2),
            SentSeries(power, [(START, 512.25)], histograms=1),
            SentSeries({"__name__": "no_samples"}),
        ],
        metadata=pack_metadata("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %)."),
    )
    expected = [(UTIL, START, 97.0), (UTIL, START + 1000, 0.0), (UTIL, START + 2000, 0.0), (power, START, 512.25)]
    assert scan_all(scanner, known, body) == expected
    assert scan_all(scanner, known, body) == expected
    assert (scanner.samples, scanner.not_understood) == (8, {})
    assert {(skip.reason, skip.count, skip.is_read) for skip in scanner.skipped} == {
        ("exemplar", 2, False),
        ("histogram", 1, False),
    }


def test_an_empty_request() -> None:
    """A request without series has no points."""
    scanner, _ = make_scanner()
    for body in (pack_snappy(b""), pack_request([], metadata=pack_metadata("a", "b"))):
        assert len(scanner.scan(body).series) == 0


def test_marks_of_stale_series_keep_their_bits() -> None:
    """Prometheus' mark of a stale series is handed on as the NaN it is."""
    scanner, _ = make_scanner()
    value = scanner.scan(pack_request([SentSeries(UTIL, [(START, STALE)])])).value
    assert value.view(np.uint64).tolist() == [0x7FF0000000000002]


def test_series_that_are_not_understood_are_counted() -> None:
    """Samples that nobody understands are counted by metric name, and the names are bounded."""
    scanner, known = make_scanner()
    many = [SentSeries({"__name__": f"other_{k}"}, [(START, 1.0)] * 2) for k in range(MOST_NAMES + 5)]
    body = pack_request([many[0], SentSeries(UTIL, [(START, 1.0)]), *many[1:]])
    for _ in range(3):
        assert scan_all(scanner, known, body) == [(UTIL, START, 1.0)]
    assert scanner.not_understood["other_7"] == 6
    assert scanner.not_understood[OTHER_NAMES] == 5 * 6
    assert len(scanner.not_understood) == MOST_NAMES + 1


def test_what_an_agent_says_of_itself_is_no_riddle() -> None:
    """The agent's own counts are neither kept nor counted as not understood, by the scanner and by the decoder."""
    decoder = PrometheusDecoder()
    scanner = RemoteWriteScanner(decoder.identify_series, WriteLimits())
    names = (f"{AGENT_PREFIX}spool_bytes", f"{AGENT_PREFIX}gpus", "other")
    body = pack_request([SentSeries({"__name__": name, "instance": "n1"}, [(START, 1.0)]) for name in names])
    for _ in range(2):
        assert len(scanner.scan(body).series) == 0
    assert (scanner.not_understood, decoder.not_understood) == ({"other": 2}, {"other": 1})


def test_empty_labels_are_no_labels_and_order_does_not_matter() -> None:
    """The same labels in another order, or with empty ones beside them, are the same series."""
    scanner, known = make_scanner()
    pairs = list(UTIL.items())
    bodies = [pack_request([SentSeries(p, [(START, 1.0)])]) for p in (pairs, pairs[::-1], [*pairs, ("pod", "")])]
    assert {int(scanner.scan(body).series[0]) for body in bodies} == {0}
    assert known.all == [UTIL]


def test_series_are_asked_for_once() -> None:
    """A series is identified at first sight only, until the caller has its series forgotten."""
    asked = []
    scanner = RemoteWriteScanner(lambda *labels: asked.append(labels) or 5, WriteLimits())
    body = pack_request([SentSeries(UTIL, [(START, 1.0)]), SentSeries({"__name__": "x"}, [(START, 1.0)])])
    for _ in range(3):
        assert scanner.scan(body).series.tolist() == [5, 5]
    assert len(asked) == 2
    scanner.forget_series()
    scanner.scan(body)
    assert len(asked) == 4


def test_what_is_remembered_is_bounded() -> None:
    """Where there are more series than are remembered, all are forgotten and found again; points stay right."""
    for limits in ({"known_series": 7}, {"known_bytes": 3000, "labels_bytes": 300}):
        scanner, known = make_scanner(**limits)
        some = [{"__name__": "x", "device": f"{k}-{'y' * (k % 150)}"} for k in range(60)]
        for shuffle in range(4):
            chosen = random.Random(shuffle).choices(some, k=100)
            sent = [SentSeries(labels, [(START + k, k)]) for k, labels in enumerate(chosen)]
            expected = [(labels, START + k, k) for k, labels in enumerate(chosen)]
            assert scan_all(scanner, known, pack_request(sent)) == expected


@pytest.mark.long
def test_many_samples_and_series_in_one_request() -> None:
    """Room grows as a request needs it."""
    scanner, known = make_scanner()
    sent = [SentSeries({"__name__": "m", "k": str(k), "long": "x" * 200}, [(START, 1.0)] * 10) for k in range(4000)]
    points = scanner.scan(pack_request(sent))
    assert points.series.tolist() == np.repeat(np.arange(4000), 10).tolist()
    assert scanner.scan(pack_request(sent[::-1])).series.tolist() == np.repeat(np.arange(4000), 10)[::-1].tolist()
    assert len(known.all) == 4000


GOOD = pack_series(SentSeries(UTIL, [(START, 1.0)]))
LABELS = b"".join(pack_label(*pair) for pair in UTIL.items())
MALFORMED = {
    "series cut off": (GOOD[:-1], "reaches beyond"),
    "varint cut off": (GOOD + b"\x0a\xff", "in the middle of a value"),
    "varint too long": (b"\x0a" + b"\xff" * 11, "more than 64 bits"),
    "varint of 65 bits": (b"\x0a" + b"\xff" * 9 + b"\x02", "more than 64 bits"),
    "negative length": (b"\x0a" + pack_varint(-1), "reaches beyond"),
    "series as a number": (b"\x08\x01", "another type"),
    "sample as a number": (pack_field(1, LABELS + b"\x10\x01"), "another type"),
    "value as a number": (pack_field(1, LABELS + pack_field(2, b"\x08\x01")), "another type"),
    "time as a double": (pack_field(1, LABELS + pack_field(2, b"\x11" + bytes(8))), "another type"),
    "value cut off": (pack_field(1, LABELS + pack_field(2, b"\x09" + bytes(7))), "in the middle of a value"),
    "group": (b"\x33", "another type"),
    "field 0": (b"\x02\x00", "protobuf does not allow"),
    "remote_write 2.0": (pack_field(4, b"") + pack_field(4, b"__name__") + pack_field(5, b""), "remote_write 2.0"),
}


ONE = pack_sample(START, 1.0)
LONG = {"y": "y" * WriteLimits.labels_bytes}
ODD = {
    "no labels": (ONE, "no_name", False),
    "no metric name": (pack_label("gpu", "0") + ONE, "no_name", False),
    "empty metric name": (pack_label("__name__", "") + pack_label("gpu", "0") + ONE, "no_name", False),
    "labels behind samples": (LABELS + ONE + LABELS, "late_labels", True),
    "label without name": (LABELS + pack_label("", "0") + ONE, "no_label_name", True),
    "label twice": (LABELS + pack_label("gpu", "1") + ONE, "label_twice", True),
    "not UTF-8": (LABELS + pack_label("pod", b"\xff\xfe") + ONE, "not_utf8", True),
    "a thousand labels": (LABELS + b"".join(pack_label(f"l{k}", "v") for k in range(1000)) + ONE, "many_labels", True),
    "long labels": (LABELS + pack_label(*LONG.popitem()) + ONE, "long_labels", True),
    "no time": (LABELS + pack_sample(0, 1.0), "no_instant", True),
    "time in seconds": (LABELS + pack_sample(START // 1000, 1.0), "no_instant", True),
    "time in microseconds": (LABELS + pack_sample(START * 1000, 1.0), "no_instant", True),
    "negative time": (LABELS + pack_sample(-START, 1.0), "no_instant", True),
}


@pytest.mark.parametrize(("content", "reason", "is_read"), ODD.values(), ids=ODD.keys())
def test_an_odd_series_costs_its_neighbours_nothing(content: bytes, reason: str, is_read: bool) -> None:
    """It is skipped and counted with its reason, whenever it comes; what stands before and behind it is kept."""
    scanner, known = make_scanner()
    before, behind = UTIL | {"gpu": "1"}, UTIL | {"gpu": "2"}
    parts = (pack_series(SentSeries(before, [(START, 1.0)])), pack_series(SentSeries(behind, [(START, 2.0)])))
    for _ in range(3):
        body = parts[0] + pack_field(1, content) + pack_field(1, content) + parts[1]
        assert scan_all(scanner, known, pack_snappy(body)) == [(before, START, 1.0), (behind, START, 2.0)]
        (skip,) = scanner.skipped
        assert (skip.reason, skip.count, skip.is_read) == (reason, 2, is_read)
        assert len(skip.example) <= 120
        assert ("DCGM_FI_DEV_GPU_UTIL" in skip.example) == is_read
    assert scanner.not_understood == {}
    scanner.scan(pack_snappy(parts[0]))
    assert scanner.skipped == []


def test_the_good_samples_of_a_series_with_a_bad_time_are_kept() -> None:
    """Only the sample at no instant is skipped."""
    scanner, known = make_scanner()
    body = pack_request([SentSeries(UTIL, [(START, 1.0), (0, 2.0), (START + 1, 3.0)])])
    assert scan_all(scanner, known, body) == [(UTIL, START, 1.0), (UTIL, START + 1, 3.0)]
    assert [(skip.reason, skip.count) for skip in scanner.skipped] == [("no_instant", 1)]


@pytest.mark.parametrize("labels", [70, 300, 1500])
def test_labels_of_what_nobody_reads_have_no_bounds(labels: int) -> None:
    """Labels of nodes with Node Feature Discovery, and annotations of any length, are not understood, and not odd."""
    scanner, known = make_scanner()
    features = {"__name__": "other_node_labels", **{f"label_feature_{k}": "true" for k in range(labels)}}
    annotations = {"__name__": "other_annotations", "annotation": "y" * 300_000}
    twice = SentSeries([("__name__", "other_twice"), ("a", "1"), ("a", "2")], [(START, 1.0)])
    sent = [SentSeries(features, [(START, 1.0)]), SentSeries(UTIL, [(START, 1.0)])]
    body = pack_request([*sent, SentSeries(annotations, [(START, 1.0)]), twice])
    for _ in range(2):
        assert scan_all(scanner, known, body) == [(UTIL, START, 1.0)]
        assert scanner.skipped == []
    assert scanner.not_understood == {"other_node_labels": 2, "other_annotations": 2, "other_twice": 2}


@pytest.mark.parametrize(("content", "says"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_requests_are_refused(content: bytes, says: str) -> None:
    """A request that is none is refused in one line that says why; nothing of it counts, and the next one is taken."""
    scanner, known = make_scanner()
    scanner.scan(pack_request([SentSeries({"__name__": "first"}, [(START, 1.0)])]))
    for body in (content, pack_series(SentSeries({"__name__": "other"}, [(START, 2.0)])) + content):
        with pytest.raises(SourceError, match=says) as error:
            scanner.scan(pack_snappy(body))
        assert "\n" not in str(error.value)
        assert not isinstance(error.value, BodyTooLarge)
    assert (scanner.samples, scanner.not_understood) == (1, {})
    assert scan_all(scanner, known, pack_snappy(GOOD)) == [(UTIL, START, 1.0)]


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"garbage", b"\x0a\x00", GOOD, pack_snappy(GOOD)[:-3], b"\x80\x80\x80\x04" + b"\x00a" * 4]
)
def test_what_is_not_snappy_is_refused(body: bytes) -> None:
    """A body that snappy cannot unpack is refused."""
    scanner, _ = make_scanner()
    with pytest.raises(SourceError, match="snappy"):
        scanner.scan(body)


@pytest.mark.parametrize(
    ("limits", "sent", "says"),
    [
        ({"packed_bytes": 100}, [SentSeries(UTIL | {"pod": random.Random(1).randbytes(99).hex()})], "bytes packed"),
        ({"unpacked_bytes": 1000}, [SentSeries(UTIL, [(START, 1.0)] * 1000)], "bytes unpacked"),
        ({"series": 2}, [SentSeries(UTIL)] * 3, "3 series, and at most 2"),
        ({"samples": 2}, [SentSeries(UTIL, [(START, 1.0)] * 3)], "3 samples, and at most 2"),
    ],
)
def test_bounds(limits: dict[str, int], sent: list[SentSeries], says: str) -> None:
    """A request that passes a limit is refused as too large; one at the limit is taken."""
    scanner, _ = make_scanner(**limits)
    with pytest.raises(BodyTooLarge, match=says):
        scanner.scan(pack_request(sent))
    assert scanner.samples == 0
    make_scanner()[0].scan(pack_request(sent))


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    """What claims to be large is refused by its claim."""
    scanner, _ = make_scanner()
    with pytest.raises(BodyTooLarge, match="4,294,967,295 bytes unpacked"):
        scanner.scan(b"\xff\xff\xff\xff\x0f" + bytes(1000))


NAMES = st.text(min_size=1, max_size=12)
SERIES = st.builds(
    lambda labels, name, samples, exemplars: SentSeries(labels | {"__name__": name}, samples, exemplars),
    st.dictionaries(NAMES, NAMES, max_size=4),
    st.sampled_from(["a", "bb", "other"]),
    st.lists(st.tuples(st.integers(START, START + 10**9), st.floats(allow_nan=False)), max_size=3),
    st.integers(0, 1),
)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(requests=st.lists(st.lists(SERIES, max_size=6), min_size=1, max_size=4), room=st.integers(1, 5))
def test_any_requests(requests: list[list[SentSeries]], room: int) -> None:
    """Whatever is sent comes out, however few series are remembered."""
    scanner, known = make_scanner(known_series=room)
    for sent in requests:
        expected = [
            (dict(series.pairs), *sample)
            for series in sent
            if dict(series.pairs)["__name__"] != "other"
            for sample in series.samples
        ]
        assert scan_all(scanner, known, pack_request(sent)) == expected


@pytest.mark.parametrize("at_ms", [START, LATEST_MS, EARLIEST_MS])
def test_samples_however_they_are_written(at_ms: int) -> None:
    """A time before its value, a time in more bytes than it needs, a field twice or unknown: the samples are the same."""
    scanner, _ = make_scanner()
    value = b"\x09" + struct.pack("<d", 7.5)
    short = b"\x10" + pack_varint(at_ms)
    long = short[:-1] + bytes([short[-1] | 128]) + b"\x80\x00"
    unknown = b"\x18\x01" + b"\x22\x01x" + b"\x2d" + bytes(4) + b"\x31" + bytes(8)
    contents = [value + short, short + value, value + long, value + value + short, unknown + value + unknown + short]
    body = pack_snappy(pack_field(1, LABELS + b"".join(pack_field(2, content) for content in contents)))
    points = scanner.scan(body)
    assert points.at_ms.tolist() == [at_ms] * 5
    assert points.value.tolist() == [7.5] * 5


@pytest.mark.parametrize("at_ms", [LATEST_MS + 1, EARLIEST_MS - 1])
def test_instants_at_the_ends_of_the_range(at_ms: int) -> None:
    """The first instant outside the range is skipped."""
    scanner, known = make_scanner()
    assert scan_all(scanner, known, pack_request([SentSeries(UTIL, [(at_ms, 1.0)])])) == []
    assert [skip.reason for skip in scanner.skipped] == ["no_instant"]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A request with a few bytes changed, left out, doubled or cut off."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        i, way = rng.randrange(len(changed) + 1), rng.randrange(5)
        if way == 0:
            changed[i : i + 1] = bytes([rng.randrange(256)])
        elif way == 1:
            del changed[i : i + rng.choice((1, 2, 8, 40))]
        elif way == 2:
            changed[i:i] = rng.choice((b"\xff" * 10, b"\x80", b"\x0a", b"\x12", b"\x00", rng.randbytes(3)))
        elif way == 3:
            changed[i:i] = changed[i : i + rng.choice((1, 8, 60))]
        else:
            del changed[i:]
    return bytes(changed)


def test_damaged_requests_are_read_as_the_plain_reader_reads_them() -> None:
    """Requests damaged at random are taken or refused as by a reader without any cleverness, and never change later ones."""
    compare_damaged(1500, seed=1)


def compare_damaged(times: int, seed: int) -> tuple[int, int]:
    """Compares so many damaged requests; gives how many were taken and refused."""
    rng = random.Random(seed)
    metadata = pack_metadata("a", "b")
    sent = [SentSeries(UTIL | {"gpu": str(k)}, [(START + k, k + 0.5)] * (k % 3), k % 2, k % 2) for k in range(5)]
    whole = b"".join(map(pack_series, sent))
    known = Known()
    scanner = RemoteWriteScanner(known.identify, WriteLimits())
    taken = 0
    for _ in range(times):
        data = mutate(whole + metadata, rng)
        try:
            expected = [
                (labels, *sample)
                for labels, samples in read_request(data)
                if not labels["__name__"].startswith("other")
                for sample in samples
            ]
        except MalformedError:
            with pytest.raises(SourceError):
                scanner.scan(pack_snappy(data))
            continue
        points = scanner.scan(pack_snappy(data))
        columns = (points.series.tolist(), points.at_ms.tolist(), points.value.view(np.uint64).tolist())
        assert [(known.all[s], at, bits) for s, at, bits in zip(*columns, strict=True)] == expected
        taken += 1
    return taken, times - taken
