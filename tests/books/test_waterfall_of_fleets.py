"""The waterfall of random fleets: it adds up to what was paid, and what nobody knows is no loss."""

import random
from math import fsum
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from tests.ledger.fleets import HOUR, Fleet, add, batches
from tests.ledger.test_books_balance import SETTINGS
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.metrics.fullness import DROPS
from loadfactor.settings.config import settings
from loadfactor.tables.work import SECTION_KINDS

TOML = """
[[network]]
match = { job_id = ["*1", "*2", "*a"] }
model = "gpt2-xl"
sequence_length = 1024
datatype = "bf16"
"""
GROUPS = (("team",), ("job", "day"))


@pytest.mark.parametrize("examples", rest_long((1, 4)))
def test_losses_unknown_and_useful_add_up(examples: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On random fleets with work of all kinds, to a billionth, in hours and money, in total and by group."""
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
    for row in fleet.tables["progress"]:
        if rnd.random() < 0.3:
            row["unit"] = "model_flop"
        if row["unit"] in ("train_token", "model_flop"):
            row["amount"] *= rnd.choice((1.0, 1e6, 1e15))
        row["cause"] = rnd.choice((None, "restart", "preemption", "cosmic rays"))
        begin = row["from_utc"] + rnd.randrange(-HOUR, HOUR)
        section = {"from_utc": begin, "to_utc": begin + rnd.randrange(2 * HOUR), "kind": rnd.choice(SECTION_KINDS)}
        fleet.tables["job_sections"].append({"job_id": row["job_id"], **section})
    with TemporaryDirectory() as folder:
        books = Books(Path(folder) / "store")
        add(books, batches(fleet.tables), "all", Path(folder))
        with books.snapshot() as snapshot:
            try:
                found = snapshot.waterfall(rnd.choice(GROUPS))
            except InputError:  # books that know of no GPU
                return
            hours, cost = snapshot.show(("paid_gpu_hours", "cost"))
    for group in (found.all, *found.rows):
        for fall in (group.gpu_hours, group.cost):
            if fall is not None:
                amounts = [*(getattr(fall, drop.name) for drop in DROPS), fall.useful]
                assert min(amounts) >= -1e-9
                assert fsum(amounts) == pytest.approx(fall.paid, rel=1e-9, abs=1e-9)
                for of in {part.of for part in group.causes}:
                    of_whole = [part for part in group.causes if part.of == of]
                    parts = [part.gpu_hours if fall is group.gpu_hours else part.cost for part in of_whole]
                    assert min(parts) >= 0
                    assert fsum(parts) == pytest.approx(getattr(fall, of), rel=1e-9, abs=1e-9)
        held = group.gpu_hours
        if not held.not_math + held.lost_work + held.failed_work + held.useful:
            assert held.uncounted == pytest.approx(held.after("active"), abs=1e-9)
    assert found.all.gpu_hours.paid == pytest.approx(hours.value, rel=1e-9)
    if found.all.cost is not None and cost.value is not None:
        assert found.all.cost.paid == pytest.approx(cost.value, rel=1e-9, abs=1e-9)
    for drop in DROPS:
        parts = fsum(getattr(group.gpu_hours, drop.name) for group in found.rows)
        assert parts == pytest.approx(getattr(found.all.gpu_hours, drop.name), rel=1e-9, abs=1e-9)
