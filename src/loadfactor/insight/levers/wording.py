"""Sentences that levers have in common."""

from collections.abc import Mapping

from loadfactor.base.units import S_PER_HOUR, S_PER_MIN


def say_hours(hours: float) -> str:
    """GPU-hours in words.

    >>> say_hours(1234.5), say_hours(0.25)
    ('1,234 GPU-hours', '0.25 GPU-hours')
    """
    return f"{hours:,.0f} GPU-hours" if hours >= 100 else f"{hours:.3g} GPU-hours"


def say_times(count: int) -> str:
    """How often.

    >>> say_times(1), say_times(1234)
    ('once', '1,234 times')
    """
    return "once" if count == 1 else f"{count:,} times"


def say_duration(seconds: float) -> str:
    """A stretch of time: minutes up to two hours, then hours.

    >>> say_duration(300), say_duration(94_080), say_duration(0)
    ('5 min', '26.1 h', '0 min')
    """
    if seconds <= 2 * S_PER_HOUR:
        return f"{seconds / S_PER_MIN:.0f} min"
    hours = seconds / S_PER_HOUR
    return f"{hours:,.0f} h" if hours >= 100 else f"{hours:.3g} h"


def say_largest(hours: Mapping[str, float], most: int = 3) -> str:
    """The names with most hours, with these.

    >>> say_largest({"a": 1.0, "b": 2.5}, most=1)
    'most in b (2.5 GPU-hours)'
    """
    largest = sorted(hours.items(), key=lambda item: (-item[1], item[0]))[:most]
    return "most in " + ", ".join(f"{name} ({say_hours(amount)})" for name, amount in largest)
