"""Levers on random fleets: each saves nothing or more, all together never more than was lost, in hours and money, by group too."""

import random
from math import fsum
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from tests.books.test_waterfall_of_fleets import TOML
from tests.ledger.fleets import Fleet, add, batches
from tests.ledger.test_books_balance import SETTINGS
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.insight.savings import add_losses, find_savings
from loadfactor.settings.config import settings


@pytest.mark.parametrize("examples", rest_long((1, 4)))
def test_no_fleet_saves_more_than_it_lost(examples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With failures, notebooks, work that was lost and prices that are missing; what was lost is what the waterfall says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loadfactor.toml").write_text(TOML)
    settings.cache_clear()

    @given_settings(SETTINGS, max_examples=examples)
    @given(st.randoms(use_true_random=False))
    def run(rnd: random.Random) -> None:
        check_one(rnd)

    run()


def check_one(rnd: random.Random) -> None:
    fleet = Fleet(rnd)
    for row in fleet.tables["allocations"]:
        row["end_state"] = rnd.choice((None, "FAILED", "FAILED", "COMPLETED"))
        row["purpose"] = row["purpose"] and rnd.choice((row["purpose"], "notebook"))
    for row in fleet.tables["progress"]:
        if row["unit"] == "train_token":
            row["amount"] *= rnd.choice((1.0, 1e6, 1e15))
        row["cause"] = rnd.choice((None, "restart", "preemption"))
    with TemporaryDirectory() as folder:
        books = Books(Path(folder) / "store")
        add(books, batches(fleet.tables), "all", Path(folder))
        try:
            found = find_savings(books, rnd.choice((("team",), ("team", "user"))))
        except InputError:  # books that know of no GPU
            return
        fall = books.waterfall().all
    assert found.lost_gpu_hours == pytest.approx(add_losses(fall.gpu_hours), rel=1e-9, abs=1e-9)
    assert all(lever.gpu_hours >= 0 and (lever.saved is None or lever.saved >= 0) for lever in found.levers)
    assert found.saved_gpu_hours <= found.lost_gpu_hours * (1 + 1e-12) + 1e-12
    assert fsum(row.lost_gpu_hours for row in found.rows) == pytest.approx(found.lost_gpu_hours)
    assert fsum(row.gpu_hours for row in found.rows) == pytest.approx(found.saved_gpu_hours, abs=1e-9)
    for row in found.rows:
        assert row.gpu_hours <= row.lost_gpu_hours * (1 + 1e-9) + 1e-9
    if found.lost is None or found.saved_at_most is None:
        assert fall.cost is None
        return
    assert fall.cost is not None
    assert found.lost == pytest.approx(add_losses(fall.cost), rel=1e-9, abs=1e-9)
    assert found.saved_at_most == fsum(lever.saved or 0.0 for lever in found.levers)
    assert found.saved_at_most <= found.lost * (1 + 1e-12) + 1e-12
