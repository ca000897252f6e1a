"""Price lists with dates, in four formats, and demand from job logs, hourly series and published traces."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sources.reading import read

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.demand import DemandTrace, JobTrace, StateTrace
from loadfactor.sources.demand_files import read_demand
from loadfactor.sources.price_lists import SOURCE
from loadfactor.sources.price_lists.azure_sheet import COMMITTED, SPOT, WINDOWS

MAY = int(datetime(2026, 5, 1, tzinfo=UTC).timestamp() * 1000)
JUNE = int(datetime(2026, 6, 1, tzinfo=UTC).timestamp() * 1000)
COLUMNS = "accelerator,from_utc,to_utc,basis,price_per_gpu_hour\n"


def _csv(path: Path) -> None:
    path.write_text(
        COLUMNS + "H100-SXM,2026-05-01,2026-06-01T00:00:00Z,contracted,2.5\n,2026-06-01T02:00:00+02:00,,list,3\n"
    )


def _toml(path: Path) -> None:
    path.write_text(
        '[[price]]\naccelerator = "H100-SXM"\nfrom_utc = 2026-05-01\nto_utc = "2026-06-01"\nbasis = "contracted"\n'
        'price_per_gpu_hour = 2.5\n[[price]]\nfrom_utc = 2026-06-01T00:00:00Z\nbasis = "list"\nprice_per_gpu_hour = 3\n'
    )


def _json(path: Path) -> None:
    first = {"accelerator": "H100-SXM", "from_utc": "2026-05-01"}
    first |= {"to_utc": JUNE, "basis": "contracted", "price_per_gpu_hour": 2.5}
    path.write_text(
        json.dumps({"prices": [first, {"from_utc": "2026-06-01", "basis": "list", "price_per_gpu_hour": 3}]})
    )


def _parquet(path: Path) -> None:
    table = pa.table(
        {
            "accelerator": ["H100-SXM", None],
            "from_utc": pa.array([MAY, JUNE], pa.timestamp("ms")).cast(pa.date32()),
            "to_utc": pa.array([JUNE, None], pa.timestamp("ms")).cast(pa.date32()),
            "basis": ["contracted", "list"],
            "price_per_gpu_hour": [2.5, 3.0],
        }
    )
    pq.write_table(table, path)


@pytest.mark.parametrize(("ending", "write"), [("csv", _csv), ("toml", _toml), ("json", _json), ("parquet", _parquet)])
def test_every_format_is_the_same_list(tmp_path: Path, ending: str, write: object) -> None:
    """A day is its midnight UTC; what is left out is null; the accelerator gets its catalog id at the door."""
    path = tmp_path / f"list.{ending}"
    write(path)  # type: ignore[operator]
    rows = read(SOURCE, path).tables["prices"].to_pylist()
    kept = ("accelerator", "from_utc", "to_utc", "basis", "price_per_gpu_hour", "pool")
    expected = [("h100-sxm", MAY, JUNE, "contracted", 2.5, None), (None, JUNE, None, "list", 3.0, None)]
    assert [tuple(r[k] for k in kept) for r in rows] == expected


def test_a_price_may_name_its_currency(tmp_path: Path) -> None:
    """The currency stands beside its price; where it is left empty nothing is assumed here."""
    path = tmp_path / "list.csv"
    path.write_text("accelerator,basis,price_per_gpu_hour,currency\na,list,2,EUR\nb,list,3,\n")
    rows = read(SOURCE, path).tables["prices"].to_pylist()
    assert [(r["price_per_gpu_hour"], r["currency"]) for r in rows] == [(2.0, "EUR"), (3.0, None)]


SHEET = (
    "basePrice;currency;effectiveStartDate;marketPrice;meterId;meterCategory;meterName;meterSubCategory;meterRegion;priceType;Product;"
    "tierMinimumUnits;unitOfMeasure;unitPrice\n"
)
BROKEN = "1;EUR;10/1/2026;1;m;Virtual Machines;ND96isr H100 v5;ND Series;US East;Consumption;ND96;0,0;1 Hour;many\n"


def test_a_price_sheet_of_a_customer_agreement(tmp_path: Path) -> None:
    """Semicolons and decimal commas; a GPU of eight costs an eighth; spot, Windows and savings plans are left out, and said."""
    rows = [
        "98,32;EUR;10/1/2026;98,32;a;Virtual Machines;ND96isr H100 v5;NDsrH100v5 Series;US East;Consumption;ND96;0,0;1 Hour;88,4",
        "98,32;EUR;10/1/2026;;a;Virtual Machines;ND96isr H100 v5 Spot;NDsrH100v5 Series;US East;Consumption;ND96;0,0;1 Hour;20,1",
        "98,32;EUR;10/1/2026;;a;Virtual Machines;ND96isr H100 v5;ND Series Windows;US East;Consumption;ND96;0,0;1 Hour;99,1",
        "98,32;EUR;10/1/2026;;a;Virtual Machines;ND96isr H100 v5;NDsrH100v5 Series;US East;SavingsPlan;ND96;0,0;1 Hour;60,1",
        "0,1;EUR;10/1/2026;0,1;d;Virtual Machines;D2 v3;Dv3 Series;US East;Consumption;D2;0,0;1 Hour;0,1",
        "0,1;EUR;10/1/2026;0,1;d;Virtual Machines;ND512isr X v9;NDX Series;US East;Consumption;ND;0,0;1 Hour;200,15",
        "0,1;EUR;10/1/2026;0,1;d;Storage;LRS Data Stored;Blob;US East;Consumption;Blob;0,0;1 GB/Month;0,02",
    ]
    (tmp_path / "sheet.csv").write_text(SHEET + "\n".join(rows) + "\n")
    reading = read(SOURCE, tmp_path / "sheet.csv")
    prices = {row["basis"]: row for row in reading.tables["prices"].to_pylist()}
    assert {name: row["price_per_gpu_hour"] for name, row in prices.items()} == {"contracted": 11.05, "list": 12.29}
    assert {(r["accelerator"], r["currency"], r["pool"]) for r in prices.values()} == {("h100-sxm", "EUR", None)}
    assert prices["list"]["from_utc"] == int(datetime(2026, 10, 1, tzinfo=UTC).timestamp() * 1000)
    said = {gap.what: gap.count for gap in reading.gaps}
    assert said[SPOT] == said[WINDOWS] == said[COMMITTED] == 1
    assert "ND512isr X v9: a size that the catalog does not know; left out" in said


def test_a_price_sheet_of_an_enterprise_agreement(tmp_path: Path) -> None:
    """Prices of a hundred hours, commas, days as ISO writes them; regions to choose from, and sizes that differ."""
    heading = (
        "MeterId,MeterName,MeterCategory,MeterRegion,PriceType,EffectiveStartDate,CurrencyCode,UnitOfMeasure,UnitPrice,"
    )
    rows = [
        f"{n},{meter},Virtual Machines,{region},Consumption,2026-10-01T00:00:00Z,USD,100 Hours,{price},"
        for n, (meter, region, price) in enumerate(
            [
                ("ND96asr A100 v4", "US East", 2_720), ("ND96asr A100 v4", "EU West", 3_200),
                ("NC4as T4 v3", "US East", 52.6), ("NC64as T4 v3", "US East", 435.2),
            ]
        )
    ]  # fmt: skip
    path = tmp_path / "sheet.csv"
    path.write_text("\n".join([f"{heading}MarketPrice", *rows]) + "\n")
    with pytest.raises(SourceError, match="prices of GPUs in EU West, US East; choose one with --region"):
        read(SOURCE, path)
    reading = read(SOURCE, path, options=ReadOptions(region="us east", pool="azure"))
    assert [(r["accelerator"], r["pool"], r["price_per_gpu_hour"]) for r in reading.tables["prices"].to_pylist()] == [
        ("a100-sxm-40gb", "azure", 3.4)
    ]
    assert [gap.what for gap in reading.gaps] == [
        "t4 costs 0.5260 (Standard_NC4as_T4_v3) to 1.0880 (Standard_NC64as_T4_v3) a GPU-hour in US East: left out;"
        " choose a size with --instance-type"
    ]
    reading = read(SOURCE, path, options=ReadOptions(region="US East", instance_type="Standard_NC4as_T4_v3"))
    assert [(r["accelerator"], r["price_per_gpu_hour"]) for r in reading.tables["prices"].to_pylist()] == [
        ("t4", 0.526)
    ]
    (tmp_path / "list.csv").write_text("basis,price_per_gpu_hour\nlist,2\n")
    with pytest.raises(SourceError, match="choose from price sheets of clouds"):
        read(SOURCE, tmp_path / "list.csv", options=ReadOptions(region="US East"))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("p.csv", COLUMNS + "a,2026-05-01,,list,-2\n", "price_per_gpu_hour -2.0 is negative"),
        ("p.csv", COLUMNS + "a,2026-05-01,,,2\n", "basis is empty"),
        ("p.csv", COLUMNS + "a,2026-05-01,,spot,2\n", "'spot' is none of effective, contracted, owned, list, estimate"),
        ("p.csv", COLUMNS + "a,2026-06-01,2026-05-01,list,2\n", "reversed interval"),
        ("p.csv", COLUMNS + "a,2026-05-01T00:00:00,,list,2\n", "has no time zone"),
        ("p.csv", COLUMNS + "a,01.05.2026,,list,2\n", "row 1: from_utc '01.05.2026' is not a time"),
        ("p.csv", COLUMNS + "a,2026-05-01,,list,$2\n", "row 1: price_per_gpu_hour '$2' is not a number"),
        ("p.csv", "accelerator,price_per_gpu_hour\na,2\n", "prices needs the column basis"),
        ("p.csv", "gpu,basis,price_per_gpu_hour\na,list,2\n", "prices has no column 'gpu'; the nearest is"),
        (
            "p.csv",
            "basis,usd_per_gpu_hour\nlist,2\n",
            "no column 'usd_per_gpu_hour'; the nearest is price_per_gpu_hour",
        ),
        ("p.toml", "[[price]]\nbasis = list\n", "is not TOML"),
        ("p.json", "{", "is not JSON"),
        ("p.json", "[" * 100_000, "is not JSON"),
        ("p.json", "[1]", "holds no list of prices"),
        (
            "p.json",
            '[{"basis": "list", "price_per_gpu_hour": [2]}]',
            "row 1: price_per_gpu_hour '[2]' is not one number",
        ),
        ("p.json", '[{"basis": "list", "price_per_gpu_hour": NaN}]', "not a finite number"),
        ("p.xlsx", "x", "a price list is a file ending in .csv, .toml, .json, .parquet"),
        ("p.csv", "", "is empty"),
        (
            "p.csv",
            "meterId,meterName,unitOfMeasure,unitPrice\na,D2 v3,1 Hour,98.3\n",
            "of a machine with GPUs that the catalog knows",
        ),
        ("p.csv", f"{SHEET}{BROKEN}", "a price of 'many' is no number"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, name: str, text: str, says: str) -> None:
    """The file, the row, the value and what would be right."""
    (tmp_path / name).write_text(text)
    with pytest.raises(SourceError) as caught:
        read(SOURCE, tmp_path / name)
    assert says in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def written(folder: Path, text: str, name: str = "demand.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_jobs_with_seconds_or_instants(tmp_path: Path) -> None:
    """Seconds are taken as they are, instants with a zone become seconds, and optional columns come along."""
    plain = read_demand(written(tmp_path, "submit_s,gpus,duration_s,team\n0,8,3600,nlp\n60,0.5,100,vision\n"))
    assert isinstance(plain, JobTrace)
    assert plain.gpus.tolist() == [8, 0.5]
    assert plain.team is not None
    assert plain.team.tolist() == ["nlp", "vision"]
    dated = read_demand(
        written(
            tmp_path,
            "submit_utc,gpus,duration_s,priority\n2026-03-01T00:00:00Z,8,3600,1\n2026-03-01T02:01:00+01:00,1,10,2\n",
        )
    )
    assert isinstance(dated, JobTrace)
    assert (dated.submit_s - dated.submit_s[0]).tolist() == [0, 3660]


def test_hours_are_a_demand_series_and_gz_is_read(tmp_path: Path) -> None:
    """One row an hour is a demand series; a gzipped file is read as the same."""
    path = tmp_path / "hours.csv.gz"
    path.write_bytes(gzip.compress(b"hour,gpus\n0,20\n1,40.5\n"))
    trace = read_demand(path)
    assert isinstance(trace, DemandTrace)
    assert trace.demand_gpus.tolist() == [20, 40.5]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "submit_s, gpus, duration_s"),
        ("", "empty file"),
        ("submit_s,gpus,duration_s\n", "no rows"),
        (
            "submit_s,gpus,duration_s\n0,eight,5\n",
            "row 2: gpus must be a number at least 0.001 and at most 1,000,000, got eight",
        ),
        ("submit_utc,gpus,duration_s\n2026-03-01T00:00:00,1,5\n", "no time zone"),
        ("submit_utc,gpus,duration_s\n2026-13-01T00:00:00Z,1,5\n", "is not a time in any calendar"),
        ("start,gpus,duration_s\n0,1,5\n", "submit_s or submit_utc"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, says: str, tmp_path: Path) -> None:
    """A file that cannot be understood names the row or the columns, in one line."""
    with pytest.raises(SourceError, match=says) as refused:
        read_demand(written(tmp_path, text))
    assert "\n" not in str(refused.value)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    """A path that is no file is said to be none."""
    with pytest.raises(SourceError, match="no file"):
        read_demand(tmp_path / "absent.csv")
    with pytest.raises(SourceError, match="is a folder"):
        read_demand(tmp_path)
    (tmp_path / "x.csv").write_bytes(b"\xff\xff\x00")
    with pytest.raises(SourceError, match="not text"):
        read_demand(tmp_path / "x.csv")


def test_published_traces(shared: Path) -> None:
    """openb pods with their shares and waits, Muri in seconds, Helios by the minute: counts as their README states."""
    jobs = shared / "data" / "jobs"
    openb = read_demand(jobs / "alibaba_v2023_openb_pod_list_default.csv.gz")
    assert isinstance(openb, JobTrace)
    assert 5_800 < len(openb.gpus) < 7_064
    assert (openb.gpus < 1).sum() > 2_500
    assert any("sparse" in note for note in openb.left_out)
    submitted = read_demand(jobs / "muri_testbed_64xV100_submitted_trace.csv.gz")
    result = read_demand(jobs / "muri_testbed_64xV100_SRTF_job.csv.gz")
    assert isinstance(submitted, JobTrace)
    assert isinstance(result, JobTrace)
    assert submitted.submit_s.tolist() == pytest.approx(result.submit_s.tolist())
    assert result.published_wait_s is not None
    assert result.published_wait_s.mean() == pytest.approx(188_942, abs=1)
    earth = read_demand(jobs / "helios_earth_vc6YE_cluster_sequence_vc.csv.gz")
    assert isinstance(earth, StateTrace)
    assert len(earth.demand_gpus) == 44_640
    assert earth.total_gpus[0] == 208
