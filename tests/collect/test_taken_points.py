"""Answers that overlap: each point counts once, whenever the server stored it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.collect import sample_stream as taken_points
from loadfactor.collect.sample_stream import KNOWN_MS, TakenPoints
from loadfactor.sources.prometheus.remote_write import Points

MINUTE_MS = 60_000


def make(*points: tuple[int, int]) -> Points:
    """Points by series and minute."""
    series, minutes = zip(*points, strict=True) if points else ((), ())
    at_ms = np.array(minutes, np.int64) * MINUTE_MS
    return Points(np.array(series, np.int32), at_ms, np.zeros(len(points)))


def read(points: Points) -> list[tuple[int, int]]:
    """The same as pairs."""
    return sorted(zip(points.series.tolist(), (points.at_ms // MINUTE_MS).tolist(), strict=True))


def test_a_point_that_a_server_stored_late_fills_its_hole() -> None:
    """It is older than points of its series that were taken; asked for again, it counts, once."""
    taken = TakenPoints()
    assert read(taken.pick_new(make((0, 11), (0, 13), (1, 12)), 10 * MINUTE_MS)) == [(0, 11), (0, 13), (1, 12)]
    again = make((0, 11), (0, 12), (0, 13), (1, 12), (0, 14))
    assert read(taken.pick_new(again, 13 * MINUTE_MS)) == [(0, 12), (0, 14)]
    assert read(taken.pick_new(again, 14 * MINUTE_MS)) == []


def test_what_an_earlier_process_took_is_not_taken_again() -> None:
    """Points before the first answer of this one."""
    taken = TakenPoints()
    taken.pick_new(make((0, 11)), 10 * MINUTE_MS)
    assert read(taken.pick_new(make((0, 9), (0, 10), (0, 11), (0, 12)), 11 * MINUTE_MS)) == [(0, 12)]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(0, 12)), max_size=80),
    st.sampled_from([5, 1_000_000]),
)
def test_every_point_is_taken_once(stored: list[tuple[int, int, int]], most: int) -> None:
    """Each of those that were there within the overlap after their time, where few are known; never one twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taken_points, "MOST_KNOWN", most)
        taken, found = TakenPoints(), list[tuple[int, int]]()
        overlap = KNOWN_MS // MINUTE_MS
        there = {(series, minute): minute + late for series, minute, late in stored}
        for now in range(1, 60):
            answer = [point for point, at in there.items() if at <= now and now - 1 - overlap < point[1] <= now]
            found += read(taken.pick_new(make(*answer), (now - 1) * MINUTE_MS))
    assert len(found) == len(set(found))
    if most > len(stored):
        assert set(found) == {point for point, at in there.items() if at - point[1] <= overlap}
