"""The frame of every page: the styles and scripts that it links, and what a refusal and the form for signing in look like."""

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
