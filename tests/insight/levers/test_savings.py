"""Savings of levers on small, random and simulated fleets: nothing saved twice, none beyond what was lost; what became of them."""

import random
from datetime import date
from decimal import Decimal
from math import fsum
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import settings as given_settings
from hypothesis import strategies as st
from tests.books.test_losses import TOML
from tests.insight.levers.fleet import at, held, keep
from tests.ledger.fleets import Fleet, add, batches
from tests.ledger.test_books_balance import SETTINGS
from tests.long import rest_long
from tests.simulator.truth import Truth

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.insight.savings import FleetSavings, add_losses, find_savings, follow_levers
from loadfactor.settings.config import settings
from loadfactor.settings.money import DoneLever


def saved_by(found: FleetSavings) -> dict[str, float]:
    return {lever.lever: round(lever.gpu_hours, 6) for lever in found.levers}


@pytest.mark.long
def test_each_idle_stretch_is_of_one_lever(tmp_path: Path) -> None:
    """A notebook idle for 4 h, a tail of 2 h and a pause of 3 h: beyond 60, 15 and 30 minutes they are saved, at the price."""
    books = keep(
        tmp_path,
        {"a": "n1", "b": "n1", "c": "n1"},
        10,
        [
            *held("nb", ["a"], 0, 10, purpose="jupyter", team="vision", user="ann"),
            *held("tail", ["b"], 0, 8, team="nlp", user="bob"),
            *held("pause", ["c"], 0, 10, team="nlp", user="eve"),
        ],
        {
            "a": [(0, 4, 0.0), (4, 10, 1.0)],
            "b": [(0, 6, 1.0), (6, 8, 0.0)],
            "c": [(0, 5, 1.0), (5, 8, 0.0), (8, 10, 1.0)],
        },
    )
    found = find_savings(books, ("team",))
    # b stands free for 2 h in the end, but its node is in use
    assert saved_by(found) == {"cull_notebooks": 3.0, "release_at_end": 1.75, "reclaim_idle": 2.5}
    assert found.lost_gpu_hours == pytest.approx(4 + 2 + 3 + 2)
    assert found.lost == pytest.approx(22.0)
    assert found.saved_at_most == pytest.approx(2 * 7.25) == fsum(lever.saved or 0 for lever in found.levers)
    by_team = {row.by["team"]: (row.lost, row.saved) for row in found.rows}
    assert by_team == {"vision": (8.0, 6.0), "nlp": (10.0, pytest.approx(8.5)), None: (4.0, 0.0)}
    assert found.levers[0].ask[0].user == "ann"
    assert found.levers[0].saved_per_month == pytest.approx(6.0 * 730 / 10)


@pytest.mark.long
def test_a_gpu_that_is_never_used_is_saved_once(tmp_path: Path) -> None:
    """Two GPUs, one never used, both idle for 4 of 10 h: 10 h of the one, and of the other what lies beyond 30 min."""
    books = keep(
        tmp_path,
        {"a": "n1", "b": "n1"},
        10,
        held("j", ["a", "b"], 0, 10, team="t"),
        {"a": [(0, 3, 1.0), (3, 7, 0.0), (7, 10, 1.0)], "b": [(0, 10, 0.0)]},
    )
    found = find_savings(books)
    assert saved_by(found) == {"right_size_jobs": 10.0, "reclaim_idle": 3.5}
    assert found.lost_gpu_hours == pytest.approx(14.0)


@pytest.mark.long
def test_unobserved_time_is_not_saved(tmp_path: Path) -> None:
    """Of 6 h, 2 h idle, 2 h without samples, 2 h idle: two stretches of 1.5 h beyond the threshold; 2 h are stated as unknown."""
    books = keep(tmp_path, {"a": "n1"}, 7, held("j", ["a"], 0, 7), {"a": [(0, 2, 0.0), (4, 6, 0.0), (6, 7, 1.0)]})
    found = find_savings(books)
    assert saved_by(found) == {"reclaim_idle": 3.0}
    assert found.unknown.unobserved == pytest.approx(2.0)


