"""The scanner and the careful reader make the same of every log: rows, gaps and errors, in the same order."""

import gzip
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.nvidia_smi import samples as scanning
from loadfactor.sources.nvidia_smi import scan as query_scanner
from loadfactor.sources.nvidia_smi import sections
from loadfactor.sources.nvidia_smi.decoder import decode_logs
from loadfactor.sources.nvidia_smi.scan import QueryScanner
from loadfactor.sources.parsing.text_blocks import split_blocks

NEVER = 1 << 60
BERLIN = ReadOptions(timezone=ZoneInfo("Europe/Berlin"))
FIELDS = {  # what a heading may hold: its unit there, and cells that may stand below it
    "timestamp": (None, ("2024/10/27 02:30:00.000", "2024/10/27 02:29:59.9", "2024/03/31 02:30:00.12", "2023/02/29 00:00:00.000",
                         "2024/02/29 23:59:59.999", "2024/13/01 00:00:00", "2024/01/31 24:00:00.000", "1969/12/31 00:00:00.0",
                         "2199/12/31 00:00:00.1234", "2024/01/31 12:00:00.", "", "20240131 12:00:00", "2024/1/31 12:00:00")),
    "uuid": (None, ("GPU-aaaaaaaa-1", "GPU-bbbbbbbb-2", "GPU-cccccccc-3 ", "[N/A]", "GPU-00000000-0000", '"GPU-d"')),
    "index": (None, ("0", "1", "2", "10", "[Unknown Error]", "")),
    "pci.bus_id": (None, ("00000000:1B:00.0", "00000000:5E:00.0", "[N/A]")),
    "name": (None, ("NVIDIA H100 80GB HBM3", "Tesla T4", "Großer Rechner ☃", "[N/A]")),
    "hostname": (None, ("n1", "n2", " n1 ", "\tn1")),
    "mig.mode.current": (None, ("Enabled", "Disabled", "[N/A]")),
    "utilization.gpu": ("%", ("0 %", "97 %", "100 %", "5", "97%", "173 %", "[Not Supported]", "ERR!", "97 W", "-3 %", "1e1 %")),
    "memory.used": ("MiB", ("0 MiB", "81559 MiB", "4 MB", "1 GiB", "12 KiB", "9", "9.5 MiB", "[N/A]", "9 mib", "007 MiB")),
    "memory.total": ("MiB", ("81559 MiB", "[N/A]")),
    "power.draw": ("W", ("70.00 W", "612.25 W", "0.1 W", "[Unknown Error]", "123456789012.345 W", "1234567890123456.7 W", "5. W",
                         ".5 W", "70.00  W", "70.00 W x", "9" * 400)),
    "power.draw.average": ("W", ("71.5 W", "[N/A]", "N/A")),
    "clocks.sm": ("MHz", ("1980 MHz", "345 MHz", "+345 MHz", "[N/A]")),
    "temperature.gpu": (None, ("30", "85", "85 C", "N/A")),
    "clocks_event_reasons.active": (None, ("0x0000000000000000", "0x0000000000000004", "0xfffffffffffffffff", "0x", "[N/A]", "4")),
    "clocks_event_reasons.sw_power_cap": (None, ("Active", "Not Active", "[N/A]")),
    "pstate": (None, ("P0", "P8", 'a "quoted" cell', "")),
    "driver_version": (None, ("590.48.01", "590.48.01\u00a0")),
}  # fmt: skip
STRANGE = (
    "", "   ", "\t", "NVML: Driver Not Loaded", "a, b", ",,,,", "x" * 300, "# gpu sm", "#Date Time gpu sm",
    " 20240131 12:00:00 0 5", "====", "+----", "uuid, pid", "timestamp, index, utilization.gpu [%]", "\ufeff", "\r", "a\rb",
)  # fmt: skip


@contextmanager
def reading(longer_than: int, block_bytes: int = NEVER) -> Iterator[None]:
    """Parts of logs are scanned when they are longer than this, and logs read in blocks of this size."""
    with (
        patch.object(scanning, "PART_BYTES", longer_than),
        patch.object(sections, "split_blocks", partial(split_blocks, block_bytes=block_bytes)),
    ):
        yield


def decoded(data: bytes, options: ReadOptions = BERLIN, pieces: int = 1 << 20) -> list[object]:
    """Everything the decoder yields for a log, in its order, and the error it ends with."""
    chunks = [data[i : i + pieces] for i in range(0, len(data), pieces)]
    found: list[object] = []
    try:
        for item in decode_logs([Input("node-7:9400", chunks, "node-7.csv")], options):
            plain = isinstance(item, Gap)
            found.append(item if plain else (item.table, item.data.schema, item.data.to_pydict(), item.where))  # type: ignore[union-attr]
    except SourceError as error:
        found.append(str(error))
    return found


