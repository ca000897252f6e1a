"""A node that some call by its short name and others with its domain is one node, where nobody else may be meant."""

import random
from pathlib import Path

import pytest
from tests.ledger.fleets import HOUR, Row, add, batch
from tests.long import rest_long

from loadfactor.books.books import Books

START = 1_767_225_600_000
WHOLE = {"from_utc": START, "to_utc": START + 4 * HOUR}
METRICS = ("paid_gpu_hours", "allocated_gpu_hours", "unallocated_gpu_hours", "down_gpu_hours")


def gpus(node: str, names: list[str]) -> list[Row]:
    """GPUs of a node, for four hours."""
    return [{"device_id": name, "node": node, **WHOLE} for name in names]


def job(node: str, held: float) -> Row:
    """A job of two hours."""
    return {"job_id": f"on {node}", "node": node, "gpus": held, "from_utc": START, "to_utc": START + 2 * HOUR}


def books_of(folder: Path, **tables: list[Row]) -> Books:
    """Books of these tables."""
    books = Books(folder / "store")
    add(books, [batch(name, rows) for name, rows in tables.items()], "all", folder)
    return books


def hours(books: Books) -> list[object]:
    """What METRICS say."""
    return [r.value for r in books.show(METRICS)]


@pytest.mark.parametrize(("listed", "scheduled"), [("n1.cluster.local", "n1"), ("n1", "n1.cluster.local")])
def test_a_short_name_and_one_with_a_domain_are_one_node(tmp_path: Path, listed: str, scheduled: str) -> None:
    """Two GPUs are listed under one name, held for two of four hours, and down for the last, under the other: no GPU more."""
    down = {"node": scheduled, "from_utc": START + 3 * HOUR, "to_utc": START + 4 * HOUR}
    books = books_of(
        tmp_path, devices=gpus(listed, ["GPU-a", "GPU-b"]), allocations=[job(scheduled, 2.0)], outages=[down]
    )
    assert hours(books) == pytest.approx([8.0, 4.0, 2.0, 2.0])
    assert {r.by["node"] for r in books.show("paid_gpu_hours", "node")} == {"n1"}


@pytest.mark.parametrize(("listed", "counted"), [("n1.cluster.local", "n1"), ("n1", "n1.cluster.local")])
def test_gpus_that_a_scheduler_counts_under_the_other_name_are_the_same(
    tmp_path: Path, listed: str, counted: str
) -> None:
    """It counts three, two of them are listed: three GPUs."""
    numbered = gpus(counted, [f"{counted}:gpu{number}" for number in range(3)])
    books = books_of(tmp_path, devices=[*gpus(listed, ["GPU-a", "GPU-b"]), *numbered], allocations=[job(counted, 3.0)])
    assert hours(books)[:3] == pytest.approx([12.0, 6.0, 6.0])
    assert {r.by["device"] for r in books.show("paid_gpu_hours", "device")} >= {"GPU-a", "GPU-b"}


@pytest.mark.parametrize(("listed", "counted"), [("n1.cluster.local", "n1"), ("n1", "n1.cluster.local")])
def test_doctor_compares_what_two_sides_count_under_both_names(tmp_path: Path, listed: str, counted: str) -> None:
    """A scheduler counts three GPUs under one name, two are listed under the other: that is said, and what lies beyond these."""
    numbered = gpus(counted, [f"{counted}:gpu{number}" for number in range(3)])
    books = books_of(tmp_path, devices=[*gpus(listed, ["GPU-a", "GPU-b"]), *numbered], allocations=[job(counted, 3.0)])
    (finding,) = (f for f in books.check().findings if "counts another number of GPUs" in f.what)
    assert "n1: 3 and 2" in finding.what
    assert finding.gpu_hours == pytest.approx(4.0)


@pytest.mark.parametrize("names", [("n1", "n1.a", "n1.b"), ("n1.a", "n1.b"), ("n1", "n10.a"), ("n1.a", "n2.a")])
def test_other_names_are_other_nodes(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Nobody knows which of two nodes a short name means, and names with different beginnings are different nodes."""
    books = books_of(tmp_path, devices=[row for name in names for row in gpus(name, [f"GPU {name}"])])
    assert {r.by["node"]: r.value for r in books.show("paid_gpu_hours", "node")} == dict.fromkeys(names, 4.0)


@pytest.mark.parametrize("seed", rest_long(range(6)))
def test_names_that_come_later_change_the_books_of_before(tmp_path: Path, seed: int) -> None:
    """Whatever comes first, a list, a job or a second domain that makes a short name ambiguous: the books are the same."""
    rnd = random.Random(seed)
    names = ["n1", "n1.a", "n1.b", "n2", "n2.a", "n3.a", "n3"]
    tables = {
        "devices": [row for name in rnd.sample(names, 4) for row in gpus(name, [f"GPU {name}"])],
        "allocations": [job(name, 1.0) for name in rnd.sample(names, 5)],
    }
    pieces = [(name, row) for name, rows in tables.items() for row in rows]
    rnd.shuffle(pieces)
    piecemeal = Books(tmp_path / "piecemeal")
    for number, (name, row) in enumerate(pieces):
        add(piecemeal, [batch(name, [row])], f"piece {number}", tmp_path)
    both = [
        sorted((str(r.by), r.value) for r in books.show("paid_gpu_hours", ("node", "job")))
        for books in (books_of(tmp_path, **tables), piecemeal)
    ]
    assert both[0] == both[1]
