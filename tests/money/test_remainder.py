"""Division to the cent: exact sums, shares within a cent of their quotas, any order of rows, deep trees, a thousand owners."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import InputError
from loadfactor.money.currency import largest_remainder, round_levels, round_shares

SETTINGS = settings(max_examples=150, deadline=None, derandomize=True, database=None)
TOTALS = st.integers(-(10**12), 10**12) | st.integers(-3, 3) | st.integers(-(10**30), 10**30)
WEIGHTS = st.lists(
    st.integers(0, 1000) | st.decimals(0, 1000, places=9) | st.floats(0, 1e6) | st.just(0) | st.fractions(0, 5),
    min_size=1,
    max_size=30,
)
AMOUNTS = st.decimals(-1000, 1000, places=6) | st.sampled_from([Decimal("0.5"), Decimal("-0.5"), Decimal(0)])


@SETTINGS
@given(TOTALS, WEIGHTS)
def test_shares_are_whole_sum_and_stay_within_one_unit(
    total: int, weights: list[int | Decimal | float | Fraction]
) -> None:
    """Whatever is divided, shares sum to it, lie less than one unit from the exact quota, and a weight of 0 gets nothing."""
    exact = [Fraction(weight) for weight in weights]
    if not sum(exact):
        if total:
            with pytest.raises(InputError, match="all 0"):
                largest_remainder(total, weights)
        return
    shares = largest_remainder(total, weights)
    assert sum(shares) == total
    for share, weight in zip(shares, exact, strict=True):
        assert abs(share - total * weight / sum(exact)) < 1
        assert weight or not share
    assert largest_remainder(-total, weights) == [-share for share in shares]


@SETTINGS
@given(TOTALS, st.dictionaries(st.text(max_size=3), st.integers(0, 4), min_size=1, max_size=12), st.randoms())
def test_the_order_of_rows_changes_nothing(total: int, weights: dict[str, int], random: object) -> None:
    """With keys to decide ties, everybody's share is the same in whatever order the rows come."""
    if not sum(weights.values()):
        return
    keys = list(weights)
    shares = dict(zip(keys, largest_remainder(total, [weights[key] for key in keys], keys), strict=True))
    random.shuffle(keys)  # type: ignore[attr-defined]
    assert dict(zip(keys, largest_remainder(total, [weights[key] for key in keys], keys), strict=True)) == shares


@SETTINGS
@given(st.lists(AMOUNTS, min_size=1, max_size=30))
def test_amounts_of_either_sign_are_rounded_to_their_rounded_sum(amounts: list[Decimal]) -> None:
    """Charges and credits together keep their rounded sum; opposite amounts have opposite shares; a whole amount stays."""
    quotas = [Fraction(amount) for amount in amounts]
    total = round(sum(quotas))
    shares = round_shares(total, quotas)
    assert sum(shares) == total
    for share, quota in zip(shares, quotas, strict=True):
        assert abs(share - quota) < 1
        assert quota.denominator > 1 or share == quota
    assert round_shares(-total, [-quota for quota in quotas]) == [-share for share in shares]


NAMES = st.none() | st.sampled_from("abc")


@SETTINGS
@given(st.dictionaries(st.tuples(NAMES, NAMES, NAMES), AMOUNTS, min_size=1, max_size=40))
def test_children_sum_to_parents_on_three_levels(amounts: dict[tuple[str | None, ...], Decimal]) -> None:
    """On every level each share is within one unit of its quota, and a parent is the same without its children."""
    quotas = {path: Fraction(amount) for path, amount in amounts.items()}
    total = round(sum(quotas.values()))
    leaves = round_levels(total, quotas)
    assert sum(leaves.values()) == total
    for depth in (1, 2, 3):
        of_parent: dict[tuple[str | None, ...], Fraction] = {}
        charged: dict[tuple[str | None, ...], int] = {}
        for path, quota in quotas.items():
            of_parent[path[:depth]] = of_parent.get(path[:depth], Fraction(0)) + quota
            charged[path[:depth]] = charged.get(path[:depth], 0) + leaves[path]
        assert all(abs(charged[path] - quota) < 1 for path, quota in of_parent.items())
        assert round_levels(total, of_parent) == charged
    assert round_levels(total, dict(reversed(quotas.items()))) == leaves


def test_a_thousand_owners_share_native_and_wide_integers_alike() -> None:
    """A total beyond 64 bits is divided by Python's integers with the same result as a part of it by native ones."""
    weights = [Decimal(n * 37 % 1009) / 7 for n in range(1000)]
    shares = largest_remainder(123_456_789, weights)
    assert sum(shares) == 123_456_789
    widened = largest_remainder(123_456_789, [weight * 10**30 for weight in weights])
    assert widened == shares
    assert sum(largest_remainder(10**40 + 1, weights)) == 10**40 + 1


def test_what_cannot_be_divided_is_refused() -> None:
    """A negative weight, a key that comes twice, and shares that are not near the total: one line each."""
    with pytest.raises(InputError, match="negative: -1"):
        largest_remainder(10, [1, -1])
    with pytest.raises(InputError, match="two shares have one key"):
        largest_remainder(10, [1, 1], ["a", "a"])
    with pytest.raises(InputError, match="cannot be rounded to 5"):
        round_shares(5, [Fraction(1), Fraction(1, 2)])
    assert largest_remainder(0, []) == largest_remainder(0, [])
    assert largest_remainder(0, [0, 0]) == [0, 0]
