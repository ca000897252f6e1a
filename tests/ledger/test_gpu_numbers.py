"""GPUs that a scheduler numbers are devices, and the ledger's definitions compile."""

import random
from datetime import UTC, datetime
from pathlib import Path

import ibis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger.fleets import HOUR, MINUTE, Fleet, Row, add, batch
from tests.ledger.test_books_balance import EXAMPLES, SETTINGS, check_one
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.ledger.columns import WITHOUT
from loadfactor.ledger.scope import NUMBERS
from loadfactor.ledger.steps import HOLDING_COLUMNS, Activity, Facts, Holders, compile_steps, list_steps
from loadfactor.metrics.query.calendar import instant
from loadfactor.sources.base import ReadOptions
from loadfactor.tables.schema import MEASUREMENTS, measured_bit

START = 1_767_225_600_000


def gpu(number: int | None, name: str | None = None, **others: object) -> Row:
    """A GPU of n1, for eight hours."""
    whole = {"from_utc": START, "to_utc": START + 8 * HOUR}
    return {"device_id": name or f"GPU-{number}", "node": "n1", "gpu_index": number, **whole, **others}


def job(name: str, gpus: int, numbers: str | None, hours: tuple[float, float] = (0, 8), **others: object) -> Row:
    """A job on n1 as a scheduler lists it."""
    begin, end = (START + round(hour * HOUR) for hour in hours)
    return {
        "job_id": name,
        "node": "n1",
        "gpus": gpus,
        "gpu_indices": numbers,
        "from_utc": begin,
        "to_utc": end,
        **others,
    }


def label(name: str, device: str, hours: tuple[float, float]) -> Row:
    """What labels of samples say."""
    begin, end = (START + round(hour * HOUR) for hour in hours)
    return {"job_id": name, "device_id": device, "from_utc": begin, "to_utc": end, "known_from": "labels"}


def books_of(folder: Path, **tables: list[Row]) -> Books:
    """Books of these tables."""
    books = Books(folder / "store")
    add(books, [batch(name, rows) for name, rows in tables.items()], "all", folder)
    return books


def held(books: Books) -> dict[tuple[str, str | None], float]:
    """GPU-hours by job and device."""
    found = books.show("allocated_gpu_hours", ("job", "device"))
    return {(str(r.by["job"]), r.by["device"]): r.value for r in found if r.value}


FOUR = [gpu(number) for number in range(4)]


def test_two_jobs_of_a_node_have_their_own_gpus(tmp_path: Path) -> None:
    """One works and one does not: each has the activity of its own GPUs, and what neither has is nobody's."""
    samples = [
        {"device_id": f"GPU-{number}", "source": "s", "from_utc": at - MINUTE, "to_utc": at, "busy_share": busy}
        for number, busy in enumerate((0.9, 0.9, 0.0, 0.0))
        for at in range(START + MINUTE, START + 8 * HOUR + 1, MINUTE)
    ]
    jobs = [job("works", 2, "0,1"), job("sleeps", 1, "3")]
    books = books_of(tmp_path, devices=FOUR, allocations=jobs, samples=samples)
    assert held(books) == {("works", "GPU-0"): 8.0, ("works", "GPU-1"): 8.0, ("sleeps", "GPU-3"): 8.0}
    assert {r.by["job"]: r.value for r in books.show("idle_gpu_hours", "job") if r.value} == {"sleeps": 8.0}
    assert {r.by["device"]: r.value for r in books.show("unallocated_gpu_hours", "device") if r.value} == {"GPU-2": 8.0}


@pytest.mark.long
@pytest.mark.parametrize(
    ("devices", "numbers"),
    [
        (FOUR[:3], "0,1"),  # an exporter misses one
        ([*FOUR[:3], gpu(4)], "0,1"),
        ([*FOUR[:3], gpu(None, "GPU-3")], "0,1"),
        ([*FOUR[:3], gpu(2, "GPU-3")], "0,1"),
        ([*FOUR[:3], gpu(3, share=0.5)], "0,1"),
        ([*FOUR, *(gpu(None, f"n1:gpu{number}") for number in range(8))], "0,1"),  # the scheduler counts eight
        (FOUR, "0"),
        (FOUR, "0,1,2"),
        (FOUR, "0,0"),
        (FOUR, "3,4"),
        (FOUR, None),
    ],
)
def test_numbers_that_do_not_fit_name_nothing(tmp_path: Path, devices: list[Row], numbers: str | None) -> None:
    """Where the GPUs of the node or the numbers of the job are not what they should be, the job is booked at its node."""
    if devices == FOUR[:3]:
        devices = [*devices, *(gpu(None, f"n1:gpu{number}") for number in range(4))]
    books = books_of(tmp_path, devices=devices, allocations=[job("7", 2, numbers)])
    assert held(books) == {("7", None): 16.0}


