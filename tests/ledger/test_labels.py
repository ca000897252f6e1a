"""One name for a job that a scheduler lists and labels name, and for a node with and without its domain."""

import random
from pathlib import Path

import pytest
from tests.ledger.fleets import HOUR, Row, add, batch
from tests.long import rest_long

from loadfactor import Books
from loadfactor.books.booking import has_stated_payers

DAY = "2026-10-01T"
DEVICES = "device_id,node,from_utc,to_utc\n" + "".join(f"g{k},n1,{DAY}00:00:00Z,{DAY}12:00:00Z\n" for k in range(4))
HEAD = "job_id,job_number,device_id,node,gpus,from_utc,to_utc,team,known_from\n"


def make_books(folder: Path, *allocations: str) -> Books:
    """Four GPUs of one node for twelve hours, with these holders; hours as 8-10."""
    lines = []
    for line in allocations:
        *cells, hours, team, known_from = line.split(",")
        start, end = (f"{DAY}{int(h):02d}:00:00Z" for h in hours.split("-"))
        lines.append(",".join([*cells, start, end, team, known_from]))
    tables = folder / "tables"
    tables.mkdir()
    (tables / "devices.csv").write_text(DEVICES)
    (tables / "allocations.csv").write_text(HEAD + "\n".join(lines) + "\n")
    books = Books(folder / "books")
    books.add("tables", [tables])
    return books


def hours(books: Books, by: str) -> dict[str | None, float]:
    """GPU-hours held, by a dimension; what is zero is left out."""
    return {
        r.by[by]: r.value for r in books.show("allocated_gpu_hours", by=by) if isinstance(r.value, float) and r.value
    }


@pytest.mark.long
def test_labels_say_which_gpus_a_listed_job_has(tmp_path: Path) -> None:
    """Two of four GPUs of a node are listed; while labels name them, the hours are theirs, of the team that the list names."""
    books = make_books(tmp_path, "7,,,n1,2,2-6,red,", "7,,g1,,,3-6,,labels", "7,,g2,,,3-6,,labels")
    assert hours(books, "job") == {"7": 8.0}
    assert hours(books, "team") == {"red": 8.0}
    assert hours(books, "device") == {None: 2.0, "g1": 3.0, "g2": 3.0}


@pytest.mark.long
def test_labels_say_who_pays_for_a_job_on_a_whole_node(tmp_path: Path) -> None:
    """A list that names no team, of all GPUs of a node or of GPUs by name: while labels say the team, it is theirs."""
    whole = make_books(tmp_path, "7,,,n1,4,2-6,,", "7,,g1,,,3-6,blue,labels")
    assert hours(whole, "team") == {None: 4.0, "blue": 12.0}
    (tmp_path / "named").mkdir()
    named = make_books(
        tmp_path / "named",
        "102_1,103,g0,,,2-6,,",
        "9,,g2,,,2-6,red,",
        "103,,g0,,,2-4,blue,labels",
        "9,,g2,,,3-6,blue,labels",
    )
    assert hours(named, "team") == {None: 2.0, "blue": 2.0, "red": 4.0}
    assert hours(named, "job") == {"102_1": 4.0, "9": 4.0}


def test_labels_carry_the_number_of_an_array_task(tmp_path: Path) -> None:
    """Labels say 103, the list says 102_1 with the number 103: one job, under the name that people know."""
    books = make_books(tmp_path, "102_1,103,,n1,1,2-6,red,", "103,,g3,,,2-6,blue,labels")
    assert hours(books, "job") == {"102_1": 4.0}
    assert hours(books, "team") == {"red": 4.0}
    assert hours(books, "device") == {"g3": 4.0}


def test_labels_that_linger_count_for_nothing(tmp_path: Path) -> None:
    """A label that ends minutes after its job adds nothing; hours later it is somebody's again, whom nobody lists."""
    books = make_books(tmp_path, "7,,,n1,1,2-4,red,", "7,,g0,,,2-5,,labels")
    minutes = 50 / 60  # of the hour after the job, ten minutes are taken for the same job
    assert hours(books, "job")["7"] == pytest.approx(2 + minutes)
    assert hours(books, "team") == {"red": 2.0, None: pytest.approx(minutes)}


def test_what_is_listed_comes_first(tmp_path: Path) -> None:
    """A GPU that somebody lists is his; who is only named by labels has what is left of it."""
    books = make_books(tmp_path, "7,,g0,,,2-6,red,", "stray,,g0,,,4-8,blue,labels")
    assert hours(books, "team") == {"red": 4.0, "blue": 2.0}


def test_labels_do_not_take_from_a_full_node(tmp_path: Path) -> None:
    """All four GPUs are listed by node; a label of another job gets nothing, and the listed hours stay whole."""
    books = make_books(tmp_path, "7,,,n1,4,2-6,red,", "stray,,g0,,,2-6,blue,labels")
    assert hours(books, "team") == {"red": 16.0}


@pytest.mark.long
def test_more_labels_than_gpus_share_them(tmp_path: Path) -> None:
    """Three GPUs are named for a job that holds two: it holds two thirds of each, not three."""
    books = make_books(tmp_path, "7,,,n1,2,2-5,red,", *(f"7,,g{k},,,2-5,,labels" for k in range(3)))
    assert hours(books, "job") == {"7": pytest.approx(6.0)}
    assert hours(books, "device") == {f"g{k}": pytest.approx(2.0) for k in range(3)}


