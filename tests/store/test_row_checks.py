"""Every row passes the door: what cannot be true is refused with file, row, column and value; what is odd is kept honestly."""

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.books.books import Books
from loadfactor.sources.base import ReadOptions, Rows, Source
from loadfactor.store import row_checks
from loadfactor.store.importing import Receipt, import_files
from loadfactor.store.row_checks import validate_rows
from loadfactor.tables.schema import TABLES

HOUR, DAY = 3_600_000, 86_400_000
START = 1_767_225_600_000  # 2026-01-01


def rows(table: str, *dicts: dict[str, Any]) -> Rows:
    return Rows(table, pa.Table.from_pylist(list(dicts)), f"{table}.csv")


def add(folder: Path, items: Iterable[Rows]) -> tuple[Books, Receipt]:
    books = Books(folder)
    source = Source("made", lambda _paths: (), lambda _paths, _options: iter(items))
    with books.store.write() as writer:
        return books, import_files(writer, source, (folder,), ReadOptions(), lambda _what, _share: None)


SAMPLE = {"device_id": "g", "from_utc": START, "to_utc": START + HOUR}
REFUSED = [
    ("samples", SAMPLE | {"busy_share": 1.73}, "row 2: samples.busy_share 1.73 is more than the whole"),
    ("samples", SAMPLE | {"busy_share": float("nan")}, "samples.busy_share nan is not a finite number"),
    ("samples", SAMPLE | {"power_w": float("inf")}, "samples.power_w inf is not a finite number"),
    ("samples", SAMPLE | {"power_w": -1.0}, "samples.power_w -1.0 is negative"),
    ("samples", SAMPLE | {"from_utc": START + 2 * HOUR}, "a reversed interval"),
    ("samples", SAMPLE | {"to_utc": 10**15}, "samples.to_utc 1000000000000000 is no instant of the years 2000 to 2100"),
    ("samples", SAMPLE | {"from_utc": 0}, "row 2: samples.from_utc 0 is no instant"),
    ("samples", SAMPLE | {"from_utc": START - 32 * DAY}, "from_utc lies more than 31 days before to_utc"),
    ("devices", {"device_id": "g", "from_utc": EARLIEST_MS - 1}, "is no instant"),
    ("devices", {"device_id": "g", "from_utc": EARLIEST_MS, "to_utc": LATEST_MS}, "lies more than 18,250 days before"),
    ("allocations", {"job_id": "j", "submitted_utc": LATEST_MS + 1, "from_utc": START}, "is no instant"),
    ("samples", SAMPLE | {"device_id": None}, "samples.device_id is empty and may not be"),
    ("samples", SAMPLE | {"device_id": "  "}, "samples.device_id"),
    ("samples", SAMPLE | {"buzy_share": 0.5}, "no column 'buzy_share'"),
    ("samples", SAMPLE | {"busy_share": [0.5]}, "samples.busy_share is not share"),
    ("allocations", {"job_id": "j", "from_utc": START + HOUR, "to_utc": START}, "a reversed interval"),
    ("allocations", {"job_id": "j", "submitted_utc": START + HOUR, "from_utc": START}, "a reversed interval"),
    ("prices", {"basis": "guess", "price_per_gpu_hour": 1.0}, "'guess' is none of effective"),
    ("prices", {"basis": "list", "price_per_gpu_hour": -1.0}, "is negative"),
    ("queue_events", {"job_id": "j", "at_utc": START, "event": "bored"}, "'bored' is none of submitted"),
]


def test_rows_are_counted_file_by_file(tmp_path: Path) -> None:
    """The second row of the second file is called that, however many rows came before it."""
    files = [Rows("samples", pa.Table.from_pylist([SAMPLE] * 5), "a.csv")]
    files += [Rows("samples", pa.Table.from_pylist([row]), "b.csv") for row in (SAMPLE, SAMPLE | {"power_w": -1.0})]
    with pytest.raises(SourceError, match=r"^b\.csv: row 2: samples\.power_w -1\.0 is negative"):
        add(tmp_path / "store", files)


def test_long_and_open_intervals_may_stand() -> None:
    """Decades of a device, prices for ever, samples of a month, and ends that are not known yet."""
    for table, row in (
        ("devices", {"device_id": "g", "from_utc": START, "to_utc": None}),
        ("devices", {"device_id": "g", "from_utc": START, "to_utc": START + 49 * 365 * DAY}),
        ("prices", {"basis": "list", "price_per_gpu_hour": 1.0, "from_utc": EARLIEST_MS, "to_utc": LATEST_MS}),
        ("samples", SAMPLE | {"to_utc": START + 31 * DAY}),
    ):
        assert validate_rows(rows(table, row), 0).num_rows == 1


@pytest.mark.parametrize(("table", "row", "said"), REFUSED)
def test_what_cannot_be_true_is_refused_by_name(table: str, row: dict[str, Any], said: str) -> None:
    """The message is one line and names the file, the row, the column and the value."""
    good = {"samples": SAMPLE, "allocations": {"job_id": "j", "from_utc": START}}.get(table, row)
    columns = dict.fromkeys([*good, *row])
    batch = pa.table({c: [good.get(c), row.get(c)] for c in columns})
    with pytest.raises(SourceError) as refusal:
        validate_rows(Rows(table, batch, "file.csv"), 0)
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("file.csv")
    assert "\n" not in str(refusal.value)


