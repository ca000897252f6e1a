"""Our own tables: which files are read, how large or broken they may be, what a cell may hold, and what is refused."""

import gzip
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.sources.reading import Reading, read

import loadfactor
from loadfactor.base.errors import SourceError
from loadfactor.sources.base import ReadOptions, Rows
from loadfactor.sources.own_tables import SOURCE

HEADER = "device_id,to_utc,busy_share\n"
T = 1_777_636_800_000


def _samples(devices: str = "ab", count: int = 3, step: int = 30_000) -> str:
    return HEADER + "".join(f"{d},{T + i * step},0.5\n" for i in range(count) for d in devices)


def test_parts_folders_and_compression_are_one_table(tmp_path: Path) -> None:
    """samples-*.csv, samples-*.csv.gz, samples-*.parquet and samples/ are all read."""
    (tmp_path / "samples-1.csv").write_text(HEADER + f"a,{T},1\n")
    (tmp_path / "samples-2.csv.gz").write_bytes(gzip.compress((HEADER + f"a,{T + 1},1\n").encode()))
    pq.write_table(pa.table({"device_id": ["a"], "to_utc": [T + 2]}), tmp_path / "samples-3.parquet")
    (tmp_path / "samples" / "day=1").mkdir(parents=True)
    (tmp_path / "samples" / "day=1" / "part-0.csv").write_text(HEADER + f"a,{T + 3},1\n")
    got = read(SOURCE, tmp_path).tables["samples"]["to_utc"].to_pylist()
    assert sorted(got) == [T, T + 1, T + 2, T + 3]


def test_no_table_says_what_was_looked_for(tmp_path: Path) -> None:
    """And how to begin."""
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(SourceError, match=r"none of the tables devices, samples, .*`loadfactor tables --write DIR`"):
        read(SOURCE, tmp_path)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["samples.csv", "sample.csv"], "sample.csv is not named like a table; did you mean samples.csv"),
        (["samples.csv", "samples.parquet"], "holds samples more than once"),
        (["samples.csv", "samples/part.csv"], "holds samples more than once"),
    ],
)
def test_files_that_would_be_missed_or_counted_twice_are_refused(tmp_path: Path, names: list[str], says: str) -> None:
    """A misspelt table is not left out in silence."""
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(_samples())
    with pytest.raises(SourceError, match=says):
        read(SOURCE, tmp_path)


def test_a_file_may_be_named_itself(tmp_path: Path) -> None:
    """If its name says which table it is."""
    (tmp_path / "samples.csv").write_text(_samples())
    (tmp_path / "other.csv").write_text(_samples())
    assert read(SOURCE, tmp_path / "samples.csv").tables["samples"].num_rows == 6
    with pytest.raises(SourceError, match="not named like a table"):
        read(SOURCE, tmp_path / "other.csv")
    with pytest.raises(SourceError, match="does not exist"):
        read(SOURCE, tmp_path / "samples-none.csv")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"\n", "first line is empty"),
        (b"device_id;to_utc\na;1\n", "separated by semicolons"),
        (b"device_id,to_utc,busy\na,1,1\n", "samples has no column 'busy'; the nearest is busy_share"),
        (b"device_id,busy_share\na,1\n", "samples needs the column to_utc"),
        (b"device_id,to_utc,\na,1,\n", "column 3 has no name"),
        (b"device_id,to_utc,to_utc\na,1,1\n", "two columns are called 'to_utc'"),
        (HEADER.encode() + b"\xff\xfe\x00garbage", "not text"),
        (bytes(range(256)) * 40, "line"),
        (gzip.compress(_samples(count=5000).encode(), mtime=0)[:-400], "truncated gzip"),
        (HEADER.encode() + b'"a,1,1\n' * 3, "samples.csv"),
        (HEADER.encode() + b"x" * 3_000_000 + b",1,1\n", "a line of more than 1 MiB"),
        (HEADER.encode() + b'"' + b"x\n" * 3_000_000, "a row of more than 1 MiB"),
        (b"PAR1 not really", "samples.csv"),
    ],
)
def test_broken_csv_is_refused_in_one_line(tmp_path: Path, data: bytes, says: str) -> None:
    """Never a traceback, never a guess."""
    (tmp_path / "samples.csv").write_bytes(data)
    with pytest.raises(SourceError) as caught:
        read(SOURCE, tmp_path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"no parquet at all", b"half"])
