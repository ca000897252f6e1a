"""The way from paid to useful: losses, what is unknown and what was useful add up to what was paid."""

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadfactor.metrics.fullness import DROPS, LEVELS, Spent, WorkShares, join, measure_shares, pour, take_shares

AMOUNT = st.floats(0, 1e9)
SHARE = st.floats(0, 1)


def test_the_published_waterfall() -> None:
    """$10,000 at 90 % allocated, 80 % not idle, 70 % active, 55 % math and 92 % kept: $2,550.24 were useful."""
    losses, useful = take_shares(10_000.0, (0.9, 0.8, 0.7, 0.55, 0.92))
    assert losses == pytest.approx([1000.00, 1800.00, 2160.00, 2268.00, 221.76], abs=1e-9)
    assert useful == pytest.approx(2550.24, abs=1e-9)
    found = pour(Spent(unallocated=1000, idle=1800, busy=7200, active=5040), WorkShares(0.55, 0.92, 1.0))
    levels = [10_000, 9000, 9000, 7200, 5040, 2772, 2550.24, 2550.24]
    assert [found.after(level) for level in LEVELS] == pytest.approx(levels, abs=1e-9)


@given(st.lists(st.tuples(st.tuples(*[AMOUNT] * 5), SHARE, SHARE, SHARE, SHARE, st.booleans()), min_size=1, max_size=6))
def test_nothing_is_lost_on_the_way(cells: list[tuple[tuple[float, ...], float, float, float, float, bool]]) -> None:
    """Whatever was spent: all amounts are at least zero and add up to what was paid, and unknown FLOPs are no loss."""
    falls, paid = [], []
    for (down, free, unseen, idle, busy), activity, math, kept, useful, is_known in cells:
        spent = Spent(down, free, unseen, idle, busy, busy * activity)
        falls.append(pour(spent, WorkShares(math, kept, useful) if is_known else None))
        paid += [down, free, unseen, idle, busy]
        if not is_known:
            assert falls[-1].not_math == falls[-1].lost_work == falls[-1].useful == 0
    whole = join(falls)
    amounts = [*(getattr(whole, drop.name) for drop in DROPS), whole.useful]
    assert min(amounts) >= 0
    assert fsum(amounts) == pytest.approx(fsum(paid), rel=1e-9)
    assert whole.after("paid") == whole.paid


def test_flops_of_unobserved_time_count_for_nothing() -> None:
    """Of a job that was observed half of its time, half of its FLOPs are held against its activity."""
    hours = Spent(unobserved=10, busy=10, active=8)
    assert measure_shares(hours, 8.0, 6.0, has_failed=False) == WorkShares(0.5, 0.75, 1.0)
    assert measure_shares(hours, 80.0, 80.0, has_failed=True) == WorkShares(1.0, 1.0, 0.0)
    assert measure_shares(Spent(unobserved=10), 8.0, 6.0, has_failed=False).math == 0