def test_a_share_may_exceed_one_by_a_rounding() -> None:
    """1.0000001 is one as a decimal print leaves it; it is kept as one."""
    admitted = validate_rows(rows("samples", SAMPLE | {"sm_active_share": 1.0000001}), 0)
    assert admitted["sm_active_share"].to_pylist() == [1.0]


def test_drivers_names_become_catalog_ids() -> None:
    """Devices and prices meet under one name of the accelerator; a name nobody knows stays as it is."""
    admitted = validate_rows(
        rows(
            "devices",
            {"device_id": "a", "accelerator": "NVIDIA H100 80GB HBM3"},
            {"device_id": "b", "accelerator": "X1"},
        ),
        0,
    )
    assert admitted["accelerator"].to_pylist() == ["h100-sxm", "X1"]


def test_profiling_that_reads_zero_while_busy_is_not_idle(tmp_path: Path) -> None:
    """Counters all zero beside GPU_UTIL 100 % are dropped and counted; the hour is busy by GPU_UTIL, never idle."""
    books, receipt = add(
        tmp_path,
        [
            rows("devices", {"device_id": "g", "from_utc": START, "to_utc": START + HOUR}),
            rows("allocations", {"job_id": "j", "device_id": "g", "from_utc": START, "to_utc": START + HOUR}),
            rows("samples", SAMPLE | {"busy_share": 1.0, "sm_active_share": 0.0, "tensor_active_share": 0.0}),
        ],
    )
    assert [g.count for g in receipt.gaps] == [1]
    idle, busy = books.show(["idle_gpu_hours", "busy_gpu_hours"])
    assert (idle.value, busy.value) == (0.0, 1.0)
    assert busy.activity_basis == "gpu_util (optimistic)"


def test_energy_becomes_power_and_energy_again(tmp_path: Path) -> None:
    """Energy of an interval is kept as power, so that a window takes its part; without a start it is a counted gap."""
    books, receipt = add(
        tmp_path,
        [
            rows("devices", {"device_id": "g", "from_utc": START, "to_utc": START + 2 * HOUR}),
            rows(
                "samples",
                SAMPLE | {"energy_j": 3_600_000.0},
                {"device_id": "g", "to_utc": START + 2 * HOUR, "energy_j": 1.0},
            ),
        ],
    )
    assert any("energy" in g.what for g in receipt.gaps)
    (energy,) = books.show(["energy_kwh"])
    assert energy.value == pytest.approx(1.0)
    assert energy.coverage == pytest.approx(0.5)


def test_books_without_a_gpu_have_an_empty_ledger(tmp_path: Path) -> None:
    """Jobs known before any device: the ledger is there, with its columns and no rows."""
    books, _ = add(
        tmp_path,
        [
            rows(
                "queue_events",
                {"job_id": "j", "at_utc": START, "event": "submitted"},
                {"job_id": "j", "at_utc": START + 9, "event": "started"},
            )
        ],
    )
    assert books.table("ledger").count().execute() == 0


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.sampled_from(["g", "effective", "USD", "started", " x ", "", "  ", "usd"]),
    "instant": st.sampled_from([START, START, START + HOUR, START + 2 * HOUR, 0, START + 40 * DAY, LATEST_MS + 1]),
    "share": st.sampled_from([0.0, 0.5, 1.0, 1.0000001, 1.5, -0.1, float("nan")]),
    "amount": st.sampled_from([0.0, 2.0, 1e308, -1.0, float("inf"), float("nan")]),
    "count": st.sampled_from([0.0, 8.0, -1.0]),
    "mask": st.sampled_from([0, 4]),
    "flag": st.booleans(),
    "exact": st.sampled_from([Decimal("0.1"), Decimal("-3"), Decimal(10) ** 19]),
}


@st.composite
def batches(draw: st.DrawFn) -> Rows:
    """A few rows of any table, mostly right."""
    kept = draw(st.sampled_from(TABLES))
    odd = draw(st.sampled_from([*kept.columns, None]))
    rows = []
    for _ in range(draw(st.integers(0, 4))):
        row = {c.name: EXAMPLES[c.kind] if c.required or draw(st.booleans()) else None for c in kept.columns}
        row |= {c.name: c.one_of[0] for c in kept.columns if c.one_of} | {
            c.name: "EUR" for c in kept.columns if c.is_currency
        }
        if odd is not None and draw(st.booleans()):
            row[odd.name] = draw(st.one_of(st.none(), VALUES[odd.kind]))
        rows.append(row)
    return Rows(kept.name, pa.Table.from_pylist(rows, schema=kept.schema), "f")


EXAMPLES: dict[str, Any] = {
    "text": "x",
    "instant": START,
    "share": 0.5,
    "amount": 2.0,
    "count": 1.0,
    "mask": 4,
    "flag": True,
}
EXAMPLES |= {"exact": Decimal("1.25")}


@settings(max_examples=400, deadline=None)
@given(batches())
def test_a_batch_that_looks_right_is_right(batch: Rows) -> None:
    """What the quick look lets pass comes out of the close one the same; what it does not is refused or altered with reason."""

    def checked() -> pa.Table | str:
        try:
            return validate_rows(batch, 0)
        except SourceError as refusal:
            return str(refusal)

    quick = checked()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_checks, "_looks_right", lambda *_: False)
        assert checked() == quick
