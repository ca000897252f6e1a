"""Files of bills: Parquet and folders of parts say what one CSV says; malformed ones are refused in one line."""

import csv
import gzip
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sources.billing.bills import read_bill, read_rows, write_csv

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.billing.focus import SOURCE

ROW = {
    "ProviderName": "AWS",
    "BilledCost": "1.50",
    "EffectiveCost": "1.25",
    "ListCost": "2",
    "ContractedCost": "2",
    "BillingCurrency": "USD",
    "BillingPeriodStart": "2024-09-01T00:00:00Z",
    "BillingPeriodEnd": "2024-10-01T00:00:00Z",
    "ChargePeriodStart": "2024-09-18T22:00:00Z",
    "Tags": '{"b": "2", "a": "1"}',
}


def _refuse(path: Path, message: str, currency: str | None = None) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        read_bill(SOURCE, path, currency=currency)
    assert "\n" not in str(caught.value)


def test_parts_are_one_bill(tmp_path: Path) -> None:
    """A folder of parts, plain, gzipped and Parquet, at any depth; what is hidden or no bill is passed over."""
    write_csv(tmp_path / "2024-09" / "part-1.csv", [ROW, ROW])
    write_csv(tmp_path / "2024-09" / "part-2.csv.gz", [ROW | {"BilledCost": "2"}])
    pq.write_table(pa.Table.from_pylist([ROW | {"BilledCost": "4"}]), tmp_path / "part-3.snappy.parquet")
    write_csv(tmp_path / "_temporary" / "part-1.csv", [ROW])
    (tmp_path / "manifest.json").write_text("{}")
    assert read_bill(SOURCE, tmp_path).total("BilledCost") == Decimal(9)


def test_a_copy_is_read_once(tmp_path: Path) -> None:
    """Two files of the same bytes are one delivery."""
    for name in ("a.csv", "b.csv"):
        write_csv(tmp_path / name, [ROW])
    bill = read_bill(SOURCE, tmp_path)
    assert bill.total("BilledCost") == Decimal("1.5")
    assert [gap.what for gap in bill.gaps] == [f"the same bytes as {tmp_path / 'a.csv'}; read once"]


@pytest.mark.parametrize("store", ["text", "decimal", "double"])
def test_parquet_says_what_csv_says(shared: Path, tmp_path: Path, store: str) -> None:
    """Texts, decimals, doubles, timestamps and maps of Parquet are the same charges, to the last digit."""
    path = shared / "data" / "billing" / "focus_1.0_sample_1000.csv.gz"
    rows = [{k: None if v in ("", "NULL") else v for k, v in row.items()} for row in read_rows(path)]
    table = pa.Table.from_pylist(rows)
    for name in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"):
        cells = table[name]
        if store == "decimal":
            cells = cells.cast(pa.decimal128(30, 15))
        elif store == "double":
            cells = pa.array([text and float(text) for text in cells.to_pylist()], pa.float64())
        table = table.set_column(table.column_names.index(name), name, cells)
    if store != "text":
        for name in ("ChargePeriodStart", "BillingPeriodEnd"):
            stamps = table[name].cast(pa.timestamp("us"))
            table = table.set_column(table.column_names.index(name), name, stamps)
    pq.write_table(table, tmp_path / "bill.parquet", row_group_size=300)
    stored, written = read_bill(SOURCE, tmp_path / "bill.parquet"), read_bill(SOURCE, path)
    assert stored.charges == written.charges
    assert bool(stored.gaps) == (store == "double")


@pytest.mark.parametrize("kind", ["map", "struct"])
def test_maps_of_parquet_are_tags(tmp_path: Path, kind: str) -> None:
    """AWS stores tags as a map, pandas as a struct."""
    table = pa.Table.from_pylist([{k: v for k, v in ROW.items() if k != "Tags"}])
    tags = pa.array([[("team", "nlp"), ("app", "x")]], pa.map_(pa.string(), pa.string()))
    tags = pa.array([{"team": "nlp", "app": "x", "env": None}]) if kind == "struct" else tags
    pq.write_table(table.append_column("Tags", tags), tmp_path / "bill.parquet")
    assert read_bill(SOURCE, tmp_path / "bill.parquet").column("Tags") == ['{"app":"x","team":"nlp"}']


