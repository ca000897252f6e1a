"""Who bears a pool: the share of each owner, by held hours, by effective hours, evenly or by fixed shares."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from loadfactor.money.lines import ChargedHours, Owner
from loadfactor.settings.money import EFFECTIVE, EVEN, FIXED, HELD, Bearing

Hours = Mapping[Owner, ChargedHours]
Key = TypeVar("Key")


@dataclass(frozen=True)
class BorneShare:
    """The part of a pool that an owner bears, and how it came about in words."""

    share: Fraction
    method: str


def share_pool(bearing: Bearing, hours: Hours, names: int = 1) -> dict[Owner, BorneShare]:
    """Shares of owners, above 0 and summing to 1; nothing where the pool keeps its cost, or nobody has what it goes by.

    `names` is how many an owner has. Even and fixed shares are of the first one; what stands under it is divided by held
    hours, and evenly where it held none. A fixed share of a name that has no line is borne by that name.

    >>> from decimal import Decimal
    >>> held = {("a",): ChargedHours(Decimal(50)), ("b",): ChargedHours(Decimal(30))}
    >>> {owner[0]: str(borne.share) for owner, borne in share_pool(Bearing.model_validate("held hours"), held).items()}
    {'a': '5/8', 'b': '3/8'}
    """
    if bearing.way in (HELD, EFFECTIVE):
        amounts = {owner: Fraction(own.total if bearing.way == HELD else own.effective) for owner, own in hours.items()}
        return _in_proportion(amounts, f"by {bearing.way}", "h")
    if bearing.way == EVEN:
        everybody = {owner[0]: Fraction(1) for owner in hours if owner[0]}
        return _under_names(_in_proportion(everybody, "evenly", "names"), hours, names)
    if bearing.way == FIXED:
        fixed = {name: Fraction(share) for name, share in bearing.shares}
        return _under_names(_in_proportion(fixed, "by fixed shares", ""), hours, names)
    return {}


def _in_proportion(amounts: Mapping[Key, Fraction], method: str, unit: str) -> dict[Key, BorneShare]:
    whole = sum(amounts.values())
    return {
        key: BorneShare(amount / whole, f"{method}: {float(amount):,.6g} of {float(whole):,.6g} {unit}".rstrip())
        for key, amount in amounts.items()
        if amount
    }


def _under_names(shares: Mapping[str, BorneShare], hours: Hours, names: int) -> dict[Owner, BorneShare]:
    """The share of each name, divided among the owners under it by held hours."""
    families: dict[str | None, dict[Owner, Fraction]] = defaultdict(dict)
    for owner, own in hours.items():
        families[owner[0]][owner] = Fraction(own.total)
    borne = {}
    for name, of_name in shares.items():
        family = families.get(name) or {(name, *(None,) * (names - 1)): Fraction(1)}
        if not any(family.values()):
            family = dict.fromkeys(family, Fraction(1))
        for owner, inside in _in_proportion(family, "inside by held hours", "h").items():
            method = of_name.method if len(family) == 1 else f"{of_name.method}, {inside.method}"
            borne[owner] = BorneShare(of_name.share * inside.share, method)
    return borne
