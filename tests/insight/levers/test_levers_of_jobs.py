"""Levers on jobs, by hand: a cheaper GPU, less power where memory bounds, and the causes that a diagnosis finds."""

from collections.abc import Callable, Iterator
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from tests.faults.job_scenarios import JobShape, make_rows, make_scenario, measure
from tests.insight.levers.fleet import START, at, held
from tests.ledger.fleets import MINUTE, add, batch
from tests.long import rest_long

from loadfactor.books.books import Books
from loadfactor.catalog.accelerators import accelerator
from loadfactor.insight.diagnosis.diagnose import diagnose_books
from loadfactor.insight.levers.diagnosed_levers import (
    FEED_GPUS,
    FUSE_KERNELS,
    LARGER_BATCH,
    OVERLAP_COMMUNICATION,
    REPLACE_SLOW_GPUS,
    SMALLER_GPU,
)
from loadfactor.insight.levers.lever import PriceSaving
from loadfactor.insight.levers.offers import PriceOffers
from loadfactor.insight.savings import FleetSavings, find_savings
from loadfactor.settings.config import settings
from loadfactor.sources.base import Rows, Source

HOURS = 10
PRICES = {"H100": 2.0, "L4": 0.4, "A100": 1.0, "MI300X": 0.1}
H100, L4, A100 = (accelerator(name) for name in ("h100-sxm", "l4", "a100-sxm"))


def make_books(
    folder: Path, sm: float, memory_gb: float, gpus: tuple[str, ...] = ("a",), purpose: str = "training", **more: float
) -> Books:
    """A job that holds GPUs all the time, at an activity and with a memory in use."""
    samples = [
        {
            "device_id": gpu, "from_utc": START + m * MINUTE, "to_utc": START + (m + 5) * MINUTE, "sm_active_share": sm,
            "engine_active_share": sm, "mem_used_bytes": memory_gb * 1e9, "mem_total_bytes": H100.driver_memory_bytes, **more,
        }
        for gpu in gpus for m in range(0, HOURS * 60, 5)
    ]  # fmt: skip
    rows: dict[str, list[dict[str, Any]]] = {
        "devices": [
            {"device_id": gpu, "node": "n", "accelerator": "H100", "from_utc": START, "to_utc": at(HOURS)}
            for gpu in gpus
        ],
        "allocations": held("job", gpus, 0, HOURS, purpose=purpose),
        "samples": samples,
        "prices": [
            {"accelerator": name, "basis": "contracted", "price_per_gpu_hour": price} for name, price in PRICES.items()
        ],
    }
    folder.mkdir(exist_ok=True)
    books = Books(folder / "store")
    add(books, [batch(name, list(of)) for name, of in rows.items()], "fleet", folder)
    return books


def find(books: Books, offers: PriceOffers | None = None) -> dict[str, PriceSaving]:
    """Levers of price by name."""
    found = find_savings(books, offers=offers or PriceOffers(), most_diagnosed=0)
    return {lever.lever: lever for lever in found.price_levers}


@pytest.mark.long
def test_a_job_moves_to_the_accelerator_that_is_cheaper_for_certain(tmp_path: Path) -> None:
    """Kernels for half of the time take at most 3.4 times as long on an A100: ten hours become 22 and cost more; a tenth does not.

    What `share_gpus` saved of the idle time is left out: the hours that are left are denser with kernels.
    """
    assert "cheaper_gpu" not in find(make_books(tmp_path / "half", 0.5, 60))
    books = make_books(tmp_path / "tenth", 0.1, 60)
    saved_before = sum(lever.gpu_hours for lever in find_savings(books, most_diagnosed=0).levers)
    found = find(books)["cheaper_gpu"]
    hours = HOURS - saved_before
    assert found.gpu_hours == pytest.approx(hours)
    slower = H100.peak_flops("fp32") / A100.peak_flops("fp32")
    kernels = 0.1 * HOURS / hours
    assert slower == pytest.approx(67 / 19.5, rel=0.01)
    assert found.saved == pytest.approx(hours * (2 - 1 * (1 - kernels + kernels * slower)))
    assert found.saved_range is not None
    assert found.saved_range.high == pytest.approx(hours * 1.0)
    assert found.confidence_word == "medium"
    assert "a100-sxm in place of h100-sxm" in found.evidence[0]


