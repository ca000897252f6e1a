"""Logs of --query-gpu: whatever was asked for, in whatever units, the same rows; a line that is no row costs that line alone."""

import gzip
from calendar import monthrange
from datetime import UTC, datetime
from functools import partial
from unittest.mock import patch
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Gap, Input, ReadOptions, Rows
from loadfactor.sources.nvidia_smi import sections
from loadfactor.sources.nvidia_smi.sections import decode_logs
from loadfactor.sources.parsing.text_blocks import split_blocks

A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000001", "GPU-bbbbbbbb-0000-0000-0000-000000000002"
LOG = f"""timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], power.draw [W], clocks.sm [MHz]
2024/01/31 12:00:00.000, 0, {A}, NVIDIA H100 80GB HBM3, 97 %, 1024 MiB, 612.25 W, 1980 MHz
2024/01/31 12:00:00.004, 1, {B}, NVIDIA H100 80GB HBM3, 0 %, 0 MiB, 70.00 W, 345 MHz
2024/01/31 12:00:30.000, 0, {A}, NVIDIA H100 80GB HBM3, 98 %, 1024 MiB, 600.00 W, 1980 MHz
2024/01/31 12:00:30.004, 1, {B}, NVIDIA H100 80GB HBM3, [N/A], [N/A], [Unknown Error], 345 MHz
"""


