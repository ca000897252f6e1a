"""Values in the JSON of Slurm: a number may be plain, or say whether it is set, whichever API version wrote it."""

from typing import Any

from loadfactor.base.limits import EARLIEST_MS, LATEST_MS
from loadfactor.base.units import MS_PER_S


def read_number(value: Any) -> float | None:
    """A number; None where it is not set or infinite.

    >>> read_number(4), read_number({"set": True, "infinite": False, "number": 4}), read_number({"set": False, "number": 0})
    (4.0, 4.0, None)
    """
    if isinstance(value, dict):
        if value.get("infinite") or value.get("set") is False:
            return None
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def read_id(value: Any) -> str | None:
    """A number that names something; 0 names nothing."""
    number = read_number(value)
    return str(int(number)) if number and number == number and abs(number) < LATEST_MS else None


def read_seconds(value: Any) -> int | None:
    """An instant in seconds since 1970 as ms; None where it is none that a job can have."""
    number = read_number(value)
    if number is None or not EARLIEST_MS <= number * MS_PER_S <= LATEST_MS:
        return None
    return int(number) * MS_PER_S


def dig(value: Any, *keys: str) -> Any:
    """What lies under these keys, None where one of them is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def first_word(value: Any) -> str | None:
    """A state: a text, or the first of a list of them, whose others are flags."""
    if isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, str) else None


def list_words(value: Any) -> list[str]:
    """A text, or a list of them, as a list."""
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]
