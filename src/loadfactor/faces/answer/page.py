"""How does an answer look as a page? One self-contained HTML file: no script, no font, nothing fetched."""

from functools import cache
from importlib.resources import files

from jinja2 import Environment, Template
from markupsafe import Markup

from loadfactor import __version__
from loadfactor.faces.answer import Answer
from loadfactor.faces.charts import image


def page(answer: Answer) -> str:
    """The answer as a whole HTML document."""
    pictures = [
        (chart.title, Markup(image.svg(chart))) for chart in answer.charts
    ]  # our own SVG, text escaped by matplotlib
    return _template().render(answer=answer, pictures=pictures, version=__version__)


@cache
def _template() -> Template:
    text = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(text)
