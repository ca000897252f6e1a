"""Levers on small fleets: what each saves, checked by hand; nothing is saved twice, and never more than was lost."""

from math import fsum
from pathlib import Path

import pytest
from tests.insight.levers.fleet import held, keep

from loadfactor.base.errors import InputError
from loadfactor.insight.savings import FleetSavings, find_savings


def saved_by(found: FleetSavings) -> dict[str, float]:
    return {lever.lever: round(lever.gpu_hours, 6) for lever in found.levers}


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


def test_unobserved_time_is_not_saved(tmp_path: Path) -> None:
    """Of 6 h, 2 h idle, 2 h without samples, 2 h idle: two stretches of 1.5 h beyond the threshold; 2 h are stated as unknown."""
    books = keep(tmp_path, {"a": "n1"}, 7, held("j", ["a"], 0, 7), {"a": [(0, 2, 0.0), (4, 6, 0.0), (6, 7, 1.0)]})
    found = find_savings(books)
    assert saved_by(found) == {"reclaim_idle": 3.0}
    assert found.unknown.unobserved == pytest.approx(2.0)


def test_without_a_price_hours_are_told_and_no_money(tmp_path: Path) -> None:
    """Unpriced hours are no savings in money, and said to be unpriced."""
    books = keep(tmp_path, {"a": "n1"}, 3, held("j", ["a"], 0, 3), {"a": [(0, 2, 0.0), (2, 3, 1.0)]}, price=None)
    found = find_savings(books)
    if found.lost is None:
        assert found.saved_at_most is None
        assert found.levers[0].saved is None
    assert saved_by(found) == {"reclaim_idle": 1.5}


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


def test_retries_after_the_third_failure_are_spared(tmp_path: Path) -> None:
    """Five attempts of an hour, half active, all fail: of the fourth and the fifth the time that is known to be lost is saved."""
    rows = [row for n in range(5) for row in held("j", ["a"], n, n + 1, attempt=n, end_state="FAILED", user="ann")]
    books = keep(tmp_path, {"a": "n1"}, 5, rows, {"a": [(0, 5, 0.5)]})
    found = find_savings(books)
    assert saved_by(found) == {"cap_retries": 1.0}
    assert found.unknown.uncounted == pytest.approx(2.5)


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