@pytest.mark.long
def test_without_a_price_hours_are_told_and_no_money(tmp_path: Path) -> None:
    """Unpriced hours are no savings in money, and said to be unpriced."""
    books = keep(tmp_path, {"a": "n1"}, 3, held("j", ["a"], 0, 3), {"a": [(0, 2, 0.0), (2, 3, 1.0)]}, price=None)
    found = find_savings(books)
    if found.lost is None:
        assert found.saved_at_most is None
        assert found.levers[0].saved is None
    assert saved_by(found) == {"reclaim_idle": 1.5}


@pytest.mark.long
def test_a_free_node_is_given_back_while_nobody_waits(tmp_path: Path) -> None:
    """Of 10 h a node is free for 6, in two of which a job waits: 2 h and 2 h are left, of each of its 2 GPUs all but 30 min."""
    books = keep(
        tmp_path,
        {"a": "n1", "b": "n1"},
        10,
        [*held("j", ["a", "b"], 0, 4), *held("late", ["a"], 9.9, 10)],
        {"a": [(0, 4, 1.0)], "b": [(0, 4, 1.0)]},
        queue_events=[
            {"job_id": "w", "at_utc": 1_767_225_600_000 + 6 * 3_600_000, "event": "submitted", "gpus": 4.0},
            {"job_id": "w", "at_utc": 1_767_225_600_000 + 8 * 3_600_000, "event": "cancelled", "gpus": 4.0},
        ],
    )
    found = find_savings(books)
    assert saved_by(found)["autoscale_down"] == pytest.approx(2 * (1.5 + 1.4))


@pytest.mark.long
def test_retries_after_the_third_failure_are_spared(tmp_path: Path) -> None:
    """Five attempts of an hour, half active, all fail: of the fourth and the fifth the time that is known to be lost is saved."""
    rows = [row for n in range(5) for row in held("j", ["a"], n, n + 1, attempt=n, end_state="FAILED", user="ann")]
    books = keep(tmp_path, {"a": "n1"}, 5, rows, {"a": [(0, 5, 0.5)]})
    found = find_savings(books)
    assert saved_by(found) == {"cap_retries": 1.0}
    assert found.unknown.uncounted == pytest.approx(2.5)


@pytest.mark.long
def test_a_full_fleet_has_nothing_to_save(tmp_path: Path) -> None:
    """No lever is told, and nothing was lost."""
    books = keep(tmp_path, {"a": "n1"}, 3, held("j", ["a"], 0, 3), {"a": [(0, 3, 1.0)]})
    found = find_savings(books)
    assert (found.levers, found.lost, found.saved_at_most) == ((), 0.0, 0.0)


def test_savings_are_told_by_who_holds(tmp_path: Path) -> None:
    """Another dimension is refused in one line."""
    books = keep(tmp_path, {"a": "n1"}, 1, held("j", ["a"], 0, 1), {"a": [(0, 1, 1.0)]})
    with pytest.raises(InputError, match="team or user"):
        find_savings(books, ("device",))


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


OF_FREE = ("autoscale_down", "smaller_cluster", "pack_nodes", "pool_clusters")
OF_IDLE = ("cull_notebooks", "release_at_end", "reclaim_idle")
MOST = 1 + 1e-9


@pytest.mark.long
def test_no_lever_takes_more_than_was_truly_lost(simulated_books: Books, simulated_truth: Truth) -> None:
    """Idle and free GPU-hours that are saved are fewer than the truth's; all together they are less than what was lost."""
    found = find_savings(simulated_books, ("team",))
    hours = {lever.lever: lever.gpu_hours for lever in found.levers}
    true = simulated_truth.total()
    assert 0 < sum(hours.get(name, 0.0) for name in OF_FREE) <= true.unallocated_gpu_hours * MOST
    assert 0 < sum(hours.get(name, 0.0) for name in OF_IDLE) <= true.idle_gpu_hours * MOST
    assert found.lost is not None
    assert found.saved_at_most is not None
    assert 0 < found.saved_at_most <= found.lost
    of_teams = simulated_truth.by("team")
    for row in found.rows:
        team = row.by["team"]
        if team in of_teams and team is not None:
            idle = sum(row.levers.get(name, 0.0) for name in OF_IDLE)
            assert idle <= of_teams[team].idle_cost * MOST