@pytest.mark.long
def test_memory_links_and_waiting_people_keep_a_job_where_it_is(tmp_path: Path) -> None:
    """An L4 has 24 GB; GPUs that talk over NVLink, or of which nobody measures it, need it; who serves must not become slower."""
    small = find(make_books(tmp_path / "small", 0.06, 12, ("a", "b"), nvlink_bytes_per_s=0.0))
    assert "l4 in place of h100-sxm" in small["cheaper_gpu"].evidence[0]
    talking = make_books(tmp_path / "talking", 0.06, 12, ("a", "b"), nvlink_bytes_per_s=2e11)
    assert "cheaper_gpu" not in find(talking)
    assert "cheaper_gpu" not in find(make_books(tmp_path / "unknown", 0.06, 12, ("a", "b")))
    assert "cheaper_gpu" not in find(make_books(tmp_path / "full", 0.06, 78))
    assert "cheaper_gpu" not in find(make_books(tmp_path / "serving", 0.06, 60, purpose="serving"))


def test_what_moved_is_not_committed_again(tmp_path: Path) -> None:
    """A base of committed GPUs lies under what stays: the only job moves, so there is none."""
    books = make_books(tmp_path, 0.1, 60)
    assert {*find(books, PriceOffers(committed_per_gpu_hour=0.5))} == {"cheaper_gpu"}


