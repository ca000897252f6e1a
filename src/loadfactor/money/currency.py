"""Exact amounts of money: sums of decimals without rounding, and the minor units (cents) of a currency."""

from collections.abc import Iterable
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from fractions import Fraction
from typing import Final

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
