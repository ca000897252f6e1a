"""How does an answer look as a page? One self-contained HTML file: no script, no font, nothing fetched."""

from markupsafe import Markup

from loadfactor import __version__
from loadfactor.faces.answer import Answer
from loadfactor.faces.charts import image
from loadfactor.faces.templates import template


def page(answer: Answer) -> str:
    """The answer as a whole HTML document."""
    pictures = [
        (chart.title, Markup(image.svg(chart))) for chart in answer.charts
    ]  # our own SVG, text escaped by matplotlib
    return template("answer/page.html").render(answer=answer, pictures=pictures, version=__version__)
