"""Where do pages find their templates? Beside the face that draws them; what pages share lies in this folder."""

from functools import cache

from jinja2 import Environment, PackageLoader, Template


@cache
def template(path: str) -> Template:
    """The template at `path` inside this folder. What it prints is escaped."""
    loader = PackageLoader("loadfactor", "faces")
    return Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(path)
