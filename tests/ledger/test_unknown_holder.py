"""GPUs that nobody is said to hold: unallocated while idle beside others that are held, of an unknown holder otherwise."""

from pathlib import Path

import pytest
from tests.ledger.fleets import HOUR, MINUTE, Row, add, batch

from loadfactor.books.books import Books
from loadfactor.books.rebuild import refresh

START = 1_767_225_600_000
DAY: Row = {"from_utc": START, "to_utc": START + 4 * HOUR}
HOURS = (
    "paid_gpu_hours",
    "allocated_gpu_hours",
    "unattributed_gpu_hours",
    "unallocated_gpu_hours",
    "down_gpu_hours",
    "observed_gpu_hours",
    "effective_gpu_hours",
)


def samples(device: str, busy: float, first: int = 0, last: int = 240) -> list[Row]:
    """A sample a minute, those that end in (first, last] minutes from the start."""
    return [
        {"device_id": device, "source": "s", "to_utc": START + m * MINUTE, "busy_share": busy}
        for m in range(first + 1, last + 1)
    ]


def books_of(folder: Path, activity: list[Row], label: str = "all", **tables: list[Row]) -> Books:
    """Two GPUs of one node for four hours at 2 an hour."""
    books = Books(folder / "store")
    devices = [{"device_id": d, "node": "n0", **DAY} for d in ("g0", "g1")]
    prices = [{"basis": "contracted", "price_per_gpu_hour": 2.0}]
    given = {"devices": devices, "samples": activity, "prices": prices, **tables}
    add(books, [batch(name, rows) for name, rows in given.items()], label, folder, step_s=60.0)
    return books


def hours(books: Books) -> list[object]:
    return [r.value for r in books.show(HOURS)]


def test_where_no_allocation_source_speaks_all_time_has_an_unknown_holder(tmp_path: Path) -> None:
    """GPUs at 95 % without any allocation are paid, unattributed, observed and 95 % utilized; allocation is unknown."""
    books = books_of(tmp_path, samples("g0", 0.95) + samples("g1", 0.0))
    assert hours(books) == pytest.approx([8.0, 0.0, 8.0, 0.0, 0.0, 8.0, 3.8])
    by_device = {r.by["device"]: r.value for r in books.show(["utilization"], ["device"])}
    assert by_device == pytest.approx({"g0": 0.95, "g1": 0.0})
    allocation, cost = books.show(["allocation", "unattributed_cost"])
    assert (allocation.value, allocation.coverage) == (None, 0.0)
    assert cost.value == pytest.approx(16.0)
    assert any(
        f.what.startswith("time with an unknown holder") and f.gpu_hours == 8 and "--job" in f.do
        for f in books.check().findings
    )


def test_a_split_by_holder_names_the_unknown_one(tmp_path: Path) -> None:
    """The rows of a split by team add up to the headline: one is the unknown holder's, and a filter finds it."""
    held = [{"job_id": "j", "team": "red", "device_id": "g0", **DAY}]
    books = books_of(tmp_path, samples("g0", 0.5) + samples("g1", 0.9), allocations=held)
    split = {r.by["team"]: r.value for r in books.show(["effective_gpu_hours"], ["team"])}
    assert split == pytest.approx({"red": 2.0, "unknown holder": 3.6})
    assert books.show(["effective_gpu_hours"])[0].value == pytest.approx(5.6)
    (part,) = books.show(["effective_gpu_hours"], where={"team": "unknown holder"})
    assert part.value == pytest.approx(3.6)


def test_where_a_source_speaks_only_working_time_has_an_unknown_holder(tmp_path: Path) -> None:
    """Beside a held GPU of its node, the other one is unallocated while idle and unattributed while it works."""
    held = [{"job_id": "j", "device_id": "g0", **DAY}]
    activity = samples("g0", 0.5) + samples("g1", 0.0, 0, 90) + samples("g1", 0.8, 90, 150)
    books = books_of(tmp_path, activity, allocations=held)
    assert hours(books) == pytest.approx([8.0, 4.0, 1.0, 3.0, 0.0, 5.0, 2.8])
    assert books.show(["allocation"])[0].value == pytest.approx(0.5)


def test_a_sample_that_reaches_into_held_time_belongs_to_the_holder(tmp_path: Path) -> None:
    """A job that ends between two samples, before the hour's end too, leaves no working time behind."""
    end = START + HOUR - 10_000
    held = [{"job_id": "j", "device_id": d, "from_utc": START, "to_utc": end} for d in ("g0", "g1")]
    late = [row | {"to_utc": row["to_utc"] + 20_000} for row in samples("g1", 1.0, 0, 59) + samples("g1", 0.0, 59, 200)]
    books = books_of(tmp_path, samples("g0", 1.0, 0, 60) + samples("g0", 0.0, 60, 240) + late, allocations=held)
    assert hours(books)[2] == 0.0


def test_a_gpu_that_is_down_and_works_has_an_unknown_holder(tmp_path: Path) -> None:
    """An outage without activity stays down where nobody says who holds the GPU; with activity it is somebody's."""
    out = [{"device_id": d, **DAY} for d in ("g0", "g1")]
    books = books_of(tmp_path, samples("g0", 0.0) + samples("g1", 1.0), outages=out)
    assert hours(books)[1:5] == pytest.approx([0.0, 4.0, 0.0, 4.0])


def test_the_first_allocation_that_names_a_node_books_its_past_again(tmp_path: Path) -> None:
    """A scheduler whose records come later and begin later speaks of all the time of its nodes."""
    books = books_of(tmp_path, samples("g0", 0.0) + samples("g1", 0.0))
    assert hours(books)[2:4] == pytest.approx([8.0, 0.0])
    late = [{"job_id": "j", "node": "n0", "gpus": 2.0, "from_utc": START + 3 * HOUR, "to_utc": START + 4 * HOUR}]
    add(books, [batch("allocations", late)], "late", tmp_path)
    with books.store.write() as writer:
        refresh(writer, lambda _what, _share: None)
    assert hours(books)[1:4] == pytest.approx([2.0, 0.0, 6.0])


def test_what_is_left_of_a_shared_gpu_is_unallocated(tmp_path: Path) -> None:
    """Half a GPU held and the whole of it at work: the other half has no unknown holder."""
    held = [{"job_id": "j", "device_id": "g0", "share": 0.5, **DAY}]
    books = books_of(tmp_path, samples("g0", 1.0), allocations=held)
    assert hours(books)[1:4] == pytest.approx([2.0, 0.0, 6.0])


def test_coverage_of_nothing_is_unknown(tmp_path: Path) -> None:
    """Where nobody held anything, nothing had to be observed: coverage is unknown, not 100 %."""
    held = [{"job_id": "j", "device_id": "g0", "from_utc": START + 4 * HOUR, "to_utc": START + 5 * HOUR}]
    books = books_of(tmp_path, samples("g0", 0.0), allocations=held)
    effective, utilization = books.show(["effective_gpu_hours", "utilization"])
    assert (effective.value, effective.coverage) == (0.0, None)
    assert (utilization.value, utilization.coverage) == (None, None)
