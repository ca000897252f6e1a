"""GPUs that nobody is said to hold, and GPUs that nobody lists one by one."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.ledger.fleets import HOUR, MINUTE, Row, add, batch

from loadfactor.books.books import Books
from loadfactor.books.ledger_inputs import read_inputs
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


@pytest.mark.long
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


@pytest.mark.long
def test_a_split_by_holder_names_the_unknown_one(tmp_path: Path) -> None:
    """The rows of a split by team add up to the headline: one is the unknown holder's, and a filter finds it."""
    held = [{"job_id": "j", "team": "red", "device_id": "g0", **DAY}]
    books = books_of(tmp_path, samples("g0", 0.5) + samples("g1", 0.9), allocations=held)
    split = {r.by["team"]: r.value for r in books.show(["effective_gpu_hours"], ["team"])}
    assert split == pytest.approx({"red": 2.0, "unknown holder": 3.6})
    assert books.show(["effective_gpu_hours"])[0].value == pytest.approx(5.6)
    (part,) = books.show(["effective_gpu_hours"], where={"team": "unknown holder"})
    assert part.value == pytest.approx(3.6)


@pytest.mark.long
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


@pytest.mark.long
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


METRICS = ("paid_gpu_hours", "allocated_gpu_hours", "unattributed_gpu_hours", "unallocated_gpu_hours")


def held(job: str, first: int, last: int, gpus: float, **place: str) -> Row:
    """A job from one hour to another."""
    return {"job_id": job, "from_utc": START + first * HOUR, "to_utc": START + last * HOUR, "gpus": gpus, **place}


def unlisted_books(folder: Path, allocations: list[Row], devices: list[Row] | None = None) -> Books:
    """Books of these tables; they end with a job of another node after four hours."""
    books = Books(folder / "store")
    tables = {"allocations": [*allocations, held("end", 3, 4, 1.0, device_id="none")]}
    if devices:
        tables["devices"] = devices
    add(books, [batch(name, rows) for name, rows in tables.items()], "all", folder)
    return books


def hours_of_unlisted(books: Books) -> list[object]:
    """What METRICS say."""
    return [r.value for r in books.show(METRICS)]


@pytest.mark.long
@pytest.mark.parametrize("place", [{"node": "n1"}, {"pool": "gpu"}, {}], ids=["node", "pool", "fleet"])
def test_there_are_as_many_as_were_held_at_once(tmp_path, place):
    """Jobs of 2 and 1 GPUs at once: 3 GPUs for all time since the first; what is not held is nobody's to say, not unallocated."""
    books = unlisted_books(tmp_path, [held("a", 0, 2, 2.0, **place), held("b", 1, 3, 1.0, **place)])
    assert hours_of_unlisted(books) == pytest.approx([12.0, 6.0, 6.0, None])
    (allocation,) = books.show("allocation")
    assert allocation.value is None


@pytest.mark.long
def test_a_later_job_makes_the_node_larger_from_the_start(tmp_path):
    """What was booked before is booked again where more is held at once."""
    books = unlisted_books(tmp_path, [held("a", 0, 1, 1.0, node="n1")])
    assert hours_of_unlisted(books)[0] == pytest.approx(4.0)
    add(books, [batch("allocations", [held("b", 2, 3, 4.0, node="n1")])], "more", tmp_path)
    assert hours_of_unlisted(books)[:2] == pytest.approx([16.0, 5.0])


def test_what_is_listed_counts(tmp_path):
    """A list of the node's GPUs is believed, also where jobs ask for more."""
    listed = [{"device_id": f"g{number}", "node": "n1"} for number in range(2)]
    books = unlisted_books(tmp_path, [held("a", 0, 2, 3.0, node="n1")], listed)
    assert hours_of_unlisted(books) == pytest.approx([8.0, 4.0, 0.0, 4.0])


@pytest.mark.long
@pytest.mark.parametrize(("known_from", "paid"), [("list", 4.0), ("seen", 8.0), (None, 8.0)])
def test_what_a_list_ends_has_ended(tmp_path, known_from, paid):
    """Two GPUs of a node end after two hours: with a list they are gone; a log may have broken off, and they are there."""
    ended = [{"device_id": f"g{n}", "node": "n1", "from_utc": START, "to_utc": START + 2 * HOUR} for n in range(2)]
    ended = [{**device, "known_from": known_from} for device in ended]
    books = unlisted_books(tmp_path, [held("a", 0, 2, 2.0, node="n1")], ended)
    assert hours_of_unlisted(books)[:2] == pytest.approx([paid, 4.0])


def test_jobs_after_the_end_of_a_list_are_counted_anew(tmp_path):
    """Two GPUs are gone after an hour, and later a job holds one on that node: there is one since then."""
    ended = [{"device_id": f"g{n}", "node": "n1", "to_utc": START + HOUR, "known_from": "list"} for n in range(2)]
    jobs = [held("a", 0, 1, 2.0, node="n1"), held("b", 2, 3, 1.0, node="n1")]
    assert hours_of_unlisted(unlisted_books(tmp_path, jobs, ended))[:2] == pytest.approx([4.0, 3.0])


@pytest.mark.long
def test_a_growing_job_on_an_ended_node_books_nothing_again(tmp_path):
    """What hours stand on does not change with the end of the last job."""
    ended = [{"device_id": "g0", "node": "n1", "to_utc": START + HOUR, "known_from": "list"}]
    books = unlisted_books(tmp_path, [held("a", 0, 1, 2.0, node="n1"), held("b", 1, 2, 1.0, node="n1")], ended)
    with books.store.write() as writer:
        refresh(writer, lambda _what, _share: None)
        before = read_inputs(writer.manifest.sources_key)
    add(books, [batch("allocations", [held("b", 1, 3, 1.0, node="n1")])], "later", tmp_path)
    with books.store.write() as writer:
        refresh(writer, lambda _what, _share: None)
        after = read_inputs(writer.manifest.sources_key)
    assert after.waits != before.waits
    assert replace(after, waits=before.waits) == before


@pytest.mark.long
def test_a_scheduler_and_an_exporter_list_the_same_gpus(tmp_path):
    """Slurm counts 4 GPUs, an exporter lists 3 of them for two hours: there are 4, at any time."""
    counted = [{"device_id": f"n1:gpu{number}", "node": "n1"} for number in range(4)]
    span = {"from_utc": START + HOUR, "to_utc": START + 3 * HOUR}
    named = [{"device_id": f"GPU-{number}", "node": "n1", **span} for number in range(3)]
    books = unlisted_books(tmp_path, [held("a", 0, 4, 4.0, node="n1")], counted + named)
    assert hours_of_unlisted(books)[:2] == pytest.approx([16.0, 16.0])
    findings = [finding.what for finding in books.check().findings]
    assert any("n1: 4 and 3" in what for what in findings)
    by_device = {r.by["device"]: r.value for r in books.show("paid_gpu_hours", "device")}
    assert by_device["GPU-0"] == pytest.approx(2.0)
    assert by_device["n1:gpu3"] == pytest.approx(4.0)
