"""Addresses of what tables name: a dimension has one page, wherever a column of a table holds it."""

from typing import Final
from urllib.parse import quote

from markupsafe import Markup

from loadfactor.base.spelling import spell_out
from loadfactor.interfaces.document import TableColumn
from loadfactor.interfaces.formats import UNKNOWN
from loadfactor.interfaces.pages.readings import NO_NAME
from loadfactor.interfaces.reports.inquiry import NOBODY, UNTAGGED
from loadfactor.interfaces.web.ask import FACET, Ask

PLACES: Final = {"team": "/teams", "job": "/jobs", "device": "/gpus"}
"""Where a value of a dimension has its page."""
FACETED: Final = ("last", "from", "to", "tz", "sort", "q")
NAMELESS: Final = (UNKNOWN, NO_NAME, NOBODY, UNTAGGED, f"{UNTAGGED}, or {NOBODY}", "")


def address_of(place: str, name: str) -> str:
    """The path of a page of one thing."""
    return f"{place}/{quote(name, safe='')}"


class Linker:
    """Makes links of cells whose column is called after a dimension, in the window of the page."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __call__(self, column: TableColumn, cell: str) -> Markup | str:
        """The cell spelled out, as a link where it names something that has a page."""
        shown = spell_out(cell)
        if column.title.startswith(FACET):
            chosen = f"{column.title.removeprefix(FACET)}={cell}"
            others = [w for w in self._ask.state.get("where", ()) if w]
            address = self._ask.link(self._ask.path, FACETED, where=",".join((*others, chosen)))
            return Markup('<a href="{}">{}</a>').format(address, shown)
        place = PLACES.get(column.title)
        if place is None or cell in NAMELESS:
            return shown
        address = self._ask.link(address_of(place, cell), ("last", "from", "to", "tz"))
        return Markup('<a href="{}">{}</a>').format(address, shown)
