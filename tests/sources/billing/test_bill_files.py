"""Files of bills in every form say what one CSV says, the last delivery counts, and damaged ones are refused in one line."""

import csv
import gzip
import io
import json
import os
import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sources.billing.bills import read_bill, read_rows, write_csv

from loadfactor.base.errors import LoadfactorError, SourceError
from loadfactor.sources.base import ReadOptions
from loadfactor.sources.billing import tags
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


@pytest.mark.long
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
    (tmp_path / "array.json").write_text(json.dumps([ROW], indent=1)[:-5])
    _refuse(tmp_path / "array.json", r"array\.json, object 1: the array is broken or cut off there")
    (tmp_path / "short.csv").write_text("BilledCost,EffectiveCost,ChargePeriodStart\n1,2\n")
    _refuse(tmp_path / "short.csv", r"short\.csv.*2 cells where the header names 3")
    (tmp_path / "empty.csv").write_text("")
    _refuse(tmp_path / "empty.csv", r"empty\.csv is empty")
    (tmp_path / "folder").mkdir()
    _refuse(tmp_path / "folder", "holds no bill")
    _refuse(tmp_path / "nothing.csv", r"nothing\.csv does not exist")


AMOUNTS = st.decimals(-(10**9), 10**9, allow_nan=False, allow_infinity=False, places=12)
FORMS = st.sampled_from(["{:f}", "{:E}", "${:,.12f} ", "({:,.12f})"])


@pytest.mark.long
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


DELIVERED_ROW = {
    "BilledCost": "1",
    "EffectiveCost": "1",
    "BillingCurrency": "USD",
    "ChargePeriodStart": "2024-09-01T00:00:00Z",
}
GUID = "11111111-2222-3333-4444-{:012}"


def _deliver(path: Path, cost: int, second: int = 1) -> None:
    write_csv(path, [DELIVERED_ROW | {"BilledCost": str(cost)}])
    os.utime(path, (second, second))


def test_the_manifest_names_the_assembly(tmp_path: Path) -> None:
    """AWS keeps earlier assemblies; the period's manifest says which is current, whenever files were copied."""
    period = tmp_path / "report" / "20240901-20241001"
    _deliver(period / "aaaa" / "report-1.csv.gz", 8, second=99)
    _deliver(period / "bbbb" / "report-1.csv.gz", 1)
    _deliver(period / "bbbb" / "report-2.csv.gz", 2)
    (period / "report-Manifest.json").write_text(json.dumps({"assemblyId": "bbbb", "reportKeys": []}))
    bill = read_bill(SOURCE, tmp_path)
    assert bill.total("BilledCost") == Decimal(3)
    said = [gap.what for gap in bill.gaps if "earlier delivery" in gap.what]
    assert said == [f"an earlier delivery of its period; {period / 'bbbb'} replaces it"]


def test_runs_are_ordered_by_the_time_in_their_names(tmp_path: Path) -> None:
    """Azure and AWS Data Exports name a run by its time; the last of each period counts."""
    for period, runs in (
        ("20240901-20240930", {"202409021200": 1, "202409031200": 2}),
        ("BILLING_PERIOD=2024-10", {"2024-10-02T00:00:00.000Z-x": 4, "2024-10-03T00:00:00.000Z-a": 8}),
    ):
        for run, cost in runs.items():
            _deliver(tmp_path / period / run / "guid" / "part_0_0001.csv", cost, second=9 - cost)
    assert read_bill(SOURCE, tmp_path).total("BilledCost") == Decimal(2 + 8)


def test_single_files_of_runs(tmp_path: Path) -> None:
    """Earlier exports of Azure write one file a run beside the others; the last one written counts."""
    period = tmp_path / "20240901-20240930"
    for number in range(3):
        _deliver(period / f"daily_{GUID.format(number)}.csv", 1 + number, second=1 + number)
    assert read_bill(SOURCE, tmp_path).total("BilledCost") == Decimal(3)


def test_parts_and_periods_are_no_redeliveries(tmp_path: Path) -> None:
    """Parts of one delivery and deliveries of other periods all count."""
    _deliver(tmp_path / "20240901-20241001" / "report-00001.csv", 1)
    _deliver(tmp_path / "20240901-20241001" / "report-00002.csv", 2)
    _deliver(tmp_path / "20241001-20241101" / "report-00001.csv", 4)
    assert read_bill(SOURCE, tmp_path).total("BilledCost") == Decimal(7)


def test_deliveries_that_nothing_orders_are_refused(tmp_path: Path) -> None:
    """Adding both would double the bill; guessing would be wrong half of the time."""
    for name in ("aaaa", "bbbb"):
        _deliver(tmp_path / "20240901-20241001" / name / "report-1.csv", len(name))
        _deliver(tmp_path / "20240901-20241001" / name / "report-2.csv", ord(name[0]))
    with pytest.raises(SourceError, match="deliver the same period, and nothing tells which is later"):
        read_bill(SOURCE, tmp_path)


HEAD = (
    "ProviderName,BillingAccountId,BillingCurrency,BillingPeriodStart,ChargePeriodStart,BilledCost,EffectiveCost,Tags\n"
)
BILL = HEAD + "".join(f'AWS,1,USD,2024-09-01,2024-09-{d:02},{d}.25,{d}.25,"{{""team"":""t""}}"\n' for d in range(1, 29))
WORDS = (b'"', b",", b"NaN", b"1e999", b"\0", b"-", b"\xf0\x9f\x98\x80", b"5/1/25", b"9" * 40, b"EUR", b"\n\n", b"\xff")