def ms(*when: int) -> int:
    """Milliseconds since 1970 of a UTC time."""
    return int(datetime(*when, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type]


def test_values_and_units(read):
    """Percent becomes a share, MiB bytes, MHz hertz; the timestamp is the end of the interval."""
    seen = read(LOG)
    assert seen.column("device_id") == [A, B, A, B]
    assert seen.column("to_utc")[0] == ms(2024, 1, 31, 12)
    assert seen.column("busy_share") == [0.97, 0.0, 0.98, None]
    assert seen.column("mem_used_bytes") == [2**30, 0, 2**30, None]
    assert seen.column("power_w") == [612.25, 70, 600, None]
    assert seen.column("sm_clock_hz") == [1.98e9, 3.45e8, 1.98e9, 3.45e8]
    assert "from_utc" not in seen.samples[0]


def test_devices_are_seen_from_one_step_before_their_first_sample(read):
    """A device is there from one step before its first sample to its last, under its catalog id."""
    first = read(LOG, node="node-7", pool="h100").devices[0]
    device = {"device_id": A, "node": "node-7", "accelerator": "h100-sxm", "pool": "h100", "gpu_index": 0.0}
    assert first == device | {"from_utc": ms(2024, 1, 31, 11, 59, 30), "to_utc": ms(2024, 1, 31, 12, 0, 30)}


def test_not_measured_is_null_and_counted(read):
    """What was not measured is null, never zero, and each kind is counted once."""
    gaps = read(LOG).gaps
    assert gaps == {"[N/A] in utilization.gpu": 1, "[N/A] in memory.used": 1, "[Unknown Error] in power.draw": 1}


@pytest.mark.parametrize(
    "cut",
    [
        lambda t: t.replace(" %,", ",").replace(" MiB,", ",").replace(" W,", ",").replace(" MHz\n", "\n"),  # nounits
        lambda t: t.replace(" [%]", "").replace(" [MiB]", "").replace(" [W]", "").replace(" [MHz]", ""),
        lambda t: t.replace(", ", ","),
        lambda t: t.replace("\n", "\r\n"),
        lambda t: t.encode("utf-16"),  # as PowerShell writes it
        lambda t: "\ufeff" + t,
        lambda t: t.replace("clocks.sm", "clocks.current.sm").replace("uuid", "gpu_uuid").replace(" name", " gpu_name"),
        lambda t: "\n" + t.replace("\n2024/01/31 12:00:30", "\n\n2024/01/31 12:00:30", 1),
    ],
)
def test_other_spellings_are_the_same_log(read, cut):
    """Units in heading, cells or neither, CRLF, a byte order mark, old names and blank lines change nothing."""
    assert read(cut(LOG)).samples == read(LOG).samples


def test_gzip(read):
    """A gzip file is read as it is."""
    assert read(LOG, name="gpu.csv.gz").samples == read(LOG).samples


def test_appended_log_with_other_fields(read):
    """A log that was appended to after a restart, with other fields, goes on under its new heading."""
    seen = read(LOG + f"timestamp, power.draw [W], uuid\n2024/01/31 12:01:00.000, 99.00 W, {A}\n")
    assert seen.samples[-1] == {"device_id": A, "to_utc": ms(2024, 1, 31, 12, 1), "power_w": 99.0}


def test_a_loop_that_repeats_the_heading(read):
    """A script that calls the tool again and again repeats the heading; the rows are those of one log."""
    head, *rows = LOG.splitlines(keepends=True)
    seen = read("".join(head + row for row in rows))
    assert seen.samples == read(LOG).samples
    assert seen.gaps == read(LOG).gaps


def test_messages_among_the_rows_are_counted(read):
    """What the tool printed into its log beside the rows is a gap."""
    seen = read(LOG + "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.\n")
    assert len(seen.samples) == 4
    assert seen.gaps["skipped: a line that is no row of its heading"] == 1


@pytest.mark.parametrize("cut", [1, 2, 5, 40])
def test_a_cut_last_line_is_never_a_wrong_number(read, cut):
    """A log cut off while it was written loses its last line or last cell, and no number is made up."""
    whole, seen = read(LOG).samples, read(LOG[:-cut])
    assert seen.samples[:3] == whole[:3]
    assert all(v is None or v == whole[3].get(k) for row in seen.samples[3:] for k, v in row.items())


def test_a_cut_number_without_unit_is_not_read(read):
    """98 cut to 9 would be a lie, so a number without unit at an unfinished end is not read."""
    seen = read("timestamp, index, utilization.gpu\n2024/01/31 12:00:00, 0, 97\n2024/01/31 12:00:30, 0, 9")
    assert seen.column("busy_share") == [0.97, None]
    assert seen.gaps["last cell of a last line without an end: it may be cut off"] == 1


def test_a_lost_gpu_keeps_its_name(read):
    """Rows of a GPU that fell off the bus are of the GPU with that number."""
    seen = read(LOG + "2024/01/31 12:01:00.000, 1, [GPU is lost], [GPU is lost], [GPU is lost], ERROR, [N/A], [N/A]\n")
    assert seen.samples[-1]["device_id"] == B
    assert len(seen.devices) == 2


def test_a_file_name_is_no_place(read):
    """The node of a GPU with a UUID is not guessed from the file; logs of one GPU in many files stay one GPU."""
    assert read(LOG, name="monday.csv").devices[0]["node"] is None
    told = LOG.replace("index, ", "hostname, ", 1).replace(", 0, GPU", ", n1, GPU").replace(", 1, GPU", ", n1, GPU")
    assert {d["node"] for d in read(told).devices} == {"n1"}


def test_without_uuid_by_node_and_number(read):
    """A GPU without UUID is called by its node, which is the file's name unless told, and its number."""
    text = "timestamp, index, utilization.gpu\n2024/01/31 12:00:00, 3, 97\n"
    assert read(text, name="node-7.log").column("device_id") == ["node-7/3"]
    assert read(text, node="n").column("device_id") == ["n/3"]


def test_one_gpu_needs_no_name(read):
    """A log of one GPU that asked for no name is of GPU 0; bursts of rows are several GPUs and refused."""
    one = "timestamp, utilization.gpu\n" + "".join(f"2024/01/31 12:00:{s:02d}.000, 5 %\n" for s in range(9))
    assert set(read(one).column("device_id")) == {"gpu/0"}
    two = one + "".join(f"2024/01/31 12:01:{s:02d}.00{g}, 5 %\n" for s in range(30) for g in (0, 3))
    with pytest.raises(SourceError, match="rows of several GPUs"):
        read(two)
    slower = one + "".join(f"2024/01/31 12:{m:02d}:00.000, 5 %\n" for m in range(1, 9))
    assert len(read(slower).samples) == 17  # its step was changed
    masked = "timestamp, uuid, utilization.gpu\n2024/01/31 12:00:00, GPU-00000000-0000-0000-0000-000000000000, 97 %\n"
    assert read(masked).column("device_id") == ["gpu/0"]


def test_utilization_means_nothing_under_mig(read):
    """GPU_UTIL of a GPU divided by MIG is not a measurement."""
    seen = read(f"timestamp, uuid, mig.mode.current, utilization.gpu [%]\n2024/01/31 12:00:00.000, {A}, Enabled, 0 %\n")
    assert seen.column("busy_share") == [None]


@pytest.mark.parametrize("era", ["event", "throttle"])
def test_clock_event_reasons(read, era):
    """The mask comes from its own column or bit by bit; without all that slows a GPU, no bit set is unknown."""

    def of(names, cells):
        fields = ", ".join(f"clocks_{era}_reasons.{n}" for n in names)
        return read(f"timestamp, uuid, {fields}\n2024/01/31 12:00:00.000, {A}, {cells}\n").column("throttle_mask")

    assert of(["active"], "0x0000000000000084") == [0x84]
    assert of(["sw_power_cap", "hw_slowdown"], "Active, Not Active") == [4]
    assert of(["sw_power_cap"], "Not Active") == [None]
    all_four = ["sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown"]
    assert of(all_four, "Not Active, Not Active, Not Active, Not Active") == [0]
    assert of(all_four, "Not Active, [N/A], Not Active, Not Active") == [None]


def test_out_of_range_values_are_handed_on(read):
    """173 % is not clipped; the door of the store refuses it."""
    assert read(LOG.replace("97 %", "173 %")).column("busy_share")[0] == 1.73


def test_the_repeated_hour(read):
    """Where the clock is set back the order of the rows says which pass a row is of."""
    hours = [(1, 30), (2, 30), (2, 59), (2, 0), (2, 30), (2, 59), (3, 0)]
    text = "timestamp, index, power.draw\n" + "".join(f"2024/10/27 {h:02d}:{m:02d}:00.000, 0, 50\n" for h, m in hours)
    seen = read(text, timezone=ZoneInfo("Europe/Berlin"))
    start = ms(2024, 10, 26, 23, 30)
    assert [(t - start) // 60_000 for t in seen.column("to_utc")] == [0, 60, 89, 90, 120, 149, 150]


def test_rows_a_little_out_of_order_around_the_repeated_hour(read):
    """Just after the repeated hour a row from just before its end is of the second pass."""
    times = ["02:59:59", "02:00:00", "02:59:58", "03:00:00", "02:59:59", "03:00:01"]
    text = "timestamp, index, power.draw\n" + "".join(f"2024/10/27 {t}.000, 0, 50\n" for t in times)
    seen = read(text, timezone=ZoneInfo("Europe/Berlin"))
    two = ms(2024, 10, 27, 2)
    assert [(t - two) // 1000 for t in seen.column("to_utc")] == [-3601, -3600, -2, 0, -1, 1]


def test_a_log_that_begins_in_the_second_pass(read):
    """A log that begins in the repeated hour and runs on without a step back began in the second pass."""
    text = "timestamp, index, power.draw\n" + "".join(
        f"2024/10/27 {t}:00.000, 0, 50\n" for t in ("02:30", "02:45", "03:00")
    )
    seen = read(text, timezone=ZoneInfo("Europe/Berlin"))
    assert seen.column("to_utc") == [ms(2024, 10, 27, 1, 30), ms(2024, 10, 27, 1, 45), ms(2024, 10, 27, 2, 0)]


def test_times_that_do_not_exist(read):
    """A local time that the clock skipped is a gap."""
    text = "timestamp, index, power.draw\n2024/03/31 02:30:00.000, 0, 50\n2024/03/31 03:30:00.000, 0, 50\n"
    seen = read(text, timezone=ZoneInfo("Europe/Berlin"))
    assert seen.column("to_utc") == [ms(2024, 3, 31, 1, 30)]
    assert seen.gaps == {"row at a local time that does not exist (clock set forward)": 1}


def test_reordered_and_repeated_rows_are_kept(read):
    """Rows out of order, or twice, are handed on as they are; the extent is that of all of them."""
    lines = LOG.splitlines(keepends=True)
    seen = read("".join([lines[0], *lines[:0:-1], lines[1]]))
    assert len(seen.samples) == 5
    extents = {d["device_id"]: (d["from_utc"], d["to_utc"]) for d in seen.devices}
    assert extents[A] == (ms(2024, 1, 31, 11, 59, 30), ms(2024, 1, 31, 12, 0, 30))


def test_a_snapshot_takes_the_time_it_is_told(read):
    """Without a timestamp column one row a GPU can be placed with --at, several cannot."""
    text = f"uuid, utilization.gpu [%]\n{A}, 5 %\n{B}, 6 %\n"
    assert read(text, at_ms=77_000).column("to_utc") == [77_000, 77_000]
    with pytest.raises(SourceError, match="several rows of GPU-aaaaaaaa"):
        read(text + f"{A}, 5 %\n", at_ms=77_000)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("\n\n", "no readings of nvidia-smi"),
        ("a,b,c\n1,2,3\n", "no readings of nvidia-smi"),
        (b"\x7fELF\x00\x01", "not text"),
        (b"\xff\xd8\xff\xe0garbage", "not text"),
        (b"PK\x03\x04", "a zip archive"),
        (LOG.split("\n", 1)[1], "rows without a heading"),
        ("0, 97, 1024\n", "no readings of nvidia-smi"),
        (f"uuid, utilization.gpu [%]\n{A}, 5 %\n", "--at"),
        (f"timestamp, uuid\n2024/01/31 12:00:00.000, {A}\n", "none of its columns is a measurement"),
        ("timestamp, gpu_uuid, pid, used_gpu_memory [MiB]\n", "a list of processes"),
        (LOG + f"2024-01-31T13:00:00Z, 0, {A}, x, 1 %, 1 MiB, 1 W, 1 MHz\n", "mixed"),
    ],
)
def test_refusals_say_what_to_do(read, text, says):
    """What cannot be read is refused in one line that names the file."""
    with pytest.raises(SourceError, match=says) as refused:
        read(text)
    assert "gpu.csv" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_local_times_need_a_zone(read):
    """A local time without a zone is never guessed."""
    with pytest.raises(SourceError, match="--timezone"):
        read(LOG, timezone=None)


def test_times_with_their_zone_need_none(read):
    """A time that carries its zone is an instant already."""
    text = LOG.replace(".000,", ".000+01:00,").replace(".004,", ".004+01:00,").replace("2024/01/31 12", "2024-01-31T12")
    assert read(text, timezone=None).column("to_utc")[0] == ms(2024, 1, 31, 11)


def test_truncated_gzip(tmp_path, read_paths, read):
    """A gzip file that breaks off is named as such."""
    read(LOG * 50, name="a.csv.gz")
    broken = tmp_path / "b.csv.gz"
    broken.write_bytes((tmp_path / "a.csv.gz").read_bytes()[:-20])
    with pytest.raises(SourceError, match="truncated gzip"):
        read_paths(broken)


def test_an_endless_line_is_refused_at_once(read):
    """A line of more than 1 MiB is refused with its number before the rest is read."""
    with pytest.raises(SourceError, match="line 6: a line of more than 1 MiB"):
        read(LOG + "x" * (3 << 20), name="long.csv.gz")


def test_missing_files_and_empty_folders(tmp_path, read_paths):
    """A path that is not there, or a folder without logs, is named."""
    with pytest.raises(SourceError, match="does not exist"):
        read_paths(tmp_path / "nowhere.csv")
    with pytest.raises(SourceError, match="holds no logs"):
        read_paths(tmp_path)


def test_a_heading_glued_to_a_row_that_broke_off(read):
    """A log that broke off in a row and was appended to goes on under its new heading, which stands behind what is left of it."""
    head = "timestamp, index, memory.used [MiB], utilization.gpu [%]\n"
    other = "timestamp, index, utilization.gpu [%], memory.used [MiB]\n"
    whole = head + "2024/01/31 12:00:00.000, 0, 100, 50\n2024/01/31 12:00:30.000, 0, 12"
    for second in (head, other):
        values = "80, 7" if second == other else "7, 80"
        seen = read(whole + second + f"2024/01/31 12:01:00.000, 0, {values}\n" + second)
        assert seen.column("busy_share") == [0.5, 0.8]
        assert seen.column("mem_used_bytes") == [100 * 2**20, 7 * 2**20]
        assert seen.gaps["last line, cut off"] == 1
    first = "driver_version, " + head
    again = first + "590.1, 2024/01/31 12:00:00.000, 0, 100, 50\n"
    assert read(again + again.replace("12:00:00", "12:00:30")).column("busy_share") == [0.5, 0.5]


def test_rotated_logs_are_of_one_machine(tmp_path, read_paths):
    """Numbers and dates that rotation puts behind a name belong neither to the node nor hide the file in its folder."""
    for hour, name in enumerate(("n7.csv.2.gz", "n7.csv.1", "n7.csv-20240131", "n7.csv")):
        text = f"timestamp, index, utilization.gpu [%]\n2024/01/31 {hour:02}:00:00.000, 0, 50\n".encode()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    seen = read_paths(tmp_path)
    assert [d["device_id"] for d in seen.devices] == ["n7/0"]
    assert len(seen.samples) == 4


def test_a_gpu_known_by_any_of_its_names(read):
    """A row without UUID is of the GPU that had its number, or its bus id, on that node."""
    head = "timestamp, hostname, index, pci.bus_id, uuid, utilization.gpu [%]\n"
    seen = read(
        head
        + "".join(f"2024/01/31 12:00:00.000, {n}, 0, 00000000:1B:00.0, GPU-{n}, 50\n" for n in "ab")
        + "2024/01/31 12:00:30.000, a, [Unknown Error], 00000000:1B:00.0, [Unknown Error], 60\n"
        + "2024/01/31 12:00:30.000, b, 0, [Unknown Error], [Unknown Error], 70\n"
    )
    assert seen.column("device_id") == ["GPU-a", "GPU-b", "GPU-a", "GPU-b"]


BERLIN = ReadOptions(timezone=ZoneInfo("Europe/Berlin"))


def decode(data: bytes, block_bytes: int = 1 << 60, options: ReadOptions = BERLIN) -> list[Rows | Gap]:
    """Everything the decoder yields for a log that is read in blocks of this size."""
    with patch.object(sections, "split_blocks", partial(split_blocks, block_bytes=block_bytes)):
        return list(decode_logs([Input("node-7:9400", [data], "node-7.csv")], options))


def list_samples(items: list[Rows | Gap]) -> list[dict[str, object]]:
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
