"""GPUs that nobody lists one by one: as many as were held at once, and never beside those that are listed."""

from pathlib import Path

import pytest
from tests.ledger.fleets import HOUR, Row, add, batch

from loadfactor.books.books import Books
from loadfactor.books.rebuild import refresh

START = 1_767_225_600_000
METRICS = ("paid_gpu_hours", "allocated_gpu_hours", "unattributed_gpu_hours", "unallocated_gpu_hours")


def held(job: str, first: int, last: int, gpus: float, **place: str) -> Row:
    """A job from one hour to another."""
    return {"job_id": job, "from_utc": START + first * HOUR, "to_utc": START + last * HOUR, "gpus": gpus, **place}


def books_of(folder: Path, allocations: list[Row], devices: list[Row] | None = None) -> Books:
    """Books of these tables; they end with a job of another node after four hours."""
    books = Books(folder / "store")
    tables = {"allocations": [*allocations, held("end", 3, 4, 1.0, device_id="none")]}
    if devices:
        tables["devices"] = devices
    add(books, [batch(name, rows) for name, rows in tables.items()], "all", folder)
    return books


def hours(books: Books) -> list[object]:
    """What METRICS say."""
    return [r.value for r in books.show(METRICS)]


@pytest.mark.parametrize("place", [{"node": "n1"}, {"pool": "gpu"}, {}], ids=["node", "pool", "fleet"])
def test_there_are_as_many_as_were_held_at_once(tmp_path, place):
    """Jobs of 2 and 1 GPUs at once: 3 GPUs for all time since the first; what is not held is nobody's to say, not unallocated."""
    books = books_of(tmp_path, [held("a", 0, 2, 2.0, **place), held("b", 1, 3, 1.0, **place)])
    assert hours(books) == pytest.approx([12.0, 6.0, 6.0, None])
    (allocation,) = books.show("allocation")
    assert allocation.value is None


def test_a_later_job_makes_the_node_larger_from_the_start(tmp_path):
    """What was booked before is booked again where more is held at once."""
    books = books_of(tmp_path, [held("a", 0, 1, 1.0, node="n1")])
    assert hours(books)[0] == pytest.approx(4.0)
    add(books, [batch("allocations", [held("b", 2, 3, 4.0, node="n1")])], "more", tmp_path)
    assert hours(books)[:2] == pytest.approx([16.0, 5.0])


def test_what_is_listed_counts(tmp_path):
    """A list of the node's GPUs is believed, also where jobs ask for more."""
    listed = [{"device_id": f"g{number}", "node": "n1"} for number in range(2)]
    books = books_of(tmp_path, [held("a", 0, 2, 3.0, node="n1")], listed)
    assert hours(books) == pytest.approx([8.0, 4.0, 0.0, 4.0])


@pytest.mark.parametrize(("known_from", "paid"), [("list", 4.0), ("seen", 8.0), (None, 8.0)])
def test_what_a_list_ends_has_ended(tmp_path, known_from, paid):
    """Two GPUs of a node end after two hours: with a list they are gone; a log may have broken off, and they are there."""
    ended = [{"device_id": f"g{n}", "node": "n1", "from_utc": START, "to_utc": START + 2 * HOUR} for n in range(2)]
    ended = [{**device, "known_from": known_from} for device in ended]
    books = books_of(tmp_path, [held("a", 0, 2, 2.0, node="n1")], ended)
    assert hours(books)[:2] == pytest.approx([paid, 4.0])


def test_jobs_after_the_end_of_a_list_are_counted_anew(tmp_path):
    """Two GPUs are gone after an hour, and later a job holds one on that node: there is one since then."""
    ended = [{"device_id": f"g{n}", "node": "n1", "to_utc": START + HOUR, "known_from": "list"} for n in range(2)]
    jobs = [held("a", 0, 1, 2.0, node="n1"), held("b", 2, 3, 1.0, node="n1")]
    assert hours(books_of(tmp_path, jobs, ended))[:2] == pytest.approx([4.0, 3.0])


def test_a_growing_job_on_an_ended_node_books_nothing_again(tmp_path):
    """What hours stand on does not change with the end of the last job."""
    ended = [{"device_id": "g0", "node": "n1", "to_utc": START + HOUR, "known_from": "list"}]
    books = books_of(tmp_path, [held("a", 0, 1, 2.0, node="n1"), held("b", 1, 2, 1.0, node="n1")], ended)
    with books.store.write() as writer:
        refresh(writer, lambda _what, _share: None)
        before = writer.manifest.sources_key
    add(books, [batch("allocations", [held("b", 1, 3, 1.0, node="n1")])], "later", tmp_path)
    with books.store.write() as writer:
        refresh(writer, lambda _what, _share: None)
        assert writer.manifest.sources_key == before


def test_a_scheduler_and_an_exporter_list_the_same_gpus(tmp_path):
    """Slurm counts 4 GPUs, an exporter lists 3 of them for two hours: there are 4, at any time."""
    counted = [{"device_id": f"n1:gpu{number}", "node": "n1"} for number in range(4)]
    span = {"from_utc": START + HOUR, "to_utc": START + 3 * HOUR}
    named = [{"device_id": f"GPU-{number}", "node": "n1", **span} for number in range(3)]
    books = books_of(tmp_path, [held("a", 0, 4, 4.0, node="n1")], counted + named)
    assert hours(books)[:2] == pytest.approx([16.0, 16.0])
    findings = [finding.what for finding in books.check().findings]
    assert any("n1: 4 and 3" in what for what in findings)
    by_device = {r.by["device"]: r.value for r in books.show("paid_gpu_hours", "device")}
    assert by_device["GPU-0"] == pytest.approx(2.0)
    assert by_device["n1:gpu3"] == pytest.approx(4.0)
