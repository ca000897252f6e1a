"""What books take: by hand, in proportion, and beside a store that is there."""

import json
from pathlib import Path

import pytest
from tests.commands import Run

from loadfactor.catalog.facts import read_toml
from loadfactor.interfaces.plans.books import CONSTANTS


def plan(run: Run, *words: object) -> dict[str, float]:
    code, out, err = run("plan", "books", *words, "--json")
    assert (code, err) == (0, "")
    return dict(json.loads(out))


def test_a_fleet_by_hand(run: Run) -> None:
    """100,000 GPUs every 10 s: 864 million samples a day, and every rate counted once."""
    rates = {name: rate["value"] for name, rate in read_toml(CONSTANTS, "books.toml")["rate"].items()}
    found = plan(run, "--gpus", 100_000, "--interval", "10s", "--samples", "30d", "--ledger", "1y")
    assert found["samples_per_day"] == 864e6
    assert found["ledger_rows_per_day"] == pytest.approx(2.4e6 * rates["ledger_rows_per_gpu_hour"])
    a_sample = sum(rates[f"{name}_s_per_sample"] for name in ("receive", "store", "book"))
    cores = 1e4 * a_sample + 1e5 * rates["alert_s_per_minute_gpu"] / 60
    parts = sum(found[f"{name}_cores"] for name in ("receive", "store", "book", "alert"))
    assert parts == pytest.approx(cores)
    kept = 864e6 * rates["bytes_per_sample"] * 30
    kept += found["ledger_rows_per_day"] * rates["bytes_per_ledger_row"] * (1 + rates["sums_share"]) * 365
    assert found["kept_bytes"] == pytest.approx(kept)
    assert found["storage_cost_per_month"] == pytest.approx(kept / 1e9 * 0.023)


def test_twice_the_fleet_takes_twice_as_much(run: Run) -> None:
    """Everything but the limits is in proportion, and half the interval costs what twice the GPUs' samples do."""
    one, two = plan(run, "--gpus", 1000), plan(run, "--gpus", 2000)
    assert one.pop("limits") == two.pop("limits")
    assert two == {name: pytest.approx(2 * value) for name, value in one.items()}
    often = plan(run, "--gpus", 1000, "--interval", "15s")
    assert often["samples_per_day"] == two["samples_per_day"]


@pytest.mark.long
def test_bytes_are_those_of_a_store(tmp_path: Path) -> None:
    """A store that is there is no larger than planned for its samples and GPU-hours by more than small files cost."""
    from loadfactor.books.books import Books
    from loadfactor.simulator import DEMO, simulate, write_tables

    write_tables(simulate(DEMO), tmp_path / "tables")
    books = Books(tmp_path / "books")
    books.add("tables", [tmp_path / "tables"])
    files = books.store.manifest.files
    rates = {name: rate["value"] for name, rate in read_toml(CONSTANTS, "books.toml")["rate"].items()}
    samples = [file for file in files if file.table == "samples"]
    ledger = [file for file in files if file.table == "ledger"]
    assert sum(f.bytes for f in samples) / sum(f.rows for f in samples) < 1.5 * rates["bytes_per_sample"]
    assert sum(f.bytes for f in ledger) / sum(f.rows for f in ledger) < 1.5 * rates["bytes_per_ledger_row"]


def test_refusals_are_a_line(run: Run) -> None:
    """Intervals that are none."""
    code, out, err = run("plan", "books", "--gpus", 8, "--interval", "often")
    assert (code, out, err.count("\n")) == (2, "", 1)