@pytest.mark.long
def test_who_pays_is_filled_in_from_labels(tmp_path: Path) -> None:
    """Where the list does not say whose a job is, the labels of its GPUs do."""
    books = make_books(tmp_path, "7,,,n1,1,2-6,,", "7,,g1,,,2-6,blue,labels")
    assert hours(books, "team") == {"blue": 4.0}


def test_labels_of_two_jobs_share_a_gpu(tmp_path: Path) -> None:
    """Without any list, two holders that labels name have half of the GPU each."""
    books = make_books(tmp_path, "a,,g1,,,2-6,red,labels", "b,,g1,,,2-6,blue,labels")
    assert hours(books, "team") == {"red": 2.0, "blue": 2.0}


@pytest.mark.long
def test_doctor_counts_only_jobs_that_nobody_lists(tmp_path: Path) -> None:
    """A listed job that labels name, too, is no inferred holder; another one is."""
    books = make_books(tmp_path, "7,,,n1,1,2-6,red,", "7,,g0,,,2-6,,labels", "stray,,g1,,,2-6,,labels")
    found = [f.what for f in books.check().findings if "labels" in f.what]
    assert found == ["jobs that only labels of samples name: 1; who held their GPUs is inferred"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("listed", "label", "told"),
    [
        ("7,,g1,,,2-6,red,", "7,,g1,,,3-6,blue,labels", False),
        ("7,,g1,,,2-6,,", "7,,g1,,,3-6,,labels", False),
        ("7,,g1,,,2-6,,", "8,,g1,,,3-6,blue,labels", False),
        ("7,,g1,,,2-6,,", "7,,g1,,,3-6,blue,labels", True),
        ("102_1,103,g1,,,2-6,,", "103,,g1,,,3-6,blue,labels", True),
    ],
)
def test_only_labels_that_tell_a_payer_are_joined(tmp_path: Path, listed: str, label: str, told: bool) -> None:
    """The steps that fill in who pays are run where a label says a team of a listed job that its list does not say."""
    with make_books(tmp_path, listed, label).store.write() as writer:
        assert has_stated_payers(writer) == told


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


def hours_of_nodes(books: Books) -> list[object]:
    """What METRICS say."""
    return [r.value for r in books.show(METRICS)]


@pytest.mark.long
@pytest.mark.parametrize(("listed", "scheduled"), [("n1.cluster.local", "n1"), ("n1", "n1.cluster.local")])
def test_a_short_name_and_one_with_a_domain_are_one_node(tmp_path: Path, listed: str, scheduled: str) -> None:
    """Two GPUs are listed under one name, held for two of four hours, and down for the last, under the other: no GPU more."""
    down = {"node": scheduled, "from_utc": START + 3 * HOUR, "to_utc": START + 4 * HOUR}
    books = books_of(
        tmp_path, devices=gpus(listed, ["GPU-a", "GPU-b"]), allocations=[job(scheduled, 2.0)], outages=[down]
    )
    assert hours_of_nodes(books) == pytest.approx([8.0, 4.0, 2.0, 2.0])
    assert {r.by["node"] for r in books.show("paid_gpu_hours", "node")} == {"n1"}


@pytest.mark.long
@pytest.mark.parametrize(("listed", "counted"), [("n1.cluster.local", "n1"), ("n1", "n1.cluster.local")])
def test_gpus_that_a_scheduler_counts_under_the_other_name_are_the_same(
    tmp_path: Path, listed: str, counted: str
) -> None:
    """It counts three, two of them are listed: three GPUs."""
    numbered = gpus(counted, [f"{counted}:gpu{number}" for number in range(3)])
    books = books_of(tmp_path, devices=[*gpus(listed, ["GPU-a", "GPU-b"]), *numbered], allocations=[job(counted, 3.0)])
    assert hours_of_nodes(books)[:3] == pytest.approx([12.0, 6.0, 6.0])
    assert {r.by["device"] for r in books.show("paid_gpu_hours", "device")} >= {"GPU-a", "GPU-b"}


@pytest.mark.long
@pytest.mark.parametrize(("listed", "counted"), [("n1.cluster.local", "n1"), ("n1", "n1.cluster.local")])
def test_doctor_compares_what_two_sides_count_under_both_names(tmp_path: Path, listed: str, counted: str) -> None:
    """A scheduler counts three GPUs under one name, two are listed under the other: that is said, and what lies beyond these."""
    numbered = gpus(counted, [f"{counted}:gpu{number}" for number in range(3)])
    books = books_of(tmp_path, devices=[*gpus(listed, ["GPU-a", "GPU-b"]), *numbered], allocations=[job(counted, 3.0)])
    (finding,) = (f for f in books.check().findings if "counts another number of GPUs" in f.what)
    assert "n1: 3 and 2" in finding.what
    assert finding.gpu_hours == pytest.approx(4.0)


@pytest.mark.long
@pytest.mark.parametrize("names", [("n1", "n1.a", "n1.b"), ("n1.a", "n1.b"), ("n1", "n10.a"), ("n1.a", "n2.a")])
def test_other_names_are_other_nodes(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Nobody knows which of two nodes a short name means, and names with different beginnings are different nodes."""
    books = books_of(tmp_path, devices=[row for name in names for row in gpus(name, [f"GPU {name}"])])
    assert {r.by["node"]: r.value for r in books.show("paid_gpu_hours", "node")} == dict.fromkeys(names, 4.0)


@pytest.mark.long
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
