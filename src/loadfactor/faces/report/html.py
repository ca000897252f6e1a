"""How does the report look as a page? One self-contained HTML file that can be mailed and printed: no script, nothing fetched."""

from collections.abc import Sequence

from markupsafe import Markup

from loadfactor import __version__
from loadfactor.faces.charts import Chart, image
from loadfactor.faces.formats import instant
from loadfactor.faces.report import Histogram, Report
from loadfactor.faces.templates import template

BAR_UNITS, TALL = 10, 60  # of the little histograms' own drawing


def page(report: Report) -> str:
    """The report as a whole HTML document."""
    start, end = report.window
    return template("report/report.html").render(
        report=report,
        window=f"{instant(start)} to {instant(end)}",
        picture=_picture,
        bars=_bars,
        wide=BAR_UNITS,
        tall=TALL,
        version=__version__,
    )


def _picture(chart: Chart) -> Markup:
    return Markup(image.svg(chart))  # our own SVG; matplotlib escapes its text


def _bars(histogram: Histogram) -> Sequence[tuple[int, float]]:
    """Left edge and height of each bar, the tallest of the GPU filling the picture."""
    top = max(histogram.bins) or 1.0
    return [(i * BAR_UNITS, round(value / top * TALL, 2)) for i, value in enumerate(histogram.bins)]
