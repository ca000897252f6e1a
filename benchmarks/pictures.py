"""Pictures of pages: one as a report draws it, hourly lines and stacked days, and one of more points than any screen shows.

Each is laid out and written as SVG twice, for a screen and for a phone.
"""

import time
from datetime import UTC, datetime, timedelta
from math import sin

from loadfactor.base.units import MS_PER_S
from loadfactor.interfaces.charts import Chart, Kind, Series
from loadfactor.interfaces.charts.svg import draw_figure

NAME = "pictures"
BEGIN = datetime(2026, 10, 19, tzinfo=UTC)


def run(quick: bool) -> dict[str, float]:
    """CPU milliseconds of each."""
    repeats = 5 if quick else 50
    days = [f"day {n}" for n in range(14)]
    return {
        "picture_lines_ms": _draw_ms(_draw_lines(3, 336), repeats),
        "picture_bars_ms": _draw_ms(_chart("stacked bar", days, 6), repeats),
        "picture_172800_points_ms": _draw_ms(_draw_lines(4, 43_200), 3),
    }


def _draw_lines(lines: int, points: int) -> Chart:
    return _chart("line", [BEGIN + timedelta(hours=n) for n in range(points)], lines)


def _chart(kind: Kind, x: list[datetime] | list[str], number: int) -> Chart:
    values = [[None if n % 97 == 5 else 2 + sin(n * 0.1 + i) for n in range(len(x))] for i in range(number)]
    return Chart("A picture", kind, x, [Series(f"series {i}", row) for i, row in enumerate(values)])


def _draw_ms(chart: Chart, repeats: int) -> float:
    draw_figure(chart)
    began = time.process_time()
    for _ in range(repeats):
        draw_figure(chart)
    return (time.process_time() - began) / repeats * MS_PER_S