OWNED = '[[owned]]\npool = "h100-sxm"\naccelerator = "h100-sxm"\nserver_price = 300_000\npue = 1.5\n'
SIGNALS = frozenset(measure(make_scenario("any", 1, (), JobShape("h100-sxm", 1, 40, 60))))
Write = Callable[[str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes loadfactor.toml in the working folder, and has it read anew."""
    monkeypatch.chdir(tmp_path)

    def put(text: str) -> None:
        (tmp_path / "loadfactor.toml").write_text(text)
        settings.cache_clear()

    yield put
    settings.cache_clear()


def fill(folder: Path, cause: str, signals: frozenset[str] = SIGNALS) -> Books:
    """Books of a job with a cause."""
    job = make_scenario("job", 44, (cause,) if cause else (), JobShape("h100-sxm", 4, 240, 60))
    rows = [Rows(batch.table, batch.data, "simulated") for batch in make_rows([job], signals)]
    books = Books.open(folder, create=True)
    books.add_rows(Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows)), rows, "scenarios")
    return books


def find_power_cap(books: Books) -> PriceSaving | None:
    """The lever, if it is there."""
    return next((lever for lever in find_savings(books).price_levers if lever.lever == "power_cap"), None)


@pytest.mark.long
def test_electricity_is_saved_where_memory_is_the_limit(tmp_path: Path, write: Write) -> None:
    """13.7 to 32 % of the kilowatt-hours drawn in the share of time at stake, less what other levers saved, at 0.2 × PUE 1.5."""
    write(OWNED + "price_per_kwh = 0.2\n")
    books = fill(tmp_path / "books", "hbm_bound")
    found = find_power_cap(books)
    assert found is not None
    assert found.saved is not None
    assert found.saved_range is not None
    finding = next(f for f in diagnose_books(books).jobs[0].findings if f.cause == "hbm_bound")
    with books.snapshot() as snapshot:
        kwh = float(str(snapshot.show(("energy_kwh",), ("job",)).column("energy_kwh")[0]))
    electricity = kwh * finding.share.high * found.gpu_hours / 16 * 0.2 * 1.5
    assert found.saved == pytest.approx(0.137 * electricity)
    assert found.saved_range.high == pytest.approx(0.32 * electricity)
    assert found.confidence_word == "low"
    assert not found.missing
    assert any("2205.09646" in sentence for sentence in found.evidence)


@pytest.mark.long
def test_what_is_missing_is_said_and_never_zero(tmp_path: Path, write: Write) -> None:
    """Without a price of electricity, or without power, the saving is not known; colocation by the kilowatt has no such price."""
    write(OWNED)
    books = fill(tmp_path / "books", "hbm_bound")
    found = find_power_cap(books)
    assert found is not None
    assert (found.saved, found.missing) == (None, ("price_per_kwh in [[owned]] of loadfactor.toml",))
    write(OWNED.replace("pue = 1.5", "colocation_price_per_kw_month = 130") + "price_per_kwh = 0.2\n")
    found = find_power_cap(books)
    assert found is not None
    assert found.saved is None
    write(OWNED + "price_per_kwh = 0.2\n")
    found = find_power_cap(fill(tmp_path / "blind", "hbm_bound", SIGNALS - {"power_w"}))
    assert found is not None
    assert (found.saved, len(found.missing)) == (None, 2)


@pytest.mark.long
def test_what_the_clock_bounds_keeps_its_power(tmp_path: Path, write: Write) -> None:
    """A healthy job, and one that computes in FP32, would only become slower."""
    write(OWNED + "price_per_kwh = 0.2\n")
    assert find_power_cap(fill(tmp_path / "healthy", "")) is None
    assert find_power_cap(fill(tmp_path / "fp32", "no_mixed_precision")) is None


OF_DIAGNOSES = {"feed_gpus", "larger_batch", "mixed_precision", "fuse_kernels", "overlap_communication"} | {
    "replace_slow_gpus",
    "smaller_gpu",
}
SHAPE = JobShape("h100-sxm", 4, 240, 60)
PULLED = (
    ("input_pipeline", FEED_GPUS.name),
    ("host_copies", FEED_GPUS.name),
    ("small_batch", LARGER_BATCH.name),
    ("launch_bound", FUSE_KERNELS.name),
    ("communication", OVERLAP_COMMUNICATION.name),
    ("straggler", REPLACE_SLOW_GPUS.name),
    ("wrong_gpu", SMALLER_GPU.name),
)


def fill_with(folder: Path, *causes: tuple[str, ...]) -> Books:
    """Books of a job of some hours for each set of causes."""
    scenarios = [make_scenario(f"job-{n}", 40 + n, of, SHAPE) for n, of in enumerate(causes)]
    rows = [Rows(batch.table, batch.data, "simulated") for batch in make_rows(scenarios)]
    books = Books.open(folder, create=True)
    books.add_rows(Source("simulated", lambda _paths: (), lambda _paths, _options: iter(rows)), rows, "scenarios")
    return books


def pick(found: FleetSavings) -> dict[str, float]:
    """GPU-hours of the levers that come of diagnoses."""
    return {lever.lever: lever.gpu_hours for lever in found.levers if lever.lever in OF_DIAGNOSES}


@pytest.mark.long
@pytest.mark.parametrize(("cause", "lever"), rest_long(PULLED, 4))
def test_a_cause_pulls_its_lever(tmp_path: Path, cause: str, lever: str) -> None:
    """It saves the least of what the diagnosis has at stake, or what is left of it, and says which job, why and what to set."""
    books = fill_with(tmp_path / "books", (cause,))
    finding = next(f for f in diagnose_books(books).jobs[0].findings if f.cause == cause)
    found = find_savings(books)
    assert 0 < pick(found)[lever] <= finding.gpu_hours.low * (1 + 1e-9)
    told = next(each for each in found.levers if each.lever == lever)
    assert finding.action == told.action
    assert "job-0" in told.evidence[0]
    assert told.confidence_word == "medium"


@pytest.mark.long
def test_healthy_jobs_pull_none(tmp_path: Path) -> None:
    """What is healthy needs no change."""
    assert not pick(find_savings(fill_with(tmp_path / "books", (), (), ())))


@pytest.mark.long
def test_pairs_of_causes_are_not_saved_twice(tmp_path: Path) -> None:
    """Of jobs with two causes, levers together take no more than the union of what both have at stake at least."""
    books = fill_with(tmp_path / "books", ("input_pipeline", "small_batch"), ("communication", "launch_bound"))
    found = find_savings(books)
    at_stake = fsum(job.at_stake_gpu_hours.low for job in diagnose_books(books).jobs)
    assert 0 < fsum(pick(found).values()) <= at_stake * (1 + 1e-9)
    assert found.saved_gpu_hours <= found.lost_gpu_hours * (1 + 1e-12)
    assert found.saved_at_most is not None
    assert found.lost is not None
    assert found.saved_at_most <= found.lost * (1 + 1e-12)


@pytest.mark.long
def test_what_was_not_looked_at_is_said(tmp_path: Path) -> None:
    """Where fewer jobs are diagnosed than lose time, each lever of diagnoses says which part of the lost GPU-hours was seen."""
    books = fill_with(tmp_path / "books", ("input_pipeline",), ("host_copies",), ())
    some, every = (find_savings(books, most_diagnosed=most).levers for most in (1, 3))
    told = next(lever for lever in some if lever.lever == FEED_GPUS.name).evidence
    assert "1 of 3 jobs, " in told[1]
    assert told[1].endswith(" of the GPU-hours that they lose, were looked at.")
    assert 0.4 < float(told[1].split(", ")[1].split(" %")[0]) / 100 < 0.9
    told = next(lever for lever in every if lever.lever == FEED_GPUS.name).evidence
    assert told[1] == "3 of 3 jobs, 100 % of the GPU-hours that they lose, were looked at."