def assert_same(data: bytes, options: ReadOptions = BERLIN, block_bytes: int = NEVER) -> list[object]:
    """Scanned and read with care the log gives the same."""
    with reading(NEVER, block_bytes):
        wanted = decoded(data, options)
    with reading(-1, block_bytes):
        assert repr(decoded(data, options)) == repr(wanted)  # NaN is itself there, and -0.0 is not 0.0
    return wanted


@st.composite
def logs(draw) -> bytes:
    """A log of random fields, with cells as the tool writes them and as it never would, and lines that are no rows among them."""
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=8))
    if draw(st.booleans()):
        names = ["timestamp", "uuid", *names]
    units = draw(st.sampled_from(["both", "heading", "cells", "none", "wrong"]))
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n"]))
    comma = draw(st.sampled_from([", ", ",", " , "]))
    clean = draw(st.booleans())

    def head(name: str) -> str:
        unit = {"both": FIELDS[name][0], "heading": FIELDS[name][0], "wrong": "furlong"}.get(units)
        return f"{name} [{unit}]" if unit else name

    def cell(name: str, row: int) -> str:
        if name == "timestamp" and draw(st.integers(0, 9)):
            return f"2024/10/27 {row // 60 % 24:02d}:{row % 60:02d}:00.{draw(st.integers(0, 999)):03d}"
        unit, cells = FIELDS[name]
        text = cells[0] if clean else draw(st.sampled_from(cells))
        text = f"{draw(st.integers(0, 100_000))} {unit}" if unit and draw(st.booleans()) else text
        return text.removesuffix(f" {unit}") if units in ("heading", "none") else text

    heading = comma.join(map(head, names))
    lines = [heading]
    for row in range(draw(st.integers(0, 40))):
        lines.append(comma.join(cell(name, row) for name in names))
        if not clean and not draw(st.integers(0, 6)):
            lines.append(draw(st.sampled_from([*STRANGE, heading, *lines])))
    data = (end.join(lines) + end).encode()
    data = data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 2, 7, 30]))]
    at = draw(st.integers(0, len(data)))
    return data[:at] + draw(st.sampled_from([b"", b"", b"", b"", b"\0", b"\xff", b"\n", b",", b" ", b"\t"])) + data[at:]


@settings(max_examples=150, deadline=None)
@given(logs(), st.sampled_from([50, 400, NEVER]), st.sampled_from(["Europe/Berlin", "UTC", None, "at"]))
def test_any_log_reads_the_same(data, block_bytes, zone):
    """Random logs, cut into blocks anywhere: the same rows, gaps and messages, whoever reads them."""
    options = (
        ReadOptions(timezone=ZoneInfo(zone)) if zone not in (None, "at") else ReadOptions(at_ms=77 if zone else None)
    )
    assert_same(data, options, block_bytes)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(sorted(set(FIELDS) - {"timestamp"})), st.text('0123456789.eE+-xX %MiBWHz[]"\t/N A,\n', max_size=12)
)
def test_any_cell_means_the_same(name, text):
    """Whatever stands in a cell, number or not, it is the same value and the same gap."""
    rows = "".join(f"2024/01/31 12:00:{second:02d}.000, 0, {text}\n" for second in range(3))
    assert_same(f"timestamp, index, {name}\n{rows}".encode())


@settings(max_examples=100, deadline=None)
@given(st.decimals(0, 10**9, places=None, allow_nan=False), st.integers(0, 9))
def test_any_number_rounds_the_same(number, places):
    """Numbers of any length become the same floating-point number to the last bit."""
    assert_same(f"timestamp, index, power.draw [W]\n2024/01/31 12:00:00.000, 0, {number:.{places}f} W\n".encode())


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1960, 2210),
    st.integers(0, 13),
    st.integers(0, 32),
    st.integers(0, 25),
    st.sampled_from(["", ".5", ".999", ".1234"]),
)
def test_any_day_is_the_same_instant(year, month, day, hour, fraction):
    """Days that exist and days that do not, in the calendar of both."""
    assert_same(
        f"timestamp, index, power.draw\n{year:04d}/{month:02d}/{day:02d} {hour:02d}:00:00{fraction}, 0, 5\n".encode()
    )


def plain_log(rounds: int, gpus: int = 4) -> bytes:
    """A log as the tool writes it, with one GPU that does not know its power."""
    head = "timestamp, index, uuid, name, utilization.gpu [%], power.draw [W], clocks_event_reasons.active\n"
    return (head + "".join(
        f"2024/10/{27 + i // 1440} {i // 60 % 24:02d}:{i % 60:02d}:00.{g:03d}, {g}, GPU-{g + 1:08x}, NVIDIA H100 80GB HBM3, "
        f"{i * g % 101} %, {'[N/A]' if g == 3 else f'{70 + i / 7:.2f} W'}, 0x{i % 3 * 4:016x}\n"
        for i in range(rounds) for g in range(gpus)
    )).encode()  # fmt: skip


