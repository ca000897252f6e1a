"""Values of an exporter's text, in our units, and DCGM's blanks."""

import math
from typing import Any

from loadfactor.sources.dcgm.fields import BLANK_FP64, BLANK_INT32, BLANK_INT64, BLANKS
from loadfactor.sources.gpu_scrapes.fields import Field


def parse_value(text: str, field: Field) -> float | str:
    """The value in our unit, or the reason that it is none.

    >>> from loadfactor.sources.dcgm.fields import BY_NAME
    >>> util = BY_NAME["DCGM_FI_DEV_GPU_UTIL"]
    >>> parse_value("97", util), parse_value("9223372036854775794", util), parse_value("NaN", util)
    (0.97, 'not supported', 'NaN')
    """
    try:
        number = float(text)
    except ValueError:
        return "an unreadable value"
    if "_" in text or not text.isascii():
        return "an unreadable value"
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "infinite"
    if field.mask and (number < 0 or number != int(number)):
        return "an unreadable value"
    return explain_blank(text, number, field) or convert(number, field.multiply, field.divide)


def convert(number: Any, multiply: Any, divide: Any) -> Any:
    """A number, or an array of them, in our units."""
    return number * multiply / divide


def is_large(field: Field) -> bool:
    """True where a value may honestly pass the smaller blanks."""
    return field.counts or field.either


def explain_blank(text: str, number: float, field: Field) -> str | None:
    """Why DCGM has no value, when this is one of its blanks; None for a value.

    Totals and rates of bytes may honestly pass the smaller blanks, so there only the four blanks themselves are none.
    """
    if number >= BLANK_INT64:
        exact = int(text) - BLANK_INT64 if text.isdigit() else 0  # a float of this size has lost its last digit
        return BLANKS.get(exact, "blank")
    large = is_large(field)
    for base in (BLANK_FP64, BLANK_INT32):
        if base <= number < base + len(BLANKS) and number == int(number):
            return BLANKS[int(number) - base]
        if number >= base and not large:
            return "blank"
    return None