def test_broken_parquet_is_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    """Wrong magic, no footer, cut in half."""
    path = tmp_path / "samples.parquet"
    if data == b"half":
        pq.write_table(pa.table({"device_id": ["a"] * 1000, "to_utc": range(1000)}), path)
        data = path.read_bytes()[:2000]
    path.write_bytes(data)
    with pytest.raises(SourceError, match="not a whole Parquet file") as caught:
        read(SOURCE, tmp_path)
    assert "\n" not in str(caught.value)


def test_bom_crlf_quoted_line_ends_and_blank_lines(tmp_path: Path) -> None:
    """What spreadsheets write is read."""
    text = f'\ufeffdevice_id,to_utc\r\n"a\nb",{T}\r\n\r\n"c,""d""",{T}'
    (tmp_path / "samples.csv").write_bytes(text.encode())
    assert read(SOURCE, tmp_path).tables["samples"]["device_id"].to_pylist() == ["a\nb", 'c,"d"']


def test_a_header_alone_is_an_empty_table(tmp_path: Path) -> None:
    """Unfilled templates bring nothing."""
    (tmp_path / "samples.csv").write_text(HEADER.strip())
    got = read(SOURCE, tmp_path)
    assert (got.tables, got.gaps) == ({}, ())


def test_batches_are_small(tmp_path: Path) -> None:
    """At most 65,536 rows at a time, from one row group or from one CSV."""
    count = 150_000
    pq.write_table(
        pa.table({"device_id": ["a"] * count, "to_utc": range(T, T + count)}), tmp_path / "samples-1.parquet"
    )
    (tmp_path / "samples-2.csv").write_text("device_id,to_utc\n" + "".join(f"b,{T + i}\n" for i in range(count)))
    seen = [i for i in SOURCE.read(SOURCE.files((tmp_path,)), ReadOptions()) if isinstance(i, Rows)]
    assert max(i.data.num_rows for i in seen) <= 65_536
    assert sum(i.data.num_rows for i in seen if i.table == "samples") == 2 * count


