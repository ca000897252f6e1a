"""Traces that are broken or unusual: one line that says why, or what is left of them, counted as a part."""

import copy
import gzip
import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.traces.kineto_text import HAND, Event, call, host, kernel, write
from tests.sources.traces.test_nsight_and_xplane import (
    GPU,
    HOST,
    PREFIX,
    TABLES,
    Rows,
    event,
    line,
    plane,
    write_folder,
    write_sqlite,
)

from loadfactor.base.errors import SourceError
from loadfactor.insight.traces.diagnose import diagnose_captures
from loadfactor.insight.traces.report import DeviceReport
from loadfactor.sources.protobuf import WireError
from loadfactor.sources.traces.json_events import JsonEvents
from loadfactor.sources.traces.json_tokens import EventField
from loadfactor.sources.traces.read import read_trace
from loadfactor.sources.traces.tables import SqliteTables
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
        write_sqlite(folder / "export.sqlite")
        if kind == "sqlite"
        else write_folder(folder / "export", ("parquet" if kind == "parquet" else "file"))
    )


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


@pytest.mark.long
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


DAY_NS = 86_400 * 10**9


def export(path: Path, tables: dict[str, Rows]) -> tuple[DeviceReport, ...]:
    with sqlite3.connect(path) as database:
        for table, rows in tables.items():
            names = list(rows[0])
            database.execute(f'CREATE TABLE "{table}" ({", ".join(names)})')
            places = ", ".join("?" for _ in names)
            database.executemany(f'INSERT INTO "{table}" VALUES ({places})', [tuple(row.values()) for row in rows])
    database.close()
    return reports(path)


def planes(path: Path, *content: bytes) -> tuple[DeviceReport, ...]:
    path.write_bytes(b"".join(content))
    return reports(path)


def test_two_gpus_in_one_file_are_two(tmp_path: Path) -> None:
    """Their kernels at the same time do not overlap: each GPU has its own span and its own busy time."""
    tables = copy.deepcopy(TABLES)
    kernels = tables[f"{PREFIX}KERNEL"]
    kernels += [{**kernels[0], "deviceId": 1, "start": 1000, "end": 3000, "correlationId": 9}]
    first, second = export(tmp_path / "two.sqlite", tables)
    assert (first.gpu_span_us, first.busy_us) == (9, 6.5)
    assert (second.gpu_span_us, second.busy_us, second.kernels) == (2, 2, 1)
    other = plane("/device:GPU:1", {1: "gemm"}, line(17, "Stream #17(Kernel)", event(1, 2_000_000, 4_000_000)))
    first, second = planes(tmp_path / "two.xplane.pb", GPU, other, HOST)
    assert (first.gpu_span_us, first.busy_us) == (15, 9)
    assert (second.gpu_span_us, second.busy_us) == (4, 4)


def test_without_correlation_numbers_idle_time_is_unknown(tmp_path: Path) -> None:
    """Where nobody says who launched what, all idle time is unknown, and judged in part at most."""
    tables = copy.deepcopy(TABLES)
    for rows in tables.values():
        for row in rows:
            row.pop("correlationId", None)
    kernels = plane(
        "/device:GPU:0",
        {1: "gemm"},
        line(17, "Stream #17(Kernel)", event(1, 0, 5_000_000), event(1, 9_000_000, 1_000_000)),
    )
    of_nsight = export(tmp_path / "none.sqlite", tables)
    of_xplane = planes(tmp_path / "none.xplane.pb", kernels)
    for (report,), idle in ((of_nsight, 2.5), (of_xplane, 4)):
        assert report.idle_us == report.idle_unknown_us == idle
        assert report.can_judge is not True