def test_two_holders_of_a_number_have_their_node(tmp_path: Path) -> None:
    """While two jobs name one GPU, the numbers of that node say nothing; before and after they do."""
    jobs = [job("a", 1, "0", (0, 4)), job("b", 1, "0", (3, 6)), job("c", 1, "2", (0, 8))]
    found = held(books_of(tmp_path, devices=FOUR, allocations=jobs))
    assert found == {
        ("a", "GPU-0"): 3.0,
        ("a", None): 1.0,
        ("b", "GPU-0"): 2.0,
        ("b", None): 1.0,
        ("c", "GPU-2"): 7.0,
        ("c", None): 1.0,
    }


@pytest.mark.long
def test_labels_come_before_numbers(tmp_path: Path) -> None:
    """Labels that agree change nothing; a GPU that they name for another job is not given to the one with its number."""
    agreeing = [job("a", 1, "0"), label("a", "GPU-0", (2, 4))]
    assert held(books_of(tmp_path, devices=FOUR, allocations=agreeing)) == {("a", "GPU-0"): 8.0}
    other = [job("a", 1, "0"), label("b", "GPU-0", (2, 4))]
    (folder := tmp_path / "other").mkdir()
    assert held(books_of(folder, devices=FOUR, allocations=other))[("a", None)] == 2.0


@pytest.mark.long
def test_one_contradiction_of_labels_ends_the_trust_in_a_node(tmp_path: Path) -> None:
    """Labels name GPU 3 for a job with number 0: this node counts otherwise, at all times; labels that linger prove nothing."""
    jobs = [job("a", 1, "0", (0, 2)), label("a", "GPU-3", (0, 2)), job("b", 1, "1", (4, 8))]
    found = held(books_of(tmp_path, devices=FOUR, allocations=jobs))
    assert found == {("a", "GPU-3"): 2.0, ("b", None): 4.0}
    (folder := tmp_path / "lingering").mkdir()
    jobs = [job("a", 1, "3", (0, 2)), job("a", 1, "0", (2, 4)), label("a", "GPU-3", (0, 2.1)), job("b", 1, "1", (4, 8))]
    assert held(books_of(folder, devices=FOUR, allocations=jobs))[("b", "GPU-1")] == 4.0


@pytest.mark.long
def test_a_contradiction_that_comes_later_changes_the_books_of_before(tmp_path: Path) -> None:
    """What was booked while nothing contradicted is booked again."""
    books = books_of(tmp_path, devices=FOUR, allocations=[job("a", 1, "0", (0, 2)), job("b", 1, "1", (4, 8))])
    with books.store.write() as writer:
        from loadfactor.books.rebuild import refresh

        refresh(writer, lambda _what, _share: None)
    assert held(books) == {("a", "GPU-0"): 2.0, ("b", "GPU-1"): 4.0}
    add(books, [batch("allocations", [label("a", "GPU-3", (0, 2))])], "later", tmp_path)
    assert held(books) == {("a", "GPU-3"): 2.0, ("b", None): 4.0}


@pytest.mark.long
def test_doctor_names_nodes_that_count_otherwise(tmp_path: Path) -> None:
    """The node with the hours that are booked there without a GPU, which are no estimate."""
    jobs = [job("a", 1, "0", (0, 2)), label("a", "GPU-3", (0, 2)), job("b", 1, "1", (4, 8))]
    found = {f.what: f for f in books_of(tmp_path, devices=FOUR, allocations=jobs).check().findings}
    (what,) = (w for w in found if w.startswith("nodes on which labels name other GPUs for jobs than"))
    assert "1 (n1)" in what
    assert found[what].gpu_hours == 4.0
    assert not any(w.startswith("jobs that are booked on their GPUs by the scheduler's numbers") for w in found)


@pytest.mark.long
def test_doctor_says_what_is_booked_by_numbers_alone(tmp_path: Path) -> None:
    """Labels name one GPU for half of its time, a list another, and a job takes its whole node: the rest is an estimate."""
    jobs = [
        *(job("a", 1, "0", (0, 4)), label("a", "GPU-0", (0, 2))),
        *(job("b", 2, "1,2", (0, 4)), {**job("c", 1, None, (0, 4)), "device_id": "GPU-3"}),
        job("whole", 4, "0,1,2,3", (4, 8)),
    ]
    books = books_of(tmp_path, devices=FOUR, allocations=jobs)
    assert held(books)[("a", "GPU-0")] == 4.0
    (found,) = (f for f in books.check().findings if "by the scheduler's numbers alone" in f.what)
    assert found.what.startswith("jobs that are booked on their GPUs by the scheduler's numbers alone: 2;")
    assert found.gpu_hours == pytest.approx(2.0 + 8.0)
    assert found.coverage == pytest.approx(1 - 10 / 32)


