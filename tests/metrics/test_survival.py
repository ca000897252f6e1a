"""The Kaplan–Meier estimate beside a published example, a slow loop over fractions, and what must hold whatever is given."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.metrics.survival import Interval, estimate_rest, estimate_survival

# Freireich and others 1963: weeks in remission of 21 patients with 6-mercaptopurine (+: censored), and of 21 without
TREATED = "6 6 6 6+ 7 9+ 10 10+ 11+ 13 16 17+ 19+ 20+ 22 23 25+ 32+ 32+ 34+ 35+"
UNTREATED = "1 1 2 2 3 4 4 5 5 8 8 8 8 11 11 12 12 15 17 22 23"
# week, share that lasts longer (Kleinbaum and Klein, Survival Analysis, chapter 2), its log-log interval as SciPy's ecdf gives it
PUBLISHED = (
    (6, 0.8571, 0.6197, 0.9516),
    (7, 0.8067, 0.5631, 0.9228),
    (10, 0.7529, 0.5032, 0.8894),
    (13, 0.6902, 0.4316, 0.8491),
    (16, 0.6275, 0.3675, 0.8049),
    (22, 0.5378, 0.2678, 0.7468),
    (23, 0.4482, 0.1881, 0.6801),
)
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, database=None)
WAITS = st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.integers(1, 4)), min_size=1, max_size=25)
Wait = tuple[int, bool, int]


def read(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Durations, and which of them ended."""
    words = text.split()
    return np.array([float(w.rstrip("+")) for w in words]), np.array([not w.endswith("+") for w in words])


def columns(waits: list[Wait]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Durations, which ended, and weights."""
    return (
        np.array([float(w) for w, *_ in waits]),
        np.array([e for _, e, _ in waits]),
        np.array([float(g) for *_, g in waits]),
    )


def multiply(waits: list[Wait]) -> dict[int, Fraction]:
    """The product-limit estimate by hand: at each time at which something ends, the share that lasts longer."""
    share, out = Fraction(1), {}
    for at in sorted({w for w, ended, _ in waits if ended}):
        at_risk = sum(g for w, _, g in waits if w >= at)
        ends = sum(g for w, ended, g in waits if ended and w == at)
        share *= Fraction(at_risk - ends, at_risk)
        out[at] = share
    return out


def test_a_published_example_comes_out_as_published() -> None:
    """The shares, their intervals and the medians of the leukaemia trial; the upper end of one is not reached."""
    curve = estimate_survival(*read(TREATED))
    assert (curve.n, curve.ended) == (21, 9)
    found = zip(curve.times, curve.share, curve.low, curve.high, strict=True)
    for said, true in zip(found, PUBLISHED, strict=True):
        assert said == pytest.approx(true, abs=5e-5)
    assert curve.quantile(0.5) == Interval(23, 13, None)
    assert curve.quantile(0.75) == Interval(None, 23, None)
    assert estimate_survival(*read(UNTREATED)).quantile(0.5) == Interval(8, 4, 11)


@SETTINGS
@given(WAITS)
def test_shares_are_those_of_a_slow_loop(waits: list[Wait]) -> None:
    """With weights and without, by fractions; a quantile is the first time at which no more than the rest lasts longer."""
    durations, ended, weights = columns(waits)
    for given_weights, counted in ((None, [(w, e, 1) for w, e, _ in waits]), (weights, waits)):
        true = multiply(counted)
        curve = estimate_survival(durations, ended, given_weights)
        assert curve.times.tolist() == list(true)
        assert curve.share == pytest.approx([float(s) for s in true.values()], abs=1e-12)
        for q in (Fraction(1, 4), Fraction(1, 2), Fraction(9, 10)):
            reached = [at for at, share in true.items() if share <= 1 - q]
            assert curve.quantile(float(q)).value == (reached[0] if reached else None)


@SETTINGS
@given(WAITS, st.floats(0.1, 50))
def test_weights_that_are_all_alike_are_none(waits: list[Wait], weight: float) -> None:
    """They count relative to each other: shares and intervals are those without weights."""
    durations, ended, _ = columns(waits)
    plain, weighted = (
        estimate_survival(durations, ended),
        estimate_survival(durations, ended, np.full(len(waits), weight)),
    )
    for name in ("times", "share", "low", "high"):
        assert getattr(weighted, name) == pytest.approx(getattr(plain, name), abs=1e-9)


@SETTINGS
@given(WAITS)
def test_estimates_lie_in_their_intervals(waits: list[Wait]) -> None:
    """Of shares and of quantiles, and shares fall."""
    durations, ended, weights = columns(waits)
    curve = estimate_survival(durations, ended, weights)
    left = curve.share > 0
    assert np.all(curve.low[left] <= curve.share[left] + 1e-12)
    assert np.all(curve.share[left] <= curve.high[left] + 1e-12)
    assert np.all(np.diff(curve.share) < 1e-12)
    for q in (0.25, 0.5, 0.9):
        of = curve.quantile(q)
        assert of.low is None or of.value is None or of.low <= of.value
        assert of.high is None or (of.value is not None and of.value <= of.high)


@SETTINGS
@given(WAITS, st.integers(0, 12))
def test_the_rest_is_what_is_left_of_the_whole(waits: list[Wait], passed: int) -> None:
    """Given a time that has passed, shares are those of the whole over the share that lasts longer than it."""
    durations, ended, _ = columns(waits)
    whole, rest = estimate_survival(durations, ended), estimate_rest(durations, ended, passed)
    after = whole.times > passed
    so_far = whole.share[~after][-1] if (~after).any() else 1.0
    if so_far > 0:
        assert rest.times.tolist() == whole.times[after].tolist()
        assert rest.share * so_far == pytest.approx(whole.share[after])


def test_a_wait_of_one_gpu_in_many_widens_the_interval() -> None:
    """One job of 64 GPUs among twenty of one is not 64 jobs: weighted intervals count the effective number."""
    durations, ended = np.arange(1.0, 22.0), np.full(21, True)
    weights = np.array([1.0] * 10 + [64.0] + [1.0] * 10)
    plain, weighted = (estimate_survival(durations, ended, w).quantile(0.5) for w in (None, weights))
    assert plain == Interval(11, 6, 15)
    assert (weighted.value, weighted.low) == (11, 1)


def test_nothing_known_is_nothing_said() -> None:
    """Of no durations, and of durations none of which ended, no quantile is reached."""
    nothing = Interval(None, None, None)
    assert estimate_survival(np.zeros(0), np.zeros(0, bool)).quantile(0.5) == nothing
    assert estimate_survival(np.ones(3), np.zeros(3, bool)).quantile(0.5) == nothing
    assert Interval(5.0, 2.0, None).less(2.0) == Interval(3.0, 0.0, None)
