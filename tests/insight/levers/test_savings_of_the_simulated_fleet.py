"""Levers on a simulated fleet whose truth is known: none takes more than what was truly lost of its kind."""

from tests.simulator.truth import Truth

from loadfactor.books.books import Books
from loadfactor.insight.savings import find_savings

OF_FREE = ("autoscale_down", "smaller_cluster", "pack_nodes", "pool_clusters")
OF_IDLE = ("cull_notebooks", "release_at_end", "reclaim_idle")
MOST = 1 + 1e-9


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
