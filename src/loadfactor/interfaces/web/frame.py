"""The frame of every page: the styles and scripts that it links, and what a refusal and the form for signing in look like."""

import re
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, Template

from loadfactor import __version__
from loadfactor.base.spelling import spell_out

FORM_KEY: Final = "form_key"
"""The field with which a form of a page says that it is one."""
REFUSED: Final = {401: "Who is asking?", 403: "This is not yours to see.", 404: "There is no such page."}

SHORTEST_HASH: Final = 12
MEDIA: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
SHIPPED: Final = (
    "interfaces/render/static/page.css",
    *(f"interfaces/web/static/{name}" for name in ("frame.css", "page.js", "live.js", "charts.js", "heat.js")),
)


def _read(path: str) -> tuple[str, bytes]:
    content = files("loadfactor").joinpath(path).read_bytes()
    stem, _, suffix = path.rpartition("/")[2].rpartition(".")
    return f"{stem}-{sha256(content).hexdigest()[:SHORTEST_HASH]}.{suffix}", content


_FOUND: Final = [_read(path) for path in SHIPPED]
FILES: Final[dict[str, tuple[bytes, str]]] = {
    name: (content, MEDIA[name.rpartition(".")[2]]) for name, content in _FOUND
}
"""What is in each file and its type, by its name under /static/, which changes with what is in it."""
STYLES: Final = [f"/static/{name}" for name in FILES if name.endswith(".css")]
SCRIPTS: Final = [f"/static/{name}" for name in FILES if name.endswith(".js")]
"""In the order that a page links them. A page does without its scripts."""


COMMA: Final = ("en", "zh", "ja", "ko", "th", "he", "hi")
"""Languages that part thousands by commas."""
NARROW_SPACE: Final = "\u202f"
_NUMBER: Final = re.compile(
    r'(<(code|a|option)\b[^>]*>[^<]*</\2>|<th scope="row"[^>]*>[^<]*</th>|<[^>]*>)|(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\w,])'
)


def parts_by_space(accepted: str) -> bool:
    """Whether the reader of a page, by its Accept-Language, may take the comma in 1,234 for that of a fraction.

    >>> [parts_by_space(of) for of in ("de-DE,de;q=0.9,en;q=0.8", "en-GB,de;q=0.5", "de;q=0.2,en", "fr", "*", "")]
    [True, False, False, True, False, False]
    """
    named = re.findall(r"([a-zA-Z]+)[^,;]*(?:;\s*q=([01](?:\.\d*)?))?", accepted)
    first = max(named, key=lambda of: float(of[1] or 1), default=("en", ""))[0]
    return first.lower() not in COMMA


def part_by_space(page: str) -> str:
    """A page with the thousands of its numbers parted by narrow spaces; links, names of rows, commands and attributes stay.

    >>> part_by_space('<td class="n" title="1,000">$12,345.6</td><th scope="row">1,2</th><code>1,000</code>').replace("\u202f", "_")
    '<td class="n" title="1,000">$12_345.6</td><th scope="row">1,2</th><code>1,000</code>'
    """
    return _NUMBER.sub(lambda found: found[1] or found[0].replace(",", NARROW_SPACE), page)


def render_login(place: str, problem: str = "") -> str:
    """The form that takes a token and goes on to `place`."""
    return render("login.html", title="Sign in", place=place, problem=problem)


def render_refusal(status: int, line: str) -> str:
    """The page of a request that is not served, with the line that says why and what to do."""
    return render("refusal.html", title=REFUSED.get(status, "This did not work."), status=status, line=line)


def render(name: str, **given: Any) -> str:
    """A template of this package, filled. What it prints is escaped."""
    return _template(name).render(styles=STYLES, scripts=SCRIPTS, version=__version__, form_key_field=FORM_KEY, **given)


@cache
def _template(name: str) -> Template:
    loader = PackageLoader("loadfactor", "interfaces/web/templates")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["spelled"] = spell_out
    return environment.get_template(name)
