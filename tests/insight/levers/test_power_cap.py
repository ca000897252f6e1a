"""Less power for a job that memory bounds: electricity at the price that [[owned]] says, and what is missing where it does not."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.job_scenarios import JobShape, make_rows, make_scenario, measure

from loadfactor.books.books import Books
from loadfactor.insight.diagnosis.diagnose import diagnose_books
from loadfactor.insight.levers.lever import PriceSaving
from loadfactor.insight.savings import find_savings
from loadfactor.settings.config import settings
from loadfactor.sources.base import Rows, Source

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


def find(books: Books) -> PriceSaving | None:
    """The lever, if it is there."""
    return next((lever for lever in find_savings(books).price_levers if lever.lever == "power_cap"), None)


def test_electricity_is_saved_where_memory_is_the_limit(tmp_path: Path, write: Write) -> None:
    """13.7 to 32 % of the kilowatt-hours drawn in the share of time at stake, less what other levers saved, at 0.2 × PUE 1.5."""
    write(OWNED + "price_per_kwh = 0.2\n")
    books = fill(tmp_path / "books", "hbm_bound")
    found = find(books)
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


def test_what_is_missing_is_said_and_never_zero(tmp_path: Path, write: Write) -> None:
    """Without a price of electricity, or without power, the saving is not known; colocation by the kilowatt has no such price."""
    write(OWNED)
    books = fill(tmp_path / "books", "hbm_bound")
    found = find(books)
    assert found is not None
    assert (found.saved, found.missing) == (None, ("price_per_kwh in [[owned]] of loadfactor.toml",))
    write(OWNED.replace("pue = 1.5", "colocation_price_per_kw_month = 130") + "price_per_kwh = 0.2\n")
    found = find(books)
    assert found is not None
    assert found.saved is None
    write(OWNED + "price_per_kwh = 0.2\n")
    found = find(fill(tmp_path / "blind", "hbm_bound", SIGNALS - {"power_w"}))
    assert found is not None
    assert (found.saved, len(found.missing)) == (None, 2)


def test_what_the_clock_bounds_keeps_its_power(tmp_path: Path, write: Write) -> None:
    """A healthy job, and one that computes in FP32, would only become slower."""
    write(OWNED + "price_per_kwh = 0.2\n")
    assert find(fill(tmp_path / "healthy", "")) is None
    assert find(fill(tmp_path / "fp32", "no_mixed_precision")) is None
