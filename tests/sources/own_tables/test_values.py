"""What a cell of our own tables may hold, and what is refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.reading import Reading, read

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.own_tables import SOURCE

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
