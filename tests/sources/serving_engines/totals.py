"""What rows of progress add up to, as the tests of scraped, saved and pulled engines compare it."""

from collections import defaultdict
from collections.abc import Mapping

Totals = dict[tuple[str, str, str], float]
"""Amounts by job, replica and unit."""


def add_up(rows: Mapping[tuple[str, str, str, int], tuple[int, float]]) -> Totals:
    """The totals of rows: end and amount by job, replica, unit and beginning."""
    found: Totals = defaultdict(float)
    for (job, replica, unit, _), (_, amount) in rows.items():
        found[job, replica, unit] += amount
    return dict(found)