@pytest.mark.parametrize("kind", ["sqlite", "xplane"])
def test_a_clock_that_jumps_is_said(tmp_path: Path, kind: str) -> None:
    """A kernel a day after all others does not make the GPU idle for a day without a word: it is left out, and that is said."""
    if kind == "sqlite":
        tables = copy.deepcopy(TABLES)
        kernels = tables[f"{PREFIX}KERNEL"]
        kernels += [{**kernels[0], "start": DAY_NS, "end": DAY_NS + 1000, "correlationId": 9}]
        (report,) = export(tmp_path / "jump.sqlite", tables)
    else:
        late = line(19, "Stream #19(Kernel)", event(1, 0, 1_000_000), at_ns=DAY_NS)
        jumping = plane("/device:GPU:0", {1: "gemm"}, line(17, "Stream #17(Kernel)", event(1, 0, 5_000_000)), late)
        (report,) = planes(tmp_path / "jump.xplane.pb", jumping)
    assert report.notes or report.because
    assert report.can_judge is not True or report.gpu_span_us < 1000


RAW = [[-1, 1, 1000, 0], [10, 2, 500, 4], [20, 2, 300, 5], [30, 4, -500, 4], [40, 2, 100, 5]]
"""Parameters 1,000 from before; activations 500 and gradients 300 at the peak of 1,800; 1,400 at the end."""
SIZES = [
    [0, 10, 20, 30],
    [[0] * 9, [0, 1000, 0, 0, 0, 0, 0, 0, 0], [0, 1000, 0, 0, 0, 500, 300, 0, 0], [0, 900, 0, 0, 0, 0, 0, 0, 0]],
]


@pytest.mark.parametrize("content", [RAW, SIZES], ids=["raw", "json"])
def test_the_peak_and_what_it_was(tmp_path: Path, content: list[object]) -> None:
    """The peak of 1,800 bytes at 20 is told by category, and no time is judged."""
    path = tmp_path / "memory.json"
    path.write_text(json.dumps(content))
    found = diagnose_captures(read_trace(path))
    (report,) = found.traces
    assert (report.can_judge, found.findings) == (False, ())
    (use,) = report.memory
    assert (use.peak_allocated_bytes, use.peak_at_ns) == (1800, 20)
    assert use.by_category == {"parameter": 1000, "activation": 500, "gradient": 300}


def said(device: int, allocated: int, reserved: int, at_us: float) -> Event:
    args = {"Total Reserved": reserved, "Total Allocated": allocated, "Bytes": 1, "Device Id": device, "Device Type": 1}
    row = {"ph": "i", "cat": "cpu_instant_event", "s": "t"}
    return row | {"name": "[memory]", "pid": 1, "tid": 1, "ts": at_us, "args": args}


def test_allocators_in_a_trace(tmp_path: Path) -> None:
    """profile_memory=True: the most that was given out and held, a device each."""
    events = [*HAND, said(0, 100, 400, 1), said(0, 300, 400, 2), said(0, 200, 500, 3), said(1, 7, 9, 3)]
    (report,) = diagnose_captures(read_trace(write(tmp_path / "trace.json", events))).traces
    peaks = [(use.device, use.peak_allocated_bytes, use.peak_at_ns, use.peak_reserved_bytes) for use in report.memory]
    assert peaks == [(0, 300, 2000, 500), (1, 7, 3000, 9)]


def test_an_export_without_names_is_judged_without_them(tmp_path: Path) -> None:
    """An export that lost its table of names, or has a view in its place: kernels are unnamed, and all else is judged."""
    path = write_sqlite(tmp_path / "trace.sqlite")
    (whole,) = reports(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE StringIds RENAME TO Texts")
        database.execute("CREATE VIEW StringIds AS SELECT * FROM Texts")
        database.commit()
    (report,) = reports(path)
    assert report.busy_us == whole.busy_us
    assert {top.name.partition(" (")[0] for top in report.top_kernels if top.kind == "compute"} == {
        "unnamed",
        "CUDA graph",
    }
    check(report)


def test_a_cell_that_claims_gigabytes_is_refused(tmp_path: Path) -> None:
    """A text of SQLite that is longer than any name is not read."""
    path = tmp_path / "trace.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE StringIds (id INT, value TEXT)")
        database.execute("INSERT INTO StringIds VALUES (1, CAST(zeroblob(20000000) AS TEXT))")
        database.commit()
    with pytest.raises(SourceError, match="too big"):
        SqliteTables(path).texts("StringIds", "value")
