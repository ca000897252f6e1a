"""The files that pages link to: styles and scripts, each under a name that changes with what is in it."""

from hashlib import sha256
from importlib.resources import files
from typing import Final

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
"""What is in each file and its type, by its name under /static/."""
STYLES: Final = [f"/static/{name}" for name in FILES if name.endswith(".css")]
SCRIPTS: Final = [f"/static/{name}" for name in FILES if name.endswith(".js")]
"""In the order that a page links them. A page does without its scripts."""