@pytest.mark.long
def test_what_scontrol_and_an_exporter_write_fits(tmp_path: Path) -> None:
    """Two running jobs of one node, one of which works: saved output of both sides gives each its own activity."""
    at_s = START // 1000
    scrapes = [
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{number}",UUID="{uuid}",Hostname="n1.cluster.local"}} {busy} {(at_s + 30 * step) * 1000}'
        for step in range(1, 121)
        for number, uuid, busy in ((0, "GPU-b", 90), (1, "GPU-a", 0), (2, "GPU-c", 0))
    ]
    times = "SubmitTime=2026-01-01T00:00:00 EligibleTime=2026-01-01T00:00:00 StartTime=2026-01-01T00:00:00"
    text = "".join(
        f"JobId={number} JobName=x\n   UserId=ann(1) Account=a JobState=RUNNING Restarts=0 {times} EndTime=Unknown\n"
        f"   Partition=p NodeList=n1 NumNodes=1 AllocTRES=gres/gpu=1\n     Nodes=n1 GRES=gpu:1(IDX:{index})\n\n"
        for number, index in ((7, 0), (8, 1))
    )
    (tmp_path / "n1.prom").write_text("\n".join(scrapes) + "\n")
    (tmp_path / "jobs.txt").write_text(text)
    books = Books(tmp_path / "books")
    books.add("dcgm", [tmp_path / "n1.prom"])
    books.add("slurm", [tmp_path / "jobs.txt"], ReadOptions(timezone=UTC))
    assert held(books) == {("7", "GPU-b"): pytest.approx(1.0), ("8", "GPU-a"): pytest.approx(1.0)}
    assert {r.by["job"]: r.value for r in books.show("utilization", "job") if r.by["job"]} == {
        "7": pytest.approx(0.9),
        "8": 0.0,
    }