def flip(data: bytearray, rnd: random.Random) -> bytes:
    for _ in range(3):
        data[rnd.randrange(len(data))] = rnd.randrange(256)
    return bytes(data)


def insert(data: bytearray, rnd: random.Random) -> bytes:
    """Something stands where it should not."""
    at = rnd.randrange(len(data))
    data[at:at] = rnd.choice(WORDS)
    return bytes(data)


@pytest.mark.parametrize("damage", [flip, insert])
def test_damage_is_read_or_refused_in_one_line(damage, tmp_path: Path) -> None:
    """Whatever stands in a bill."""
    path, said = tmp_path / "bill.csv", []
    for seed in range(40):
        path.write_bytes(damage(bytearray(BILL.encode()), random.Random(seed)))
        try:
            read_bill(SOURCE, path)
        except LoadfactorError as error:
            said.append(str(error))
    assert said
    assert not [text for text in said if "\n" in text]


def test_a_gzip_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    """Wherever it ends."""
    path = tmp_path / "bill.csv.gz"
    for seed in range(20):
        # A gzip file that ends early.
        data = bytearray(BILL.encode())
        rnd = random.Random(seed)
        packed = gzip.compress(bytes(data))
        path.write_bytes(packed[: rnd.randrange(len(packed) // 2, len(packed))])
        with pytest.raises(LoadfactorError, match=r"truncated gzip|corrupt gzip") as error:
            read_bill(SOURCE, path)
        assert "\n" not in str(error.value)


KEYS = st.sampled_from(
    ["team", "Team", "TEAM", "user:team", "user_team", "project", "owner", "User", "a b", "k.+(", "é", ""]
)
VALUES = st.one_of(st.text(max_size=6), st.sampled_from(["", " x ", "\u00a0", 'a"b', "a\\b", "a,b:c", "{}", "\x85y"]))
OBJECTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)
WAYS = st.tuples(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", ":\n")]), st.booleans(), st.booleans())
WRONG = ['{"a":"b"', '{"a":"b"} x', '"a"', '{"a":"b",}', '{"a" "b":"c"}', "x"]


@given(st.lists(st.tuples(OBJECTS, WAYS), min_size=1, max_size=8), st.lists(st.sampled_from(WRONG), max_size=3))
def test_objects_come_out_as_they_were_written(objects, wrong) -> None:
    """With braces or without, spaced or not: the same object with sorted keys, in its place; what is none is counted."""
    written = []
    for of, (separators, is_ascii, has_braces) in objects:
        text = json.dumps(of, ensure_ascii=is_ascii, separators=separators)
        written.append(text if has_braces else text[1:-1])  # as Azure writes it
    texts, count = tags.parse_objects(pa.array([*written, *wrong, " ", "null"]))
    assert count == len(wrong)
    assert [text and json.loads(text) for text in texts.to_pylist()] == [
        *({tags.strip_owner(key): value for key, value in of.items()} for of, _ in objects),
        *[None] * (len(wrong) + 2),
    ]


def test_holders_of_many_tags_stand_in_their_rows() -> None:
    """Of keys that differ in case the one in small letters counts, else the first that says something."""
    written = ['{"Team":"","TEAM":"x"}', '{"TEAM":"y","team":"a"}', '{"owner":"a","user":" "}', '{"team":7}']
    found = tags._read_holders(pa.chunked_array([pa.array(written * 2)]))
    assert found["team"].to_pylist() == ["x", "a", None, "7"] * 2
    assert found["user"].to_pylist() == [None, None, "a", None] * 2


SEMICOLONS = """BilledCost;EffectiveCost;BillingCurrency;ChargePeriodStart;ChargeCategory;ServiceName
{};{};EUR;2026-09-01T00:00:00Z;Usage;Compute; GPUs
"""


@pytest.mark.parametrize(
    ("billed", "effective", "amounts"),
    [
        ("1.234,56", "-0,5", ("1234.56", "-0.5")),
        ("1234,5", "1.234", ("1234.5", "1234")),  # the one shows what the other is
        ("1,234.5", "1234", ("1234.5", "1234")),
        ("12.5", "1234.567", ("12.5", "1234.567")),
        ("7", "8", ("7", "8")),
        ("0,1234567", "3", ("0.1234567", "3")),
    ],
)
def test_semicolons_and_decimal_commas(tmp_path: Path, billed: str, effective: str, amounts: tuple[str, str]) -> None:
    """As spreadsheets of many countries write bills; the whole file shows what a comma is."""
    path = tmp_path / "bill.csv"
    text = SEMICOLONS.format(billed, effective).replace("Compute; GPUs", '"Compute; GPUs"')
    for mark, end in (("", "\n"), ("\ufeff", "\r\n")):
        path.write_bytes((mark + text.replace("\n", end)).encode())
        (row,) = read_bill(SOURCE, path).rows()
        assert (row["BilledCost"], row["EffectiveCost"]) == tuple(map(Decimal, amounts))
        assert row["ServiceName"] == "Compute; GPUs"


@pytest.mark.parametrize(
    ("billed", "effective"), [("1,234", "5"), ("1.234", "5"), ("1,5", "2.5"), ("1.234,5", "1,234.5")]
)
def test_amounts_that_could_be_two_are_refused(tmp_path: Path, billed: str, effective: str) -> None:
    """Nothing is guessed: 1,234 alone is thousands or decimals, and one file writes one kind."""
    path = tmp_path / "bill.csv"
    path.write_text(SEMICOLONS.format(billed, effective).replace("Compute; GPUs", "Compute"))
    with pytest.raises(SourceError, match=r"before (their )?decimals"):
        read_bill(SOURCE, path)