def test_large_bills_come_in_batches(tmp_path: Path) -> None:
    """150,000 rows are three batches, and their sum is exact."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(ROW))
    writer.writeheader()
    writer.writerows([ROW | {"BilledCost": f"0.{n:06}"} for n in range(150_000)])
    path = tmp_path / "bill.csv.gz"
    path.write_bytes(gzip.compress(text.getvalue().encode(), 1))
    assert len(list(SOURCE.read((path,), ReadOptions()))) >= 3
    assert read_bill(SOURCE, path).total("BilledCost") == sum(range(150_000)) / Decimal(10**6)


def test_the_order_of_days_is_sought_in_the_whole_file(tmp_path: Path) -> None:
    """A day that could be two is read as a later row shows; where none shows it, it is refused."""
    rows = [
        ROW | {"BillingPeriodStart": "", "BillingPeriodEnd": "", "ChargePeriodStart": day}
        for day in ("5/4/25", "5/6/25", "31/5/25")
    ]
    first, *_ = read_bill(SOURCE, write_csv(tmp_path / "days.csv", rows)).column("ChargePeriodStart")
    assert first == int(datetime(2025, 4, 5, tzinfo=UTC).timestamp()) * 1000
    _refuse(write_csv(tmp_path / "two.csv", rows[:2]), "row 1: ChargePeriodStart '5/4/25' could be two days")
    _refuse(write_csv(tmp_path / "mixed.csv", [*rows, rows[0] | {"ChargePeriodStart": "5/31/25"}]), "mixes days")


def test_currencies(tmp_path: Path) -> None:
    """None named takes the one given; another one than was given, two in one file, and what is none are refused."""
    path = write_csv(tmp_path / "bill.csv", [{k: v for k, v in ROW.items() if k != "BillingCurrency"}])
    assert read_bill(SOURCE, path, currency="EUR").column("BillingCurrency") == ["EUR"]
    _refuse(path, "no column names its currency; name it with --currency USD")
    two = write_csv(tmp_path / "two.csv", [ROW, ROW | {"BillingCurrency": "EUR"}])
    _refuse(two, r"two\.csv, row 2: BillingCurrency 'EUR' where USD was said before; import each currency")
    _refuse(write_csv(tmp_path / "one.csv", [ROW]), "row 1: BillingCurrency 'USD' where EUR was said before", "EUR")
    _refuse(write_csv(tmp_path / "odd.csv", [ROW | {"BillingCurrency": "dollars"}]), "'DOLLARS' is no currency")
    _refuse(write_csv(tmp_path / "no.csv", [ROW, ROW | {"BillingCurrency": "", "BilledCost": "€1"}]), "€")
    _refuse(write_csv(tmp_path / "yen.csv", [ROW | {"BilledCost": "¥1"}]), "in ¥ and the currency is USD")
    in_euros = ROW | {"BillingCurrency": "EUR", "BilledCost": "$1"}
    _refuse(write_csv(tmp_path / "euro.csv", [in_euros]), r"in \$ and the currency is EUR")
    canadian = write_csv(tmp_path / "cad.csv", [ROW | {"BillingCurrency": "CAD", "BilledCost": "$1"}])
    assert read_bill(SOURCE, canadian).column("BillingCurrency") == ["CAD"]


def test_missing_columns_are_named(tmp_path: Path) -> None:
    """The column that is missing, and the nearest there is."""
    path = write_csv(tmp_path / "bill.csv", [{k: v for k, v in ROW.items() if k != "BilledCost"}])
    _refuse(path, r"bill\.csv: a FOCUS bill needs the column BilledCost; the nearest it has is 'ListCost'")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"BilledCost": "1.234,56"}, r"row 2: BilledCost '1\.234,56' is not an amount"),
        ({"EffectiveCost": "n/a"}, "row 2: EffectiveCost 'n/a' is not an amount; write it like 1234.56"),
        ({"ChargePeriodStart": "yesterday"}, "row 2: ChargePeriodStart 'yesterday' is not a time"),
        ({"ChargePeriodStart": "", "BillingPeriodStart": ""}, "row 2: nothing says when it was charged"),
    ],
)
def test_malformed_cells_are_named(tmp_path: Path, change: dict[str, str], message: str) -> None:
    """File, row, column, value and what to do."""
    _refuse(write_csv(tmp_path / "bill.csv", [ROW, ROW | change]), message)


def test_broken_files_are_named(tmp_path: Path) -> None:
    """Truncated gzip or Parquet, lists where texts belong, an array of JSON, rows too short, nothing at all, no such folder."""
    whole = gzip.compress(write_csv(tmp_path / "bill.csv", [ROW] * 1000).read_bytes())
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    _refuse(tmp_path / "cut.csv.gz", r"cut\.csv\.gz is a truncated gzip file; copy it again")
    pq.write_table(pa.Table.from_pylist([ROW]), tmp_path / "bill.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "bill.parquet").read_bytes()[:-20])
    _refuse(tmp_path / "cut.parquet", r"cut\.parquet is not a whole Parquet file")
    pq.write_table(pa.Table.from_pylist([ROW | {"BilledCost": [1.5]}]), tmp_path / "list.parquet")
    _refuse(tmp_path / "list.parquet", r"row 1: BilledCost '\[1\.5\]' is not an amount")
    (tmp_path / "array.json").write_text(json.dumps([ROW], indent=1))
    _refuse(tmp_path / "array.json", r"array\.json is one JSON array; write its objects a line each")
    (tmp_path / "short.csv").write_text("BilledCost,EffectiveCost,ChargePeriodStart\n1,2\n")
    _refuse(tmp_path / "short.csv", r"short\.csv.*2 cells where the header names 3")
    (tmp_path / "empty.csv").write_text("")
    _refuse(tmp_path / "empty.csv", r"empty\.csv is empty")
    (tmp_path / "folder").mkdir()
    _refuse(tmp_path / "folder", "holds no bill")
    _refuse(tmp_path / "nothing.csv", r"nothing\.csv does not exist")


AMOUNTS = st.decimals(-(10**9), 10**9, allow_nan=False, allow_infinity=False, places=12)
FORMS = st.sampled_from(["{:f}", "{:E}", "${:,.12f} ", "({:,.12f})"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(AMOUNTS, AMOUNTS, FORMS), min_size=1, max_size=40), st.integers(1, 3))
def test_no_total_changes(tmp_path: Path, amounts: list[tuple[Decimal, Decimal, str]], parts: int) -> None:
    """However amounts are written and rows are spread over parts, each cost is the sum of its own cells."""
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    billed, effective = Decimal(0), Decimal(0)
    rows = []
    for number, (one, other, form) in enumerate(amounts):
        negated = form.startswith("(")
        one, other = (abs(one), abs(other)) if negated else (one, other)
        rows.append(
            ROW | {"BilledCost": form.format(one), "EffectiveCost": form.format(other), "ResourceId": str(number)}
        )
        billed += -one if negated else one
        effective += -other if negated else other
    for part in range(parts):
        if mine := rows[part::parts]:
            write_csv(folder / f"part-{part}.csv{'.gz' if part else ''}", mine)
    bill = read_bill(SOURCE, folder)
    assert (bill.total("BilledCost"), bill.total("EffectiveCost")) == (billed, effective)
    assert bill.charges.num_rows == len(amounts)


def test_a_bill_without_rows_is_said(tmp_path: Path) -> None:
    """The right columns and nothing under them: nothing is charged."""
    pq.write_table(pa.Table.from_pylist([ROW]).slice(0, 0), tmp_path / "empty.parquet")
    (tmp_path / "empty.csv").write_text(",".join(ROW) + "\n")
    bill = read_bill(SOURCE, tmp_path)
    assert bill.charges.num_rows == 0
    assert [gap.what for gap in bill.gaps] == ["a header and no rows"] * 2


def test_unreadable_tags_are_counted(tmp_path: Path) -> None:
    """Tags that are no object are left out and said; the cost stays."""
    bill = read_bill(SOURCE, write_csv(tmp_path / "bill.csv", [ROW, ROW | {"Tags": "team=nlp"}]))
    assert bill.column("Tags") == ['{"a":"1","b":"2"}', None]
    assert bill.total("BilledCost") == 3
    assert [(gap.what, gap.count) for gap in bill.gaps] == [("Tags that are no JSON object; left empty", 1)]