_READ_ALL = r"""
import re, sys
from pathlib import Path
from loadfactor.sources.own_tables import SOURCE
from loadfactor.sources.base import ReadOptions
for _ in SOURCE.read(SOURCE.files((Path(sys.argv[1]),)), ReadOptions()):
    pass
print(re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.long
@pytest.mark.skipif(
    sys.platform != "linux", reason="Linux alone says the peak of one process and not that of its parent"
)
@pytest.mark.parametrize(("form", "large"), [("parquet", 4_000_000), ("csv", 500_000)])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, form: str, large: int) -> None:
    """Many times the rows, in one row group or in a gzipped CSV, take about the same memory."""

    def peak_mib(count: int) -> float:
        folder = tmp_path / str(count)
        folder.mkdir()
        if form == "parquet":
            rows = pa.table({"device_id": pa.repeat("a", count), "to_utc": np.arange(T, T + count)})
            path = folder / "samples.parquet"
            pq.write_table(rows, path, row_group_size=count, use_dictionary=False, compression="none")
        else:
            with gzip.open(folder / "samples.csv.gz", "wt", compresslevel=1) as file:
                file.write(HEADER)
                file.writelines(f"a,{T + i},0.5\n" for i in range(count))
        done = subprocess.run(
            [sys.executable, "-c", _READ_ALL, str(folder)], capture_output=True, text=True, check=True
        )
        return int(done.stdout) / 2**10

    assert peak_mib(large) < peak_mib(150_000) + 50


_CELL = st.one_of(
    st.sampled_from(["", "a", "0.5", "173%", "nan", str(T), "2026-05-01T00:00:00Z", "2026-05-01T00:00:00", '"', "\n"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)
_LINES = st.lists(st.lists(_CELL, max_size=4).map(",".join), max_size=6).map(lambda x: (HEADER + "\n".join(x)).encode())


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@example(b"\xef\xbb\xbf", False)
@given(st.one_of(st.binary(max_size=300), _LINES), st.booleans())
def test_anything_is_rows_or_one_line(tmp_path_factory: pytest.TempPathFactory, data: bytes, packed: bool) -> None:
    """Whatever stands in the file, it becomes rows or one SourceError."""
    folder = tmp_path_factory.mktemp("any")
    (folder / "samples.csv").write_bytes(gzip.compress(data) if packed else data)
    (folder / "allocations.parquet").write_bytes(data)
    for name in ("samples.csv", "allocations.parquet"):
        message, tables = "", set()
        try:
            tables = set(read(SOURCE, folder / name).tables)
        except SourceError as error:
            message = str(error)
        assert len(message.splitlines()) <= 1
        assert tables <= {"samples", "devices"}


PROJECT = Path(__file__).resolve().parents[3]
DOCUMENT = PROJECT / "docs" / "bring-your-own-data.md"
EXAMPLES = PROJECT / "examples"


@pytest.mark.long
def test_the_documented_files_give_the_documented_numbers(tmp_path: Path) -> None:
    """8 GPUs × 1.25 h at $8, 60 % busy, 200,000 samples: 10 GPU-hours, 6 effective, $80, $13.33, $0.0004."""
    text = DOCUMENT.read_text(encoding="utf-8")
    files = re.findall(r"`(\w+\.csv)`\n\n```csv\n(.*?)```", text, re.DOTALL)
    assert len(files) == 5
    assert dict(files) == {path.name: path.read_text(encoding="utf-8") for path in (EXAMPLES / "tables").iterdir()}
    assert (EXAMPLES / "prices.toml").read_text(encoding="utf-8") in text
    books = loadfactor.open(tmp_path / "books", create=True)
    books.add("tables", [EXAMPLES / "tables"])
    wanted = {"allocated_gpu_hours": 10.0, "effective_gpu_hours": 6.0, "cost": 80.0}
    wanted |= {"cost_per_effective_gpu_hour": 80 / 6, "cost_per_sample": 0.0004}
    got = {r.metric: r.value for r in books.show(list(wanted))}
    assert got == pytest.approx(wanted, rel=1e-12)


SAMPLES = "device_id,to_utc\n" + "".join(f"{d},{T + i * 30_000}\n" for i in range(3) for d in "ab")


def test_devices_are_inferred_when_nobody_lists_them(tmp_path: Path) -> None:
    """From one step before the first sample, or the start of the first interval, to the last seen; a gap says so."""
    (tmp_path / "samples.csv").write_text(SAMPLES)
    (tmp_path / "allocations.csv").write_text(
        f"job_id,device_id,node,from_utc,to_utc\nj,a,n1,{T - 500_000},{T}\nj,c,,{T},\nk,b,,{T},{T + 10}\n"
    )
    (tmp_path / "devices.csv").write_text("device_id\n")  # a template that was not filled in
    got = read(SOURCE, tmp_path, options=ReadOptions(pool="p"))
    rows = got.tables["devices"].select(["device_id", "node", "pool", "from_utc", "to_utc"]).to_pylist()
    assert rows == [
        {"device_id": "a", "node": "n1", "pool": "p", "from_utc": T - 500_000, "to_utc": T + 60_000},
        {"device_id": "b", "node": None, "pool": "p", "from_utc": T - 30_000, "to_utc": T + 60_000},
        {"device_id": "c", "node": None, "pool": "p", "from_utc": T, "to_utc": None},
    ]
    assert [(g.count, g.what.split(":")[0]) for g in got.gaps] == [(3, "devices without a row in devices")]


def test_a_devices_table_is_a_list(tmp_path: Path) -> None:
    """Its ends are ends, except of devices that it says were only seen; what is inferred is no list."""
    (tmp_path / "devices.csv").write_text("device_id,known_from\na,\nb,seen\n")
    assert read(SOURCE, tmp_path).tables["devices"]["known_from"].to_pylist() == ["list", "seen"]
    (tmp_path / "devices.csv").write_text("device_id\na\n")
    assert read(SOURCE, tmp_path).tables["devices"]["known_from"].to_pylist() == ["list"]
    (tmp_path / "devices.csv").unlink()
    (tmp_path / "samples.csv").write_text(SAMPLES)
    assert read(SOURCE, tmp_path).tables["devices"]["known_from"].to_pylist() == [None, None]


def test_the_start_of_stated_intervals_is_kept(tmp_path: Path) -> None:
    """Where samples say from_utc, presence begins there."""
    (tmp_path / "samples.csv").write_text(f"device_id,from_utc,to_utc\na,{T - 7000},{T}\na,{T},{T + 1}\n")
    (row,) = read(SOURCE, tmp_path).tables["devices"].to_pylist()
    assert (row["from_utc"], row["to_utc"]) == (T - 7000, T + 1)


def test_a_device_that_the_devices_table_does_not_list_is_an_error(tmp_path: Path) -> None:
    """When there is a devices table, it is complete; nothing is inferred."""
    (tmp_path / "samples.csv").write_text(SAMPLES)
    (tmp_path / "devices.csv").write_text("device_id\na\nb\n")
    got = read(SOURCE, tmp_path)
    assert got.tables["devices"]["device_id"].to_pylist() == ["a", "b"]
    assert got.gaps == ()
    (tmp_path / "devices.csv").write_text("device_id\na\n")
    with pytest.raises(SourceError, match=r"samples\.csv: samples mention device 'b' that devices does not list"):
        read(SOURCE, tmp_path)


BERLIN = ReadOptions(timezone=ZoneInfo("Europe/Berlin"))
NOON_MS = int(datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp() * 1000)
Samples = Callable[..., Reading]


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    """Reads a samples.csv with these rows of device_id, to_utc, busy_share."""

    def reading(*rows: str, header: str = "device_id,to_utc,busy_share", options: ReadOptions | None = None) -> Reading:
        (tmp_path / "samples.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        return read(SOURCE, tmp_path, options=options)

    return reading


@pytest.mark.parametrize(
    "written",
    [
        "2026-05-01T12:00:00Z",
        "2026-05-01 12:00Z",
        "2026-05-01T14:00:00+02:00",
        "2026-05-01T07:00:00-0500",
        "2026-05-01T12:00:00.000999999Z",
        str(NOON_MS),
    ],
)
def test_every_spelling_of_an_instant_is_the_same_instant(samples: Samples, written: str) -> None:
    """ISO 8601 with Z or an offset, or epoch milliseconds; finer than a millisecond is cut off."""
    assert samples(f"g,{written},0.5").tables["samples"]["to_utc"].to_pylist() == [NOON_MS]


def test_a_local_time_takes_the_zone_of_the_caller(samples: Samples) -> None:
    """Noon UTC is 14:00 in Berlin in May and 13:00 in January."""
    got = samples("g,2026-05-01T14:00:00,1", "g,2026-01-01 13:00:00,1", options=BERLIN)
    assert [t % 86_400_000 for t in got.tables["samples"]["to_utc"].to_pylist()] == [43_200_000, 43_200_000]


def test_offsets_may_differ_within_a_column(samples: Samples) -> None:
    """A log across the end of summer time with its offsets is plain."""
    got = samples("g,2026-10-25T02:30:00+02:00,1", "g,2026-10-25T02:30:00+01:00,1")
    first, second = got.tables["samples"]["to_utc"].to_pylist()
    assert second - first == 3_600_000


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        (["g,2026-05-01T12:00:00,1"], None, "row 1: to_utc '2026-05-01T12:00:00.000' has no time zone; name it with"),
        (
            ["g,2026-05-01T12:00:00Z,1", "g,2026-05-01T12:00:30,1"],
            BERLIN,
            "mixes times: row 1 has '2026-05-01T12:00:00Z' with its zone, row 2 has '2026-05-01T12:00:30' without a zone",
        ),
        (["g,2026-05-01T12:00:00,1", "g,1777636800000,1"], BERLIN, "mixes times: row 1"),
        (["g,2026-10-25T02:30:00,1"], BERLIN, "comes twice in Europe/Berlin"),
        (["g,2026-03-29T02:30:00,1"], BERLIN, "does not exist in Europe/Berlin"),
        (["g,2026-05-01,1"], None, "is a day, not an instant"),
        (["g,2026-13-01T00:00:00Z,1"], None, "row 1: to_utc '2026-13-01T00:00:00Z' is not a time in any calendar"),
        (["g,2026-05-01T12:00:00Z,1", "g,yesterday,1"], None, "row 2: to_utc 'yesterday' is not a time"),
        (["g,1777636800,1", "g,1777636830,1"], None, "row 1: to_utc '1777636800' is in seconds by its size"),
        (["g,99999999999999999999999,1"], None, "row 1: to_utc"),
        (["g,1777636800000,173%"], None, "row 1: busy_share '173%' is not a number; write the fraction"),
        (
            ["g,1777636800000,0.5", "g,1777636800000,[N/A]"],
            None,
            "row 2: busy_share '[N/A]' is not a number; leave the cell",
        ),
        (['g,1777636800000,"1,024"'], None, "without separators of thousands"),
        (["g,1777636800000,1.73"], None, "row 1: samples.busy_share 1.73"),
        (["g,1777636800000,nan"], None, "not a finite number"),
        (["g,1777636800000,-inf"], None, "not a finite number"),
        ([",1777636800000,1"], None, "device_id is empty"),
        (["g,1777636800000"], None, "row 1: 2 cells where the header names 3"),
        (["g,1777636800000,1,2"], None, "row 1: 4 cells where the header names 3"),
    ],
)
def test_what_is_wrong_is_said_with_file_row_column_and_value(
    samples: Samples, rows: list[str], options: ReadOptions | None, says: str
) -> None:
    """One line, nothing clipped, nothing guessed."""
    with pytest.raises(SourceError) as caught:
        samples(*rows, options=options)
    assert says in str(caught.value)
    assert "samples.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bad_cell_far_down_is_numbered_right(samples: Samples) -> None:
    """The row in the message is the row in the file, in whichever batch it falls."""
    rows = [f"g,{NOON_MS + i * 1000},0.5" for i in range(150_000)]
    rows[140_000] = "g,2026-05-01T12:00:00Z,0.5"
    with pytest.raises(SourceError, match=r"row 1 has .* row 140001 has"):
        samples(*rows)
    rows[140_000] = "g,1777636800000,half"
    with pytest.raises(SourceError, match="row 140001: busy_share 'half'"):
        samples(*rows)
    rows[140_000] = "g,1777636800000"
    with pytest.raises(SourceError, match="row 140001: 2 cells"):
        samples(*rows)


def test_empty_cells_are_not_measured(samples: Samples) -> None:
    """Null, never zero."""
    got = samples(f"g,{NOON_MS},,", header="device_id,to_utc,busy_share,power_w").tables["samples"].to_pylist()
    assert got[0]["busy_share"] is None
    assert got[0]["power_w"] is None


def test_energy_may_stand_beside_power(samples: Samples) -> None:
    """Both columns are of the table."""
    header = "device_id,from_utc,to_utc,power_w,energy_j"
    got = samples(f"g,{NOON_MS - 1000},{NOON_MS},,700", header=header)
    assert got.tables["samples"]["energy_j"].to_pylist() == [700.0]


def test_masks_and_flags(tmp_path: Path, samples: Samples) -> None:
    """A throttle mask may be written as the driver prints it, a flag as true or false."""
    header = "device_id,to_utc,throttle_mask"
    got = samples(f"g,{NOON_MS},0x0000000000000004", f"g,{NOON_MS + 1},5", header=header)
    assert got.tables["samples"]["throttle_mask"].to_pylist() == [4, 5]
    progress = tmp_path / "progress.csv"
    columns = "job_id,from_utc,to_utc,unit,amount,kept\n"
    progress.write_text(f"{columns}j,{NOON_MS - 2},{NOON_MS},step,2,false\nj,{NOON_MS - 1},{NOON_MS},step,2,\n")
    assert read(SOURCE, progress).tables["progress"]["kept"].to_pylist() == [False, None]
    progress.write_text(f"{columns}j,{NOON_MS - 2},{NOON_MS},step,2,maybe\n")
    with pytest.raises(SourceError, match="kept 'maybe' is not true or false"):
        read(SOURCE, progress)


def _parquet(folder: Path, **columns: pa.Array) -> None:
    pq.write_table(pa.table({"device_id": ["g"], **columns}), folder / "samples.parquet")


@pytest.mark.parametrize(
    "stored",
    [
        pa.array([NOON_MS]),
        pa.array([NOON_MS * 1_000_000 + 7], pa.timestamp("ns", "UTC")),
        pa.array([NOON_MS // 1000], pa.timestamp("s", "America/New_York")),
        pa.array([NOON_MS], pa.timestamp("ms", "UTC")).dictionary_encode(),
    ],
)
def test_parquet_instants(tmp_path: Path, stored: pa.Array) -> None:
    """Timestamps with a zone in any unit, or int64 epoch milliseconds."""
    _parquet(tmp_path, to_utc=stored)
    assert read(SOURCE, tmp_path).tables["samples"]["to_utc"].to_pylist() == [NOON_MS]


def test_parquet_timestamps_without_a_zone_need_one(tmp_path: Path) -> None:
    """Refused in one line, or read in the zone of the caller."""
    _parquet(tmp_path, to_utc=pa.array([datetime(2026, 5, 1, 14)], pa.timestamp("us")))  # noqa: DTZ001 - local on purpose
    with pytest.raises(SourceError, match="has no time zone"):
        read(SOURCE, tmp_path)
    assert read(SOURCE, tmp_path, options=BERLIN).tables["samples"]["to_utc"].to_pylist() == [NOON_MS]
    fixed = ReadOptions(timezone=timezone(timedelta(hours=2)))
    assert read(SOURCE, tmp_path, options=fixed).tables["samples"]["to_utc"].to_pylist() == [NOON_MS]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"to_utc": pa.array([1.5])}, "column to_utc holds double"),
        (
            {"to_utc": pa.array([NOON_MS]), "power_w": pa.array(["300"])},
            "column power_w holds string, and must hold a number",
        ),
        ({"to_utc": pa.array([NOON_MS]), "busy_share": pa.array([[0.5]])}, "column busy_share holds list"),
        ({"to_utc": pa.array([NOON_MS // 1000])}, "in seconds by its size"),
        ({"to_utc": pa.array([NOON_MS]), "power": pa.array([1.0])}, "no column 'power'; the nearest is power_w"),
        ({"power_w": pa.array([1.0])}, "needs the column to_utc"),
    ],
)
def test_parquet_of_another_type_is_refused(tmp_path: Path, columns: dict[str, pa.Array], says: str) -> None:
    """The column and what it must hold are in the message."""
    _parquet(tmp_path, **columns)
    with pytest.raises(SourceError) as caught:
        read(SOURCE, tmp_path)
    assert says in str(caught.value)


def test_parquet_numbers_of_any_width_and_whole_job_ids(tmp_path: Path) -> None:
    """float32, integers and an all-null column are numbers; a scheduler's integer job id is a name."""
    _parquet(
        tmp_path,
        to_utc=pa.array([NOON_MS]),
        busy_share=pa.array([0.5], pa.float32()),
        power_w=pa.array([300], pa.int16()),
        sm_clock_hz=pa.array([None]),
    )
    row = read(SOURCE, tmp_path).tables["samples"].to_pylist()[0]
    assert (row["busy_share"], row["power_w"], row["sm_clock_hz"]) == (0.5, 300.0, None)
    jobs = tmp_path / "allocations.parquet"
    pq.write_table(pa.table({"job_id": [4711], "from_utc": [NOON_MS], "to_utc": [NOON_MS + 1]}), jobs)
    assert read(SOURCE, jobs).tables["allocations"]["job_id"].to_pylist() == ["4711"]