def test_plain_logs_are_scanned_whole():
    """Nothing but the first line with each text is looked at with care, and not measured is counted."""
    careful = 0
    split = QueryScanner.scan

    def watch(self, data, read_line):
        def count(line: bytes):
            nonlocal careful
            careful += 1
            return read_line(line)

        found = split(self, data, count)
        assert found is not None
        return found

    with patch.object(QueryScanner, "scan", watch):
        items = assert_same(plain_log(2000), block_bytes=100_000)
    assert careful == 0
    gaps = {item.what: item.count for item in items if isinstance(item, Gap)}
    assert gaps.pop("[N/A] in power.draw") == 2000
    assert list(gaps) in ([], ["row in a repeated hour, taken for its first pass"])


def test_strange_lines_cost_one_line_each():
    """A few lines that are no rows, or rows written otherwise, leave the rest to the scanner, in their places."""
    lines = plain_log(300).splitlines(keepends=True)
    lines[100] = b"Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.\n"
    lines[200] = lines[200].replace(b"2024/10/27", b"2024-10-27")
    lines[300] = b"\n"
    lines[400] = lines[400].replace(b"NVIDIA", b'"NVIDIA')
    items = assert_same(b"".join(lines))
    assert sum(len(item[2]["to_utc"]) for item in items if isinstance(item, tuple) and item[0] == "samples") == 1198


def test_blanks_around_a_name_make_no_other_gpu():
    """A GPU that lost its UUID is named as the first row of its kind is, however its cells are padded."""
    head = "timestamp, uuid, pci.bus_id, hostname, power.draw [W]\n"
    rows = [("[N/A]", " n1 "), ("GPU-a", "n1"), ("[N/A]", "n1")]
    text = head + "".join(f"2024/01/31 12:00:0{i}.000, {u}, 1B:00.0, {n}, 5 W\n" for i, (u, n) in enumerate(rows))
    (samples, *_) = assert_same(text.encode())
    assert samples[2]["device_id"] == ["n1/1B:00.0", "GPU-a", "n1/1B:00.0"]  # type: ignore[index]


def test_headings_repeated_by_a_loop_are_passed_over():
    """A script that calls the tool every minute repeats the heading every time; what it heads is one log, and scanned."""
    head, *rows = plain_log(500).splitlines(keepends=True)
    looped = b"".join(head + b"".join(rows[i : i + 4]) for i in range(0, len(rows), 4))
    assert assert_same(looped, block_bytes=20_000)[-1] == assert_same(plain_log(500), block_bytes=20_000)[-1]
    assert_same(looped + b"uuid, pid\nGPU-a, 7\n" + looped)


def test_more_texts_than_the_table_holds(monkeypatch):
    """A log with more GPUs, or more strange cells, than the scanner keeps is read with care, and the same."""
    monkeypatch.setattr(query_scanner, "_TEXTS_MAX", 8)
    assert_same(plain_log(5, gpus=30), block_bytes=500)
    rows = "".join(f"2024/01/31 12:{i // 60:02d}:{i % 60:02d}.000, 0, {i}e0 W\n" for i in range(200))
    monkeypatch.undo()
    assert_same(f"timestamp, index, power.draw [W]\n{rows}".encode())


def test_a_log_is_scanned_when_it_is_long():
    """Short logs never wait for the compiler; after 16 MiB of them, or of one, the rest is scanned."""
    part = b"x" * (1 << 20)
    with patch.dict(sys.modules):
        del sys.modules[scanning.SCANNER]
        counting = scanning.Scanning()
        assert [counting.pays(part) for _ in range(17)] == [False] * 16 + [True]
    assert scanning.Scanning().pays(part)
    assert not scanning.Scanning().pays(b"x")


@pytest.mark.parametrize("name", ["nvidia-geforce-rtx-2080-super__595.71.05", "nvidia-h100-80gb-hbm3__590.48.01"])
def test_recorded_sessions_read_the_same(shared, name):
    """Sessions that mix query logs, dmon and XML."""
    path: Path = shared / "data" / "metrics" / "nvidia_smi_captures" / f"linux-x86_64__{name}.txt.gz"
    items = assert_same(gzip.decompress(path.read_bytes()))
    assert any(isinstance(item, tuple) for item in items)


def test_rows_are_those_of_the_table():
    """What is scanned has the types of the table, and nulls where nothing was measured."""
    with reading(-1):
        (rows, *_) = (i for i in decode_logs([Input("x", [plain_log(2)], "x.csv")], BERLIN) if isinstance(i, Rows))
    assert rows.data.schema.field("power_w").type == pa.float64()
    assert rows.data["power_w"].to_pylist()[:4] == [70.0, 70.0, 70.0, None]
    assert rows.data["throttle_mask"].to_pylist() == [0] * 4 + [4] * 4
