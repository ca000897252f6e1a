"""Two stores that received the same, each with outages, and what one brings over from the other: the books of one that had none."""

import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from tests.commands import Run
from tests.ledger.fleets import HOUR, MINUTE, Fleet, add, batches
from tests.ledger.test_books_balance import assert_same_ledger, ledger_of
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.store.live import LiveBatch, LiveLog

START = 1_767_225_600_000  # 2026-01-01
Batches = Sequence[LiveBatch]


def receive(folder: Path, deliveries: Sequence[Batches], flush_every: int = 30) -> Books:
    """Books that took these deliveries, flushed now and then."""
    books = Books.open(folder, create=True)
    with LiveLog.open(folder) as log:
        for place, delivery in enumerate(deliveries, 1):
            log.acknowledge(delivery)
            if not place % flush_every or place == len(deliveries):
                log.discard_through(books.flush())
    return books


def minute_of(minute: int) -> list[LiveBatch]:
    """What an exporter and a scheduler said in a minute: two GPUs, and a job each 20 minutes that ends as it is listed."""
    at = START + 23 * HOUR + minute * MINUTE
    names = ["n-g0", "n-g1"]
    samples = {"device_id": names, "to_utc": [at] * 2, "busy_share": [(minute % 10) / 10] * 2, "power_w": [300.0] * 2}
    devices = {"device_id": names, "node": ["n"] * 2, "from_utc": [START] * 2, "to_utc": [at] * 2}
    found = [
        LiveBatch("dcgm:n", "samples", pa.table(samples), "n"),
        LiveBatch("dcgm:n", "devices", pa.table(devices), "n"),
    ]
    job, age = divmod(minute, 20)
    began = at - age * MINUTE
    held = {"device_id": names[:1], "job_id": [f"job-{job}"], "from_utc": [began], "team": ["red"]}
    if age == 0:
        found.append(LiveBatch("slurm:c", "allocations", pa.table(held), "c"))
    if age == 15:
        found.append(LiveBatch("slurm:c", "allocations", pa.table({**held, "to_utc": [at]}), "c"))
    return found


def relist(minutes: Sequence[int]) -> list[LiveBatch]:
    """What a scheduler lists again after an outage: it tells only of jobs."""
    return [batch for minute in minutes for batch in minute_of(minute) if batch.source == "slurm:c"]


@pytest.mark.parametrize("seed", rest_long(range(10), 0))
def test_a_pair_with_outages_has_the_books_of_one(seed: int, tmp_path: Path) -> None:
    """Each misses other minutes, and hears of jobs again afterwards; merged both ways, twice, both are the whole."""
    rnd, count = random.Random(seed), 130
    outages = [range(first := rnd.randrange(5, 60), first + 10), range(first := rnd.randrange(70, 110), first + 10)]
    deliveries = [minute_of(minute) for minute in range(count)]
    pair = []
    for name, outage in zip("ab", outages, strict=True):
        taken = [d for place, d in enumerate(deliveries) if place not in outage]
        taken[outage[0]] = [*relist(outage), *taken[outage[0]]]
        pair.append(receive(tmp_path / name, taken, rnd.randrange(15, 50)))
    whole = receive(tmp_path / "whole", deliveries)
    for into, other in ((0, 1), (1, 0), (0, 1), (1, 0)):
        pair[into].merge(pair[other])
    for books in pair:
        assert_same_ledger(ledger_of(books), ledger_of(whole))
        assert not books.merge(pair[0])
        assert not books.merge(pair[1])


@pytest.mark.parametrize("seed", rest_long(range(12)))
def test_stores_of_parts_of_the_imports_make_the_whole(seed: int, tmp_path: Path) -> None:
    """Imports here, there or in both, each in its own order: what is brought over makes the ledger of all of them."""
    fleet = Fleet(random.Random(seed))
    rnd = random.Random(seed)
    both = [Books(tmp_path / "a"), Books(tmp_path / "b")]
    whole = Books(tmp_path / "whole")
    for name, rows in fleet.tables.items():
        middle = len(rows) // 2
        for part, some in (("first", rows[:middle]), ("second", rows[middle:])):
            if not some:
                continue
            add(whole, batches({name: some}), f"{name} {part}", tmp_path, source="slurm")
            for books in rnd.choice((both[:1], both[1:], both)):
                add(books, batches({name: some}), f"{name} {part}", tmp_path, source="slurm")
    both[0].merge(both[1])
    assert_same_ledger(ledger_of(both[0]), ledger_of(whole))
    assert [r.digest for r in sorted(both[0].imports, key=lambda r: r.digest)] == sorted(
        r.digest for r in whole.imports
    )


def test_books_of_another_currency_stay_out(tmp_path: Path) -> None:
    """Nothing is brought over from books that are kept in another currency."""
    books, other = receive(tmp_path / "a", [minute_of(0)]), Books(tmp_path / "b", currency="EUR")
    with LiveLog.open(tmp_path / "b") as log:
        log.acknowledge(minute_of(1))
        other.flush()
    with pytest.raises(InputError, match="kept in EUR, these in USD"):
        books.merge(other)


def test_the_command_says_what_came_over(tmp_path: Path, run: Run) -> None:
    """The page names what each import brought; a second time there is nothing to bring."""
    first, second = (
        receive(tmp_path / name, [minute_of(m) for m in minutes]).store.folder
        for name, minutes in (("a", range(3)), ("b", range(5)))
    )
    for said in ("4 samples", "Nothing to bring over"):
        code, page, _ = run("merge", second, "--store", first)
        assert (code, said in page) == (0, True)