class NumberedFleet(Fleet):
    """A node or two whose GPUs have numbers, mostly right, and jobs that a scheduler numbers, mostly right."""

    def _devices(self) -> None:
        for number, name in enumerate(self.ids):
            begin = None if self.chance(0.8) else self.at(0, self.length // 4)
            end = None if self.chance(0.8) else self.at(self.length // 4)
            share = None if self.chance(0.95) else 0.5
            row: Row = {"device_id": name, "node": "n0", "gpu_index": number, "share": share, "from_utc": begin}
            if end is not None and (begin is None or begin < end):  # it is elsewhere then, or has another number
                self.tables["devices"].append({**row, "to_utc": end})
                index = self.rnd.choice((number, None, 0, 3))
                row |= {"from_utc": end, "node": self.rnd.choice(("n0", "n0", "n1")), "gpu_index": index}
            self.tables["devices"].append({**row, "to_utc": None})

    def _allocations(self) -> None:
        keys: set[tuple[object, ...]] = set()
        for _ in range(self.rnd.randint(2, 7)):
            name = self.rnd.choice(list(self.jobs))
            begin, end = self.span()
            free = list(range(len(self.ids)))
            if self.chance(0.85):  # what no other job has then
                for other in self.tables["allocations"]:
                    if begin < (other["to_utc"] or 2**62) and other["from_utc"] < (end or 2**62):
                        free = [number for number in free if str(number) not in (other["gpu_indices"] or "")]
            numbers = self.rnd.sample(free, self.rnd.randint(min(1, len(free)), len(free)))
            if not numbers:
                continue
            row: Row = {"job_id": name, **self.jobs[name], "from_utc": begin, "to_utc": end, "gpus": len(numbers)}
            row |= {"node": "n0", "gpu_indices": ",".join(map(str, numbers))}
            row["job_number"] = self.rnd.choice((None, f"number of {name}"))
            if not self.chance(0.9):
                row |= self.rnd.choice(({"gpus": 2.5}, {"gpu_indices": "0,0"}, {"gpu_indices": None}, {"node": "n1"}))
            if not self.chance(0.9):
                row |= {"device_id": self.rnd.choice(self.ids), "gpu_indices": None, "gpus": None, "node": None}
            if (key := (name, row.get("device_id"), row["node"], None, begin)) not in keys:
                self.tables["allocations"].append(row)
            keys.add(key)
        for _ in range(0 if self.chance(0.7) else 2):
            self._label(keys)


@pytest.mark.long
@pytest.mark.parametrize("examples", rest_long((2, EXAMPLES)))
def test_numbered_fleets_are_what_the_oracle_says(examples: int) -> None:
    """Random nodes with numbered GPUs and jobs, moves and labels: the books equal a slow loop over every instant."""

    @settings(SETTINGS, max_examples=examples)
    @given(st.randoms(use_true_random=False))
    def run(rnd: random.Random) -> None:
        check_one(rnd, NumberedFleet)

    run()


EVERYTHING = (1 << len(MEASUREMENTS)) - 1
BUSY = measured_bit("busy_share")


@pytest.mark.long
@pytest.mark.parametrize(
    ("measured", "overlaps", "numbered", "filled"),
    rest_long([(BUSY, False, True, False), (EVERYTHING, True, True, True), (0, False, False, False)]),
)
def test_every_step_of_the_ledger_compiles(measured: int, overlaps: bool, numbered: bool, filled: bool) -> None:
    """Whatever was measured, overlapping, numbered or filled in, each step is one SELECT; the last is the book."""
    chain = (Facts(), Holders(numbered=numbered, filled=filled), Activity(measured, overlaps))
    steps = {name: step for of in chain for name, step in list_steps(of).items()}
    texts = {name: ibis.to_sql(step.full) for name, step in steps.items()}
    assert list(texts) == [key for of in chain for key in compile_steps(of) if WITHOUT not in key]
    assert list(texts)[-1] == "book"
    assert all("SELECT" in text for text in texts.values())
    assert ("known_claims" in texts) == numbered
    assert ("payers" in texts) == filled
    assert steps["holdings"].full.schema() == ibis.schema(HOLDING_COLUMNS)
    for step in steps.values():
        for form in step.shorter.values():
            assert form.schema() == step.full.schema()
            assert "SELECT" in ibis.to_sql(form)


@pytest.mark.long
def test_what_nobody_says_costs_no_step() -> None:
    """Where no allocation says numbers of GPUs and no label a payer that lists lack, no step is for them or carries them along."""
    plain, filled, numbered = map(compile_steps, (Holders(), Holders(filled=True), Holders(numbered=True)))
    assert not any(NUMBERS in step.full.columns for step in list_steps(Holders()).values())
    assert {key.partition(WITHOUT)[0] for key in filled.keys() - plain.keys()} == {"lists", "payers"}
    new = {key.partition(WITHOUT)[0] for key in numbered.keys() - plain.keys()}
    assert new == {"known_claims"}
    assert filled["lists"] == plain["listed"]
    assert {key for key in plain.keys() & filled.keys() if filled[key] != plain[key]} == {"listed"}
    after = list(plain)[list(plain).index("claims") + 1 :]
    assert all(numbered[key] == plain[key] for key in after)


def test_an_empty_table_is_not_read() -> None:
    """A shorter form reads none of the tables whose emptiness it stands on: without cuts the slices need none."""
    for key, text in compile_steps(Holders(numbered=True)).items():
        name, _, empty = key.partition(WITHOUT)
        assert not {f'"{table}"' for table in empty.split()} & {*text.replace("\n", " ").split()}, name


@pytest.mark.long
def test_a_window_is_what_its_parts_are(tmp_path: Path) -> None:
    """Two windows that meet inside an hour add up to the window they make."""
    import random

    from tests.ledger.fleets import Fleet, add, batches

    books = Books(tmp_path / "store")
    add(books, batches(Fleet(random.Random(7)).tables), "all", tmp_path)
    start, end = books.store.span()
    middle = (start + end) // 2 + 12_345

    def seconds(a: int, b: int) -> float:
        (paid,) = books.show(["paid_gpu_hours"], start=instant(a), end=instant(b))
        assert isinstance(paid.value, float)
        return paid.value

    assert seconds(start, middle) + seconds(middle, end) == pytest.approx(seconds(start, end), rel=1e-12)


def test_a_window_beside_the_books_is_refused(tmp_path: Path) -> None:
    """A window in the very hour in which the books begin or end, but outside of them, is told what they cover."""
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "devices.csv").write_text("device_id,from_utc,to_utc\ng,2026-01-01T00:20:00Z,2026-01-01T00:40:00Z\n")
    books = Books(tmp_path / "store")
    books.add("tables", [folder])

    def paid(first: str, last: str) -> float | None:
        window = (datetime.fromisoformat(f"2026-01-01T00:{minute}:00+00:00") for minute in (first, last))
        return books.show(["paid_gpu_hours"], (), *window)[0].value  # type: ignore[return-value]

    for outside in (("00", "10"), ("50", "59")):
        with pytest.raises(InputError, match="they cover 2026-01-01 00:20 UTC to 2026-01-01 00:40 UTC"):
            paid(*outside)
    assert paid("10", "50") == pytest.approx(1 / 3, rel=1e-12)
    assert paid("30", "50") == pytest.approx(1 / 6, rel=1e-12)
