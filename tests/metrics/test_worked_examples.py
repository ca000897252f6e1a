"""Do published worked examples come out of real books? Tables in, readings out."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.ledger.fleets import MINUTE, Row, add, batch

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books

START = 1_767_225_600_000


def job(name: str, gpus: int, minutes: int, busy: float) -> tuple[list[Row], list[Row], list[Row]]:
    """A job with GPUs of its own: devices, allocations, and a sample every quarter of an hour."""
    devices: list[Row] = [
        {"device_id": f"{name}-{k}", "from_utc": START, "to_utc": START + minutes * MINUTE} for k in range(gpus)
    ]
    held = [{"job_id": name, **d} for d in devices]
    samples = [
        {
            "device_id": d["device_id"],
            "from_utc": START + (q - 15) * MINUTE,
            "to_utc": START + q * MINUTE,
            "busy_share": busy,
        }
        for d in devices
        for q in range(15, minutes + 1, 15)
    ]
    return devices, held, samples


def books_of(
    folder: Path, cost: float, *jobs: tuple[list[Row], list[Row], list[Row]], progress: list[Row] | None = None
) -> Books:
    folder.mkdir(exist_ok=True)
    books = Books(folder / "store")
    items = [batch(t, [r for j in jobs for r in j[n]]) for n, t in enumerate(("devices", "allocations", "samples"))]
    items.append(batch("prices", [{"basis": "contracted", "price_per_gpu_hour": cost}]))
    add(books, [*items, *([batch("progress", progress)] if progress else [])], "example", folder)
    return books


def said(books: Books, *names: str) -> list[object]:
    return [r.value for r in books.show(names)]


def test_eight_gpus_for_an_hour_and_a_quarter(tmp_path: Path) -> None:
    """8 GPUs × 1.25 h at $8 and 60 % with 200,000 samples: 10 GPU-hours, 6 effective, $80, $13.33, $0.0004."""
    made = [
        {"job_id": "run", "unit": "train_sample", "amount": 200_000.0, "from_utc": START, "to_utc": START + 75 * MINUTE}
    ]
    books = books_of(tmp_path, 8.0, job("run", 8, 75, 0.6), progress=made)
    names = ("allocated_gpu_hours", "effective_gpu_hours", "cost", "cost_per_effective_gpu_hour", "cost_per_sample")
    assert said(books, *names) == pytest.approx([10.0, 6.0, 80.0, 80 / 6, 0.0004], rel=1e-12)


def test_two_jobs_are_weighted_by_their_hours(tmp_path: Path, shared: Path) -> None:
    """The published vectors of effective GPU-hours: sums are divided last, never averages averaged."""
    vectors = [
        v for v in json.loads((shared / "truth" / "test_vectors.json").read_text()) if v["id"].startswith("eff.")
    ]
    expected = {v["id"]: v["expected"] for v in vectors}
    one = books_of(tmp_path / "one", 8.0, job("a", 1, 600, 0.6))
    hours, cost, each = said(one, "effective_gpu_hours", "cost", "cost_per_effective_gpu_hour")
    assert [hours, cost, each] == pytest.approx(
        [expected[f"eff.{n}"] for n in ("hours", "jobcost", "cost_per_eff_hour")], rel=1e-12
    )
    two = books_of(tmp_path / "two", 8.0, job("a", 1, 600, 0.6), job("b", 1, 1800, 0.3))
    wanted = [15.0, expected["eff.agg_ratio_of_sums"]]
    assert said(two, "effective_gpu_hours", "cost_per_effective_gpu_hour") == pytest.approx(wanted, rel=1e-12)


def test_an_answer_has_its_columns_whatever_is_known(tmp_path: Path) -> None:
    """An empty answer has the columns of a full one."""
    full = books_of(tmp_path, 8.0, job("a", 1, 60, 0.6)).show(["utilization_histogram", "cost"], ["team"])
    none = full.arrange(limit=0)
    assert len(full) > len(none) == 0
    assert full.to_arrow().schema == none.to_arrow().schema
    assert "values" in full.to_arrow().column_names


def test_what_makes_no_sense_in_python_is_refused_in_one_line(tmp_path: Path) -> None:
    """A time without a zone is never guessed at, and a table that is none has a list of those there are."""
    books = books_of(tmp_path, 8.0, job("a", 1, 60, 0.6))
    with pytest.raises(InputError, match="no time zone"):
        books.show(["cost"], start=datetime(2026, 1, 1))  # noqa: DTZ001 (the mistake itself)
    with pytest.raises(InputError, match="allocations"):
        books.table("allocation")
    first, last = books.span
    for start, end in (
        (last + timedelta(days=1), None),
        (None, first - timedelta(days=1)),
        (last, last + timedelta(days=1)),
    ):
        with pytest.raises(InputError, match="they cover"):  # not that somebody confused beginning and end
            books.show(["cost"], start=start, end=end)


def test_readings_are_tables_too(simulated_books: Books) -> None:
    """Answers go to Arrow and pandas: one row a reading, one column a dimension, unknown is null."""
    readings = simulated_books.show(["utilization", "cost"], by=["team"])
    frame = readings.to_pandas()
    assert list(frame.columns) == [
        "metric",
        "unit",
        "team",
        "currency",
        "from",
        "to",
        "value",
        "coverage",
        "activity_basis",
        "cost_basis",
    ]
    assert [str(t) for t in frame["from"].unique()] == [str(t) for t in dict.fromkeys(r.start for r in readings)]
    assert len(frame) == len(readings) == readings.to_arrow().num_rows
    assert frame[frame.metric == "cost"].value.sum() == sum(r.value for r in readings if r.metric == "cost")
    nobody = frame[(frame.metric == "utilization") & frame.team.isna()]
    assert nobody.value.isna().all()


def test_a_job_whose_work_was_all_lost_costs_too(tmp_path: Path) -> None:
    """Two jobs of 10 GPU-hours at $1.50, one keeps 900 tokens, the other loses 100: $30 ÷ 900; lost work alone has no unit cost."""
    made = [
        {"job_id": name, "unit": "train_token", "amount": amount, "kept": kept, "from_utc": START, "to_utc": START + 60 * MINUTE}
        for name, amount, kept in (("good", 900.0, True), ("lost", 100.0, False))
    ]  # fmt: skip
    books = books_of(tmp_path, 1.5, job("good", 10, 60, 0.5), job("lost", 10, 60, 0.5), progress=made)
    assert said(books, "cost_per_token") == [pytest.approx(30 / 900)]
    by_job = {r.by["job"]: r.value for r in books.show(["cost_per_token"], ["job"])}
    assert by_job == {"good": pytest.approx(15 / 900), "lost": None}


def test_kept_and_lost_work_of_one_job_share_its_cost(tmp_path: Path) -> None:
    """A job that keeps 900 and loses 100 of the same hours: all of its $15 belong to the 900."""
    made = [
        {"job_id": "run", "unit": "train_token", "amount": amount, "kept": kept, "from_utc": START, "to_utc": START + 60 * MINUTE}
        for amount, kept in ((900.0, True), (100.0, False))
    ]  # fmt: skip
    books = books_of(tmp_path, 1.5, job("run", 10, 60, 0.5), progress=made)
    assert said(books, "cost_per_token") == [pytest.approx(15 / 900)]
