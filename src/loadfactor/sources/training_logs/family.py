"""What a family of logs looks like, as tables of patterns: lines of iterations, values in them, and what is said of the run."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from loadfactor.base.units import S_PER_DAY, S_PER_HOUR, S_PER_MIN

NUMBER: Final = r"([-+]?(?:\d[\d.,_]*\d|\d)(?:[eE][-+]?\d+)?|[-+]?nan|[-+]?inf)"
"""A number as logs write it; see `read_number`."""
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")


@dataclass(frozen=True)
class Value:
    """A number of a line: its name (see `iteration.Values`), the text around it, and what it is multiplied by."""

    name: str
    pattern: re.Pattern[str]
    scale: float = 1.0


def value(name: str, before: str, scale: float = 1.0, after: str = "") -> Value:
    """A number that stands between these two patterns."""
    return Value(name, re.compile(before + NUMBER + after, re.IGNORECASE), scale)


@dataclass(frozen=True)
class StepLine:
    """A line of an iteration. `pattern` has the group `step`, or `epoch` where the step follows from it.

    `offset` is added to the step: 1 where steps are numbered from 0 and the line is written after the step.
    """

    pattern: re.Pattern[str]
    offset: int = 0


@dataclass(frozen=True)
class LogFamily:
    """Logs of one kind. Of several kinds in one log the one that comes first in `FAMILIES` counts."""

    name: str
    hint: str  # a line of an iteration contains it
    lines: tuple[StepLine, ...]
    values: tuple[Value, ...]
    again: Literal["restart", "metric", "rank"] = "restart"
    """Why a number of a step comes again that is not greater: the run was restarted; an equal one is of another metric; or another
    rank writes, and only a line of `BEGINS` is a restart."""


def read_number(text: str) -> float | None:
    """A number as logs of any locale write it; None for nan, inf and what is none.

    >>> read_number("6,104"), read_number("1.485E-04"), read_number("12,5"), read_number("1.234,5"), read_number("nan")
    (6104.0, 0.0001485, 12.5, 1234.5, None)
    """
    plain = text.replace("_", "")
    if _THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    elif "," in plain:
        plain = plain.replace(".", "").replace(",", ".")
    try:
        number = float(plain)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None  # NaN is not less


def read_clock_s(text: str) -> float | None:
    """Seconds of `14:31`, `1:02:03` or `1 day, 0:14:31.66`.

    >>> read_clock_s("14:31"), read_clock_s("0:14:31.66"), read_clock_s("?")
    (871.0, 871.66, None)
    """
    days, _, rest = text.rpartition(", ")
    try:
        parts = [float(part) for part in rest.split(":")]
        whole = float(days.split()[0]) if days else 0.0
    except ValueError:
        return None
    if len(parts) not in (2, 3):
        return None
    hours = parts[0] if len(parts) == 3 else 0.0
    return whole * S_PER_DAY + hours * S_PER_HOUR + parts[-2] * S_PER_MIN + parts[-1]
