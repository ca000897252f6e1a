"""What a page tells its script of a chart, so that it can show values where somebody points: moments, names, values as written."""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from json import dumps
from math import ceil

from loadfactor.interfaces.charts import Chart
from loadfactor.interfaces.charts.panels import Area
from loadfactor.interfaces.formats import number, percent, short

MOST_STOPS = 600
"""Places a cursor can stand at, about a column of pixels each; of a finer line each shows the lowest and the highest value."""
OF_SHARES = "share"


def write_values(chart: Chart) -> str:
    """The chart as JSON for `static/charts.js`; empty where a cursor would not stand at one value of each line.

    `x` are seconds since 1970, the first and then the differences, of a chart of time; else what stands under the axis.
    """
    moments = [x for x in chart.x if isinstance(x, datetime)]
    lines = [s for s in chart.series if chart.kind_of(s) in ("line", "step")]
    if len(lines) < len(chart.series) or any(len(s.x) for s in lines) or len(chart.x) < 2:
        return ""
    each = ceil(len(chart.x) / MOST_STOPS)
    write = percent if chart.y_label == OF_SHARES else number
    facts = {
        "names": [s.name for s in lines],
        "y": [[_write_stop(s.y[at : at + each], write) for at in range(0, len(s.y), each)] for s in lines],
        "label": chart.x_label,
    }
    if moments:
        seconds = [round(moment.timestamp()) for moment in moments[::each]]
        facts |= {"moments": [seconds[0], *(after - before for before, after in pairwise(seconds))]}
        facts |= {"zone": str(moments[0].tzinfo or "UTC")}
    else:
        facts |= {"x": [float(f"{x:.6g}") for x in chart.x[::each] if not isinstance(x, str | datetime)]}
        facts |= {"at": [short(x) for x in chart.x[::each] if not isinstance(x, str | datetime)], "log": chart.x_log}
    return dumps(facts | {"log_y": chart.y_log}, ensure_ascii=False, separators=(",", ":"))


def write_area(area: Area) -> str:
    """Where a panel lies on its sheet (left, top, right, bottom), and the ranges of its axes."""
    ends = (area.left, area.top, area.right, area.bottom, area.x.low, area.x.high, area.y.low, area.y.high)
    return " ".join(f"{end:.12g}" for end in ends)


def _write_stop(values: Sequence[float | None], write: Callable[[float | None], str]) -> str:
    known = [value for value in values if value is not None]
    ends = (write(min(known)), write(max(known))) if known else (write(None),) * 2
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