DONE = date(2026, 1, 3)
"""Two days after the books begin."""


def two_halves(folder: Path, before: float, after: float, tokens: tuple[float, float] | None = None) -> Books:
    """Four days of a GPU at 2 dollars: activity, and perhaps tokens, of the first two days and of the last two."""
    progress = [
        {
            "job_id": "j",
            "unit": "train_token",
            "amount": amount,
            "from_utc": at(48 * n),
            "to_utc": at(48 * n + 48),
            "kept": True,
        }
        for n, amount in enumerate(tokens or ())
    ]
    activity = {"a": [(0, 48, before), (48, 96, after)]}
    return keep(folder, {"a": "n1"}, 96, held("j", ["a"], 0, 96, team="t"), activity, progress=progress)


@pytest.mark.long
def test_a_lever_that_did_nothing_is_told(tmp_path: Path) -> None:
    """With the same work before and after nothing was saved, whatever was promised."""
    (found,) = follow_levers(
        two_halves(tmp_path, 0.5, 0.5), [DoneLever(lever="reclaim_idle", done=DONE, promised=Decimal(500))]
    )
    assert found.verdict.startswith("did nothing")
    assert found.saved_per_month == pytest.approx(0.0)
    assert found.promised_per_month == 500.0
    assert found.days == 2.0


@pytest.mark.long
@pytest.mark.parametrize("lever", ["larger_batch", "mixed_precision", "spot", "committed_base"])
def test_levers_of_diagnoses_and_of_prices_are_followed_up(tmp_path: Path, lever: str) -> None:
    """Every name that savings prints can be named as done, and did nothing where the work for the same money stayed the same."""
    (found,) = follow_levers(two_halves(tmp_path, 0.5, 0.5), [DoneLever(lever=lever, done=DONE)])
    assert found.verdict.startswith("did nothing")


@pytest.mark.long
def test_what_is_given_back_is_in_the_unit_of_the_promise(tmp_path: Path) -> None:
    """Underused 28.8 of 48 h before and 19.2 after: 9.6 h given back, $19.20, 146 h and $292 a month, half of what was promised.

    Half as much work again for the same money: it works. Nothing was idle before or after: a lever of idle time gave nothing back.
    """
    books = two_halves(tmp_path, 0.4, 0.6)
    levers = [DoneLever(lever=name, done=DONE, promised=Decimal(584)) for name in ("larger_batch", "reclaim_idle")]
    found, other = follow_levers(books, levers)
    assert found.gpu_hours_per_month == pytest.approx(9.6 * 730 / 48)
    assert found.saved_per_month == pytest.approx(2 * 9.6 * 730 / 48)
    assert found.judged_by == "effective GPU-hour"
    assert found.verdict == "works: 50.0 % more effective GPU-hour for the same money, 50 % of what was promised"
    assert (other.gpu_hours_per_month, other.saved_per_month) == pytest.approx((0.0, 0.0))


@pytest.mark.long
def test_work_counts_and_not_utilization(tmp_path: Path) -> None:
    """Activity rose and tokens fell: tokens are what was wanted, so it became worse."""
    books = two_halves(tmp_path, 0.4, 0.8, (1e6, 0.9e6))
    (found,) = follow_levers(books, [DoneLever(lever="cap_retries", done=DONE, team="t")])
    assert found.judged_by == "train_token"
    assert found.verdict.startswith("made it worse")
    assert {of.unit: round(of.change, 3) for of in found.work} == {"train_token": -0.1, "effective GPU-hour": 1.0}


@pytest.mark.long
def test_too_little_is_known_of_yesterday(tmp_path: Path) -> None:
    """Less than a day on one side tells nothing, and a mistyped lever gets the nearest name."""
    books = two_halves(tmp_path, 0.4, 0.6)
    (found,) = follow_levers(books, [DoneLever(lever="cap_retries", done=date(2026, 1, 5))])
    assert (found.saved_per_month, found.verdict[:14]) == (None, "cannot be told")
    with pytest.raises(InputError, match="reclaim_idle"):
        follow_levers(books, [DoneLever(lever="reclaim_idel", done=DONE)])
