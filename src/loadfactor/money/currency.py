"""Exact amounts of money: sums of decimals without rounding, and the minor units (cents) of a currency."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import Any, Final

import numpy as np

from loadfactor.base.errors import InputError

# ISO 4217, list one of 2024-06-25: currencies whose minor unit is not a hundredth
_UNUSUAL: Final = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
_DIGITS: Final = {currency: digits for digits, listed in _UNUSUAL.items() for currency in listed.split()}
_USUAL_DIGITS: Final = 2
MOST_DIGITS: Final = (30, 60)
"""Digits that an amount may have before and after the decimal point."""
EXACT: Final = Context(prec=2 * sum(MOST_DIGITS), traps=[Inexact, InvalidOperation, Overflow])
"""Arithmetic that raises rather than rounds."""


def count_minor_digits(currency: str) -> int:
    """Digits after the decimal point of a currency's minor unit.

    >>> count_minor_digits("EUR"), count_minor_digits("JPY"), count_minor_digits("KWD")
    (2, 0, 3)
    """
    return _DIGITS.get(currency, _USUAL_DIGITS)


def round_to_minor(amount: Decimal | Fraction, currency: str) -> int:
    """An amount in whole minor units, half to even.

    >>> round_to_minor(Decimal("0.125"), "USD"), round_to_minor(Decimal("0.135"), "USD"), round_to_minor(Decimal("-2.5"), "JPY")
    (12, 14, -2)
    """
    return round(Fraction(amount) * Fraction(10 ** count_minor_digits(currency)))


def from_minor(units: int, currency: str) -> Decimal:
    """Minor units as an amount, with as many digits as its currency has.

    >>> from_minor(12345, "USD"), from_minor(0, "USD"), from_minor(-7, "JPY")
    (Decimal('123.45'), Decimal('0.00'), Decimal('-7'))
    """
    return Decimal(f"{units}E-{count_minor_digits(currency)}")


def shorten(amount: Decimal) -> Decimal:
    """The same amount without zeros at its end.

    >>> shorten(Decimal("12.500000000000000000")), shorten(Decimal("0E-18"))
    (Decimal('12.5'), Decimal('0'))
    """
    text = f"{amount:f}"
    return Decimal(text.rstrip("0").rstrip(".") or "0") if "." in text else Decimal(text)


def add_exactly(amounts: Iterable[Decimal]) -> Decimal:
    """The sum, every digit of it; Python's own sum of decimals keeps 28.

    >>> add_exactly([Decimal("1e27"), Decimal("0.000001"), Decimal("-1e27")])
    Decimal('0.000001')
    """
    total = Decimal(0)
    for amount in amounts:
        total = EXACT.add(total, amount)
    return total


def check_amount(amount: Decimal, where: str) -> None:
    """Refuse what is no amount of money. Raises InputError that names `where`."""
    before, after = MOST_DIGITS
    exponent = amount.as_tuple().exponent
    if not isinstance(exponent, int):
        raise InputError(f"{where} is {amount}, which is no amount; leave the line out or correct it")
    if amount and (amount.adjusted() >= before or -exponent > after):
        raise InputError(
            f"{where} is {amount:.6g}: more than {before} digits before or {after} after the decimal point"
        )


Weight = int | float | Decimal | Fraction
Path = tuple[str | None, ...]
"""Where a share stands in a tree: the names of its ancestors, and its own."""
_LARGEST_NATIVE: Final = 2**62


def largest_remainder(total: int, weights: Sequence[Weight], keys: Sequence[Any] | None = None) -> list[int]:
    """`total` minor units in proportion to weights, in their order. `keys` decide ties, by default the position.

    Raises InputError for a negative weight, for a key that comes twice, and where something is divided by weights that are all 0.

    >>> largest_remainder(10_000, [1, 1, 1]), largest_remainder(-1, [1, 1, 1]), largest_remainder(1, [1, 1], ["b", "a"])
    ([3334, 3333, 3333], [-1, 0, 0], [0, 1])
    """
    try:
        ratios = [weight.as_integer_ratio() for weight in weights]
    except (ValueError, OverflowError) as error:
        raise InputError("a weight is infinite or no number; give weights of 0 or more") from error
    scale = lcm(*(denominator for _, denominator in ratios))
    whole = [numerator * (scale // denominator) for numerator, denominator in ratios]
    if min(whole, default=0) < 0:
        raise InputError(f"a weight is negative: {min(weights)}; give weights of 0 or more")
    if total and not any(whole):
        raise InputError(f"{total} minor units cannot be divided by weights that are all 0; keep them in a pool")
    return _divide(total, [total * weight for weight in whole], sum(whole) or 1, keys)


def round_shares(total: int, quotas: Sequence[Fraction], keys: Sequence[Any] | None = None) -> list[int]:
    """Exact shares in minor units as whole ones that sum to `total`, which lies less than one unit from their sum.

    >>> round_shares(3, [Fraction(1, 2), Fraction(3, 2), Fraction(3, 4)])
    [1, 1, 1]
    """
    scale = lcm(*(quota.denominator for quota in quotas))
    return _divide(total, [quota.numerator * (scale // quota.denominator) for quota in quotas], scale, keys)


def round_levels(total: int, quotas: Mapping[Path, Fraction]) -> dict[Path, int]:
    """Exact shares of a tree's leaves as whole ones: on every level within one unit, children summing to their parent.

    Paths are equally long. Each level is rounded under its parents, so a parent is the same however deep the tree is.

    >>> thirds = {("a", "x"): Fraction(1, 3), ("a", "y"): Fraction(1, 3), ("b", "x"): Fraction(1, 3)}
    >>> round_levels(1, thirds)
    {('a', 'x'): 1, ('a', 'y'): 0, ('b', 'x'): 0}
    """
    rounded: dict[Path, int] = {(): total}
    scale = lcm(*(quota.denominator for quota in quotas.values()))
    leaves = {path: quota.numerator * (scale // quota.denominator) for path, quota in quotas.items()}
    for level in range(1, len(next(iter(quotas), ())) + 1):
        children: dict[Path, int] = defaultdict(int)
        for path, leaf in leaves.items():
            children[path[:level]] += leaf
        families: dict[Path, list[Path]] = defaultdict(list)
        for child in children:
            families[child[:-1]].append(child)
        below: dict[Path, int] = {}
        for parent, family in families.items():
            keys = [sort_key(child) for child in family]
            shares = _divide(rounded[parent], [children[child] for child in family], scale, keys)
            below.update(zip(family, shares, strict=True))
        rounded = below
    return {path: rounded[path] for path in quotas}


def sort_key(path: Path) -> tuple[tuple[bool, str], ...]:
    """Paths in the order of their names, what has no name last."""
    return tuple((name is None, name or "") for name in path)


def _divide(total: int, numerators: list[int], denominator: int, keys: Sequence[Any] | None) -> list[int]:
    """Floors of numerators / denominator, and what is left over by one each. Native integers where they hold, else Python's."""
    order = sorted(range(len(numerators)), key=(keys or range(len(numerators))).__getitem__)
    if keys and any(keys[a] == keys[b] for a, b in pairwise(order)):
        raise InputError("two shares have one key; add them up first, so that a tie has one answer")
    largest = max(map(abs, (*numerators, denominator)), default=0) * max(1, len(numerators))
    quotas = np.array(numerators, dtype=np.int64 if largest < _LARGEST_NATIVE else object)
    sign = -1 if total < 0 or (total == 0 and _begins_below_zero(numerators, order)) else 1
    floors = sign * quotas // denominator
    rests = sign * quotas - floors * denominator
    left = sign * total - int(floors.sum())
    if not 0 <= left <= len(numerators):
        raise InputError(f"shares that sum to {sum(numerators) / denominator:g} cannot be rounded to {total}")
    if left:
        largest_first = np.argsort(-rests[order], kind="stable")
        floors[np.array(order)[largest_first[:left]]] += 1
    return [sign * int(share) for share in floors]


def _begins_below_zero(numerators: list[int], order: list[int]) -> bool:
    """True where the first share that is not 0 is negative, so that a sum of 0 is rounded as its opposite is."""
    return next((numerators[i] for i in order if numerators[i]), 0) < 0
