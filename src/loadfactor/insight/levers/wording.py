"""Sentences that levers have in common."""

from collections.abc import Mapping


def say_hours(hours: float) -> str:
    """GPU-hours in words.

    >>> say_hours(1234.5), say_hours(0.25)
    ('1,234 GPU-hours', '0.25 GPU-hours')
    """
    return f"{hours:,.0f} GPU-hours" if hours >= 100 else f"{hours:.3g} GPU-hours"


def say_largest(hours: Mapping[str, float], most: int = 3) -> str:
    """The names with most hours, with these.

    >>> say_largest({"a": 1.0, "b": 2.5}, most=1)
    'most in b (2.5 GPU-hours)'
    """
    largest = sorted(hours.items(), key=lambda item: (-item[1], item[0]))[:most]
    return "most in " + ", ".join(f"{name} ({say_hours(amount)})" for name, amount in largest)
