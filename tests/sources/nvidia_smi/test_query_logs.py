"""Query logs whole: every number and day is read to the last bit, and a line that is no row costs that line alone."""

from calendar import monthrange
from datetime import datetime
from functools import partial
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.nvidia_smi import sections
from loadfactor.sources.nvidia_smi.sections import decode_logs
from loadfactor.sources.parsing.text_blocks import split_blocks

BERLIN = ReadOptions(timezone=ZoneInfo("Europe/Berlin"))


def decode(data: bytes, block_bytes: int = 1 << 60, options: ReadOptions = BERLIN) -> list[Rows | Gap]:
    """Everything the decoder yields for a log that is read in blocks of this size."""
    with patch.object(sections, "split_blocks", partial(split_blocks, block_bytes=block_bytes)):
        return list(decode_logs([Input("node-7:9400", [data], "node-7.csv")], options))


def list_samples(items: list[Rows | Gap]) -> list[dict[str, object]]:
    """The samples of all batches."""
    return [
        row for item in items if isinstance(item, Rows) and item.table == "samples" for row in item.data.to_pylist()
    ]


@settings(max_examples=100, deadline=None)
@given(st.decimals(0, 10**9, places=None, allow_nan=False), st.integers(0, 9))
def test_any_number_is_the_nearest(number, places):
    """Numbers of any length become the floating-point number that Python reads."""
    text = f"{number:.{places}f}"
    (row,) = list_samples(decode(f"timestamp, index, power.draw [W]\n2024/01/31 12:00:00.000, 0, {text} W\n".encode()))
    assert row["power_w"] == float(text)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1970, 2199),
    st.integers(0, 13),
    st.integers(0, 32),
    st.integers(0, 25),
    st.sampled_from(["", ".5", ".999"]),
)
def test_any_day_is_its_instant(year, month, day, hour, fraction):
    """Days that exist have their instant; a row of a day or an hour that does not is counted."""
    log = f"timestamp, index, power.draw\n{year:04d}/{month:02d}/{day:02d} {hour:02d}:00:00{fraction}, 0, 5\n".encode()
    items = decode(log, options=ReadOptions(timezone=ZoneInfo("UTC")))
    if 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1] and hour < 24:
        at = datetime(year, month, day, hour, tzinfo=ZoneInfo("UTC")).timestamp() + float(f"0{fraction or '.0'}")
        assert [row["to_utc"] for row in list_samples(items)] == [round(at * 1000)]
    else:
        assert Gap("node-7:9400", "row without a readable time in timestamp") in items


def plain_log(rounds: int, gpus: int = 4) -> bytes:
    """A log as the tool writes it, with one GPU that does not know its power."""
    head = "timestamp, index, uuid, name, utilization.gpu [%], power.draw [W], clocks_event_reasons.active\n"
    return (head + "".join(
        f"2024/10/{27 + i // 1440} {i // 60 % 24:02d}:{i % 60:02d}:00.{g:03d}, {g}, GPU-{g + 1:08x}, NVIDIA H100 80GB HBM3, "
        f"{i * g % 101} %, {'[N/A]' if g == 3 else f'{70 + i / 7:.2f} W'}, 0x{i % 3 * 4:016x}\n"
        for i in range(rounds) for g in range(gpus)
    )).encode()  # fmt: skip


def test_what_is_not_measured_is_counted():
    """A GPU that does not know its power makes one gap, and blocks make no difference."""
    items = decode(plain_log(2000), block_bytes=100_000)
    gaps = {item.what: item.count for item in items if isinstance(item, Gap)}
    assert gaps.pop("[N/A] in power.draw") == 2000
    assert list(gaps) in ([], ["row in a repeated hour, taken for its first pass"])
    assert list_samples(items) == list_samples(decode(plain_log(2000)))


def test_strange_lines_cost_one_line_each():
    """A few lines that are no rows, or rows written otherwise, leave the rest in their places."""
    lines = plain_log(300).splitlines(keepends=True)
    lines[100] = b"Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.\n"
    lines[200] = lines[200].replace(b"2024/10/27", b"2024-10-27")
    lines[300] = b"\n"
    lines[400] = lines[400].replace(b"NVIDIA", b'"NVIDIA')
    assert len(list_samples(decode(b"".join(lines)))) == 1198


def test_blanks_around_a_name_make_no_other_gpu():
    """A GPU that lost its UUID is named as the first row of its kind is, however its cells are padded."""
    head = "timestamp, uuid, pci.bus_id, hostname, power.draw [W]\n"
    rows = [("[N/A]", " n1 "), ("GPU-a", "n1"), ("[N/A]", "n1")]
    text = head + "".join(f"2024/01/31 12:00:0{i}.000, {u}, 1B:00.0, {n}, 5 W\n" for i, (u, n) in enumerate(rows))
    assert [row["device_id"] for row in list_samples(decode(text.encode()))] == ["n1/1B:00.0", "GPU-a", "n1/1B:00.0"]


def test_headings_repeated_by_a_loop_are_passed_over():
    """A script that calls the tool every minute repeats the heading every time; what it heads is one log."""
    head, *rows = plain_log(500).splitlines(keepends=True)
    looped = b"".join(head + b"".join(rows[i : i + 4]) for i in range(0, len(rows), 4))
    assert list_samples(decode(looped, 20_000)) == list_samples(decode(plain_log(500), 20_000))


def test_rows_are_those_of_the_table():
    """Columns have the types of the table, and nulls where nothing was measured."""
    (rows, *_) = (item for item in decode(plain_log(2)) if isinstance(item, Rows))
    assert rows.data.schema.field("power_w").type == pa.float64()
    assert rows.data["power_w"].to_pylist()[:4] == [70.0, 70.0, 70.0, None]
    assert rows.data["throttle_mask"].to_pylist() == [0] * 4 + [4] * 4
