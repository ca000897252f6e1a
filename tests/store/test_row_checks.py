"""Every row passes the door: what cannot be true is refused with file, row, column and value; what is odd is kept honestly."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from loadfactor.books.books import Books
from loadfactor.errors import SourceError
from loadfactor.sources.base import ReadOptions, Rows, Source
from loadfactor.store.importing import Receipt, import_files
from loadfactor.store.row_checks import validate_rows

HOUR = 3_600_000


def rows(table: str, *dicts: dict[str, Any]) -> Rows:
    return Rows(table, pa.Table.from_pylist(list(dicts)), f"{table}.csv")


def add(folder: Path, items: Iterable[Rows]) -> tuple[Books, Receipt]:
    books = Books(folder)
    source = Source("made", lambda _paths: (), lambda _paths, _options: iter(items))
    return books, import_files(books.store, source, (folder,), ReadOptions(), lambda _what, _share: None)


SAMPLE = {"device_id": "g", "from_utc": 0, "to_utc": HOUR}
REFUSED = [
    ("samples", SAMPLE | {"busy_share": 1.73}, "row 2: samples.busy_share 1.73 is more than the whole"),
    ("samples", SAMPLE | {"busy_share": float("nan")}, "samples.busy_share nan is not a finite number"),
    ("samples", SAMPLE | {"power_w": float("inf")}, "samples.power_w inf is not a finite number"),
    ("samples", SAMPLE | {"power_w": -1.0}, "samples.power_w -1.0 is negative"),
    ("samples", SAMPLE | {"from_utc": 2 * HOUR}, "a reversed interval"),
    ("samples", SAMPLE | {"to_utc": 10**15}, "is no instant"),
    ("samples", SAMPLE | {"device_id": None}, "samples.device_id is empty and may not be"),
    ("samples", SAMPLE | {"device_id": "  "}, "samples.device_id"),
    ("samples", SAMPLE | {"buzy_share": 0.5}, "no column 'buzy_share'"),
    ("samples", SAMPLE | {"busy_share": [0.5]}, "samples.busy_share is not share"),
    ("allocations", {"job_id": "j", "from_utc": HOUR, "to_utc": 0}, "a reversed interval"),
    ("allocations", {"job_id": "j", "submitted_utc": HOUR, "from_utc": 0}, "a reversed interval"),
    ("prices", {"basis": "guess", "price_per_gpu_hour": 1.0}, "'guess' is none of effective"),
    ("prices", {"basis": "list", "price_per_gpu_hour": -1.0}, "is negative"),
    ("queue_events", {"job_id": "j", "at_utc": 0, "event": "bored"}, "'bored' is none of submitted"),
]


def test_rows_are_counted_file_by_file(tmp_path: Path) -> None:
    """The second row of the second file is called that, however many rows came before it."""
    files = [Rows("samples", pa.Table.from_pylist([SAMPLE] * 5), "a.csv")]
    files += [Rows("samples", pa.Table.from_pylist([row]), "b.csv") for row in (SAMPLE, SAMPLE | {"power_w": -1.0})]
    with pytest.raises(SourceError, match=r"^b\.csv: row 2: samples\.power_w -1\.0 is negative"):
        add(tmp_path / "store", files)


@pytest.mark.parametrize(("table", "row", "said"), REFUSED)
def test_what_cannot_be_true_is_refused_by_name(table: str, row: dict[str, Any], said: str) -> None:
    """The message is one line and names the file, the row, the column and the value."""
    good = {"samples": SAMPLE, "allocations": {"job_id": "j", "from_utc": 0}}.get(table, row)
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
            rows("devices", {"device_id": "g", "from_utc": 0, "to_utc": HOUR}),
            rows("allocations", {"job_id": "j", "device_id": "g", "from_utc": 0, "to_utc": HOUR}),
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
            rows("devices", {"device_id": "g", "from_utc": 0, "to_utc": 2 * HOUR}),
            rows(
                "samples", SAMPLE | {"energy_j": 3_600_000.0}, {"device_id": "g", "to_utc": 2 * HOUR, "energy_j": 1.0}
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
                {"job_id": "j", "at_utc": 0, "event": "submitted"},
                {"job_id": "j", "at_utc": 9, "event": "started"},
            )
        ],
    )
    assert books.table("ledger").count().execute() == 0
