"""Values as places give them: exact, as amounts of money to the cent, or as a person reads them, rounded."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from tests.identities.fleet import Fleet

NEAR: Final = Decimal("1e-9")
"""A share of a value, and GPU-hours, by which sums in another order may differ."""
SHOWN: Final = re.compile(r"(−?)\D{0,4}?([\d,]*\.?\d+)(?:e(\d+))?\s?(%|ms|s|min|h|d|[kMB](?= |$))?.*")
SCALES: Final = {
    "%": "0.01", "ms": "0.001", "s": "1", "min": "60", "h": "3600", "d": "86400", "k": "1e3", "M": "1e6", "B": "1e9"
}  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """A rounded value, and half of the unit of its last digit."""

    text: str
    value: Decimal
    half: Decimal


Value = Decimal | float | Shown | None
Values = Mapping[str, Value]
"""Values by window and whatever the quantity is split by; "" for the fleet."""
Reader = Callable[[Fleet], Values]


@dataclass(frozen=True)
class Quantity:
    """A quantity and its readers by the name of the place. The first one gives all keys that the others may give."""

    name: str
    readers: Mapping[str, Reader]


def read_shown(text: str, scale: Decimal = Decimal(1)) -> Shown | None:
    """The value that a person reads; None for an en dash or nothing.

    >>> read_shown("−$1,234"), read_shown("2.31 d").half, read_shown("–")
    (Shown(text='−$1,234', value=Decimal('-1234'), half=Decimal('0.5')), Decimal('432.000'), None)
    """
    found = SHOWN.fullmatch(text.strip())
    if found is None:
        assert text.strip() in ("", "–"), text
        return None
    sign, digits, power, unit = found.groups()
    digits = digits.replace(",", "")
    scale *= Decimal(SCALES[unit] if unit else 1) * 10 ** int(power or 0)
    last = Decimal(1).scaleb(-len(digits.partition(".")[2]))
    return Shown(text, (-1 if sign else 1) * Decimal(digits) * scale, last / 2 * scale)


def cents(amount: Any) -> Decimal:
    """An amount to the cent, as pages round it."""
    return Decimal(str(amount)).quantize(Decimal("0.01"))


def differs(one: Value, other: Value) -> bool:
    """True where two values are not the same: rounded ones within their last digit, two decimals exactly."""
    if one is None or other is None:
        return one is not other
    shown = next((of for of in (other, one) if isinstance(of, Shown)), None)
    if shown is None and isinstance(one, Decimal) and isinstance(other, Decimal):
        return one != other
    a, b = (of.value if isinstance(of, Shown) else Decimal(str(of)) for of in (one, other))
    return abs(a - b) > (shown.half if shown else 0) + NEAR * max(1, abs(a))
