"""Numbers as a person reads them: one spelling per kind of number, for every face. Unknown (None) is always an en dash."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime
from math import ceil, floor, isfinite, log10
from types import NoneType
from typing import Any, TypeVar

from loadfactor.base.spelling import spell_out
from loadfactor.base.units import MS_PER_S, PERCENT, S_PER_DAY, S_PER_HOUR, S_PER_MIN, US_PER_S

Shown = TypeVar("Shown")
WITHOUT_TEXT = (float, int, datetime, NoneType)


def make_visible(page: Shown) -> Shown:
    """A document, a chart or another part of a page with every text in it spelled out. Its `data` stays as it is."""
    changed: Any = page
    if isinstance(page, str):
        changed = spell_out(page)
    elif isinstance(page, (tuple, list)) and not hasattr(page, "_fields"):
        changed = type(page)(part if isinstance(part, WITHOUT_TEXT) else make_visible(part) for part in page)
    elif is_dataclass(page) and not isinstance(page, type):
        names = [item.name for item in fields(page) if item.name != "data"]
        changed = replace(page, **{name: make_visible(getattr(page, name)) for name in names})
    return changed  # type: ignore[no-any-return]


UNKNOWN = "–"
BLOCKS = " ▁▂▃▄▅▆▇█"
SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹", "KRW": "₩"}
PREFIXES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
LARGEST_WRITTEN_OUT = 1e15
"""Of larger numbers, as of FLOPs, nobody counts the digits."""


def number(value: float | None, digits: int = 3) -> str:
    """At least `digits` significant digits, thousands separated, no trailing zeros; powers of ten from 10¹⁵ on.

    >>> number(1234567.8), number(0.012345), number(2.0), number(1.1067e20), number(None)
    ('1,234,568', '0.0123', '2', '1.11e20', '–')
    """
    if value is None or not isfinite(value):
        return UNKNOWN if value is None else str(value)
    if abs(value) >= LARGEST_WRITTEN_OUT:
        return f"{value:.{digits - 1}e}".replace("e+", "e")
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - floor(log10(abs(value))))
    text = f"{value:,.{min(decimals, 12)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def short(value: float | None) -> str:
    """For axes: three significant digits and a letter for thousands, millions, billions.

    >>> short(15_000), short(2_500_000), short(0.25), short(0)
    ('15k', '2.5M', '0.25', '0')
    """
    if value is None:
        return UNKNOWN
    for size, letter in PREFIXES:
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def money(value: float | None, currency: str = "USD") -> str:
    """An amount of money: cents below 1,000, three significant digits below a dime, whole units above.

    >>> money(2.5), money(0.0004), money(126343.27), money(-12.0), money(3.0, "EUR"), money(3.0, "CHF")
    ('$2.50', '$0.0004', '$126,343', '−$12.00', '€3.00', 'CHF 3.00')
    """
    if value is None:
        return UNKNOWN
    sign = ("−" if value < 0 else "") + SYMBOLS.get(currency, f"{currency} ")
    size = abs(value)
    if size >= 1000:
        return f"{sign}{size:,.0f}"
    return f"{sign}{size:.2f}" if size >= 0.1 or size == 0 else f"{sign}{number(size)}"


def about_money(value: float | None, currency: str = "USD") -> str:
    """An estimate of money, rounded to three significant digits.

    >>> about_money(13_018_467.6), about_money(1_234.5), about_money(0.04567)
    ('$13.0 M', '$1,230', '$0.0457')
    """
    if value is None:
        return UNKNOWN
    sign = ("−" if value < 0 else "") + SYMBOLS.get(currency, f"{currency} ")
    size = abs(value)
    for unit, word in ((1e9, "B"), (1e6, "M")):
        if size >= unit * 0.9995:
            return f"{sign}{_three_digits(size / unit)} {word}"
    if size >= 1000:
        return f"{sign}{round(size, -floor(log10(size)) + 2):,.0f}"
    return money(value, currency)


def _three_digits(value: float) -> str:
    return f"{value:,.{max(0, 2 - floor(log10(value)))}f}"


def percent(share: float | None) -> str:
    """A share of one as percent: one decimal below 10 %, none above 100 %.

    >>> percent(0.6304), percent(0.0412), percent(1.25), percent(None)
    ('63.0 %', '4.12 %', '125 %', '–')
    """
    if share is None:
        return UNKNOWN
    value = share * PERCENT
    if value and abs(value) < 9.995:
        return f"{number(value)} %"
    return f"{value:,.0f} %" if abs(value) >= 99.95 else f"{value:.1f} %"


def duration(seconds: float | None) -> str:
    """Seconds in the unit a person would use.

    >>> duration(0.25), duration(90), duration(5400), duration(200_000), duration(0), duration(1e-9)
    ('250 ms', '90 s', '1.5 h', '2.31 d', '0 s', 'under 1 µs')
    """
    if seconds is None:
        return UNKNOWN
    size = abs(seconds)
    if 0 < size < 1:
        if size < 1 / US_PER_S:
            return "under 1 µs"
        return f"{number(seconds * US_PER_S)} µs" if size < 1 / MS_PER_S else f"{number(seconds * MS_PER_S)} ms"
    if size < 120:
        return f"{number(seconds)} s"
    if size < S_PER_HOUR:
        return f"{number(seconds / S_PER_MIN)} min"
    if size < 2 * S_PER_DAY:
        return f"{number(seconds / S_PER_HOUR)} h"
    return f"{number(seconds / S_PER_DAY)} d"


def counted(amount: float, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "replica"), counted(12, "replica")
    ('1 replica', '12 replicas')
    """
    return f"{number(amount)} {noun}{'' if amount == 1 else 's'}"


def instant(value: datetime) -> str:
    """A moment to the minute, with its zone.

    >>> from datetime import UTC
    >>> instant(datetime(2026, 3, 1, 9, 30, tzinfo=UTC))
    '2026-03-01 09:30 UTC'
    """
    return value.strftime("%Y-%m-%d %H:%M %Z").strip()


def draw_bins(values: Sequence[float]) -> str:
    """A histogram as a row of characters between its ends, the tallest bin filling its own.

    >>> draw_bins([0.0, 1.0, 4.0])
    '| ▂█|'
    """
    top = max(values) or 1.0
    inside = "".join(BLOCKS[ceil(v / top * (len(BLOCKS) - 1))] for v in values)  # a little is not nothing
    return f"|{inside}|"


def draw_line(values: Sequence[float | None]) -> str:
    """Values over time as a row of characters from nothing to the highest; a dot is not known. Empty where fewer than two are.

    >>> draw_line([0.0, 2.0, None, 4.0]), draw_line([None, 1.0])
    ('▁▅·█', '')
    """
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return ""
    top = max(known) or 1.0
    steps = BLOCKS[1:]
    return "".join(
        "·" if v is None else steps[min(round(max(v, 0.0) / top * len(steps)), len(steps) - 1)] for v in values
    )
