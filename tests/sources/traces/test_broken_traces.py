"""Traces that are broken or unusual: one line that says why, or what is left of them, said to be a part."""

import gzip
import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.traces.kineto_text import HAND, call, host, kernel, write
from tests.sources.traces.test_nsight_and_xplane import GPU, HOST, write_folder, write_sqlite

from loadfactor.base.errors import SourceError
from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.insight.traces.report import DeviceReport
from loadfactor.sources.protobuf import WireError
from loadfactor.sources.traces.json_events import JsonEvents
from loadfactor.sources.traces.json_tokens import EventField
from loadfactor.sources.traces.read import read_trace
from loadfactor.sources.traces.xplane_wire import read_space


def reports(path: Path) -> tuple[DeviceReport, ...]:
    return diagnose_captures(read_trace(path)).traces


def refusal(path: Path) -> str:
    with pytest.raises(SourceError) as refused:
        reports(path)
    text = str(refused.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.75, 0.9, 0.99])
@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_file_says_so(tmp_path: Path, share: float, packed: bool) -> None:
    """Cut anywhere, a trace is refused in one line or judged in part at most."""
    whole = json.dumps({"schemaVersion": 1, "traceEvents": list(HAND) * 50}).encode()
    whole = gzip.compress(whole) if packed else whole
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: int(share * len(whole))])
    found: tuple[DeviceReport, ...] = ()
    with suppress(SourceError):  # the file is cut before its first event
        found = reports(path)
    assert found or share <= 0.25
    for report in found:
        assert report.can_judge is not True
        assert "not whole" in " ".join(report.notes)


def test_forms_of_one_trace_say_the_same(tmp_path: Path) -> None:
    """A bare list, gzip under the name of JSON, gzip of two members, a byte order mark: all are read."""
    text = json.dumps(list(HAND)).encode()
    forms = {
        "bare.json": text,
        "packed.json": gzip.compress(text),
        "members.json.gz": gzip.compress(text[:300]) + gzip.compress(text[300:]),
        "mark.json": b"\xef\xbb\xbf" + json.dumps({"traceEvents": list(HAND), "displayTimeUnit": "ns"}).encode(),
    }
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
        (report,) = reports(tmp_path / name)
        assert (report.gpu_span_us, report.busy_us) == (44, 28), name


def test_names_that_are_no_json(tmp_path: Path) -> None:
    """Bare quotes and control characters in names, which profilers have written, lose no event."""
    text = json.dumps({"traceEvents": list(HAND)}).replace('"add"', '"ad"d\x01"')
    path = tmp_path / "quotes.json"
    path.write_text(text)
    (report,) = reports(path)
    assert (report.gpu_span_us, report.kernels, report.notes) == (44, 4, ())