def test_exchange_rates_may_be_dated_by_the_day(tmp_path: Path) -> None:
    """A rate of a day begins at its midnight UTC."""
    path = tmp_path / "exchange_rates.csv"
    path.write_text("currency,from_utc,rate\nEUR,2026-05-01,1.1\n")
    (row,) = read(SOURCE, path).tables["exchange_rates"].to_pylist()
    assert (row["currency"], row["from_utc"], row["rate"]) == ("EUR", 1_777_593_600_000, 1.1)


@pytest.mark.long
def test_parquet_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    """A text that a dictionary repeats 20,000 times, and one packed into kilobytes, are refused before they are unpacked."""
    again = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), pa.array(["x" * 1_000_000]))
    bombs = {
        "texts of device_id are more than 128 MiB": (again, True),
        "device_id unpacks to more than 250 times its size": (pa.array(["y" * 200_000_000]), False),
    }
    for said, (ids, is_dictionary) in bombs.items():
        rows = pa.table({"device_id": ids, "to_utc": pa.array([1_767_225_600_000] * len(ids))})
        path = tmp_path / "samples.parquet"
        pq.write_table(rows, path, compression="zstd", use_dictionary=is_dictionary, write_statistics=False)
        with pytest.raises(SourceError, match=said):
            list(SOURCE.read((path,), ReadOptions()))