def test_an_event_that_cannot_be_read_is_counted(tmp_path: Path) -> None:
    """What is no JSON, has no time, or no length is left out, and each is said."""
    text = json.dumps({"traceEvents": [*HAND, kernel("x", 50, 1, 9), kernel("y", 60, -1, 9), HAND[0]]})
    text = text.replace('"ts": 50', '"ts": NaN', 1).replace(
        '{"ph": "X", "cat": "kernel", "name": "add"', '{"ph" "cat" "add"'
    )
    path = tmp_path / "some.json"
    path.write_text(text)
    (report,) = reports(path)
    said = " ".join(report.notes)
    assert "1 events are no JSON" in said
    assert "1 events have a time that is no number" in said
    assert "1 GPU events have no length" in said
    assert report.kernels == 4  # without the one that was "add", with the one that is there twice


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.json", b"", "is empty"),
        ("other.json", b'{"name": "a config"}', "has no traceEvents"),
        ("page.html", b"<html></html>", "a page of HTML"),
        ("snapshot.pickle", b"\x80\x04\x95", "a pickle"),
        ("report.nsys-rep", b"anything", "nsys export"),
        ("archive.zip", b"PK\x03\x04abc", "a zip archive"),
        ("noise.bin", b"\x07\x08\x09 nothing", "no trace that is known"),
        ("bad.xplane.pb", b"\n\xff\xff\xff", "no XPlane that can be read"),
        ("lists.json", b'[["a", "b"], ["c"]]', "neither a trace nor a memory timeline"),
        ("other.sqlite", b"SQLite format 3\0 and no more", "damaged SQLite"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    """One line says what a file is instead of a trace, and what to do."""
    path = tmp_path / name
    path.write_bytes(content)
    assert words in refusal(path)


def test_times_in_nanoseconds_are_refused(tmp_path: Path) -> None:
    """Nanoseconds of today, read as microseconds, would lie beyond what 64 bits hold: no kernel is left, and that is said."""
    events = [{**event, "ts": 1_700_000_000_000_000_000 + round(1000 * event["ts"])} for event in HAND]
    (report,) = reports(write(tmp_path / "ns.json", events))
    assert report.can_judge is False
    assert "Nanoseconds?" in report.because[0]


def test_lengths_in_seconds_are_refused(tmp_path: Path) -> None:
    """Where every kernel lasts no nanosecond, the unit is another one."""
    events = [{**event, "dur": event["dur"] / 10**9} for event in HAND]
    (report,) = reports(write(tmp_path / "seconds.json", events))
    assert report.can_judge is False
    assert "unit" in report.because[0]


def test_without_correlations_the_cause_is_unknown(tmp_path: Path) -> None:
    """Where nobody says who launched what, all idle time is unknown, and the parts still sum to the span."""
    events = [{**event, "args": {k: v for k, v in event["args"].items() if k != "correlation"}} for event in HAND]
    (report,) = reports(write(tmp_path / "none.json", events))
    assert (report.idle_unknown_us, report.idle_us, report.busy_us) == (16, 16, 28)
    assert report.can_judge == "partly"


def test_a_number_of_two_processes_is_doubtful(tmp_path: Path) -> None:
    """A correlation number that two processes use tells nobody's launch."""
    (report,) = reports(write(tmp_path / "two.json", [*HAND, {**call(16, 1, 3), "pid": 100}]))
    assert report.idle_unknown_us == 3 + 6
    assert "several processes" in " ".join(report.notes)


def test_pairs_of_begin_and_end_are_slices(tmp_path: Path) -> None:
    """A slice that is written as its beginning and its end counts as one."""
    begun = {"ph": "B", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 3, "ts": 60}
    (report,) = reports(write(tmp_path / "pairs.json", [*HAND, begun, {**begun, "ph": "E", "ts": 66}]))
    assert (report.gpu_span_us, report.compute_us) == (66, 27)


def test_nothing_is_written_beside_a_trace(tmp_path: Path) -> None:
    """A folder that cannot be written is as good as another, and holds afterwards what it held before."""
    path = write(tmp_path / "trace.json", HAND)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    reports(path)
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    """Bytes of any kind within a list of events end in rows, or in a SourceError."""
    for whole in (content, b'{"traceEvents": [' + content, b'[{"ph": "X", "name": ' + content + b"}]"):
        events = JsonEvents("any", iter([whole]))
        try:
            assert all(batch.shape[1] == len(EventField) for batch in events.batches())
            assert events.texts is not None
        except SourceError:
            pass


TIMES = st.floats(0, 1e12).map(lambda value: round(value, 3))


@given(st.lists(st.tuples(TIMES, TIMES, st.text(max_size=8)), max_size=20), st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_rows_are_what_json_says(events: list[tuple[float, float, str]], size: int) -> None:
    """Times to the nanosecond and names of any characters are those of Python's own parser, in pieces of any size."""
    text = json.dumps([{"ph": "X", "name": name, "ts": at, "dur": length} for at, length, name in events]).encode()
    parsed = JsonEvents("any", iter([text[k : k + size] for k in range(0, len(text), size)]))
    rows = [row.copy() for batch in parsed.batches() for row in batch]
    assert not parsed.is_cut
    for row, (at, length, name) in zip(rows, events, strict=True):
        assert abs(row[EventField.START_NS] - at * 1000) < 1
        assert abs(row[EventField.DURATION_NS] - length * 1000) < 1
        assert (parsed.texts[row[EventField.NAME]] if row[EventField.NAME] >= 0 else "") == name


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_planes_or_refused(content: bytes) -> None:
    """Bytes of any kind are read as planes, or refused as none."""
    for whole in (content, b"\n" + bytes([min(len(content), 127)]) + content):
        with suppress(WireError):
            read_space(memoryview(whole))


ROUNDS = 120
KINDS = ("kineto", "packed", "xplane", "sqlite", "parquet", "arrow")


def make_trace(folder: Path, kind: str) -> Path:
    if kind in ("kineto", "packed"):
        events = [*HAND, kernel("gemm", 5, 10, 11, device=1), call(4, 1, 11), host("ProfilerStep#1", 0, 44)]
        text = json.dumps(
            {"schemaVersion": 1, "traceEvents": [{**e, "ts": e["ts"] + 50 * n} for n in range(20) for e in events]}
        )
        path = folder / "trace.json"
        path.write_bytes(gzip.compress(text.encode()) if kind == "packed" else text.encode())
        return path
    if kind == "xplane":
        path = folder / "host.xplane.pb"
        path.write_bytes(GPU + HOST)
        return path
    return (
        write_sqlite(folder / "export.sqlite") if kind == "sqlite" else write_folder(folder / "export", _format(kind))
    )


def _format(kind: str) -> str:
    return "parquet" if kind == "parquet" else "file"


def damage(content: bytes, rng: np.random.Generator) -> bytes:
    """The bytes cut, with some changed, with a piece left out or twice."""
    at = int(rng.integers(len(content)))
    way = int(rng.integers(4))
    if way == 0:
        return content[:at]
    if way == 1:
        changed = bytearray(content)
        for place in rng.integers(len(content), size=int(rng.integers(1, 6))):
            changed[place] = int(rng.integers(256))
        return bytes(changed)
    until = min(len(content), at + int(rng.integers(1, 200)))
    return content[:at] + content[until:] if way == 2 else content[:until] + content[at:]


def check(report: DeviceReport) -> None:
    if report.gpu_span_us is None:  # nothing is left of it
        assert report.can_judge is not True
        return
    parts = report.busy_us + report.idle_us
    assert parts == pytest.approx(report.gpu_span_us, abs=0.01, rel=1e-6)
    exposed = report.compute_us + report.comm_exposed_us + report.memcpy_exposed_us + report.memset_exposed_us
    assert exposed == pytest.approx(report.busy_us, abs=0.01, rel=1e-6)
    causes = report.idle_host_us + report.idle_launch_us + report.idle_device_us + report.idle_unknown_us
    assert causes == pytest.approx(report.idle_us, abs=0.01, rel=1e-6)


def find_refusal(path: Path) -> str:
    """The line with which a trace is refused; empty where it is read, and what is said of it adds up."""
    try:
        found = diagnose_captures(read_trace(path)).traces
    except SourceError as refused:
        return str(refused)
    for report in found:
        check(report)
    return ""


@pytest.mark.parametrize("kind", KINDS)
def test_any_damage_is_one_line_or_a_partial_answer(tmp_path: Path, kind: str) -> None:
    """Cut anywhere, or with bytes changed: refused in one line, or what is left adds up; the file is as it was."""
    rng = np.random.default_rng(17)
    path = make_trace(tmp_path, kind)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    whole = {file: file.read_bytes() for file in files}
    for _ in range(ROUNDS):
        file = files[int(rng.integers(len(files)))]
        broken = damage(whole[file], rng)
        file.write_bytes(broken)
        before = sorted(tmp_path.rglob("*"))
        refused = find_refusal(path)
        assert "\n" not in refused
        assert path.name in refused or not refused
        assert file.read_bytes() == broken
        assert sorted(tmp_path.rglob("*")) == before
        file.write_bytes(whole[file])
