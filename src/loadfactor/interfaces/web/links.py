"""Addresses of what tables name: a dimension has one page, wherever a column of a table holds it."""

from typing import Final

from markupsafe import Markup

from loadfactor.interfaces.addresses import PLACES, STATEMENT, address_of
from loadfactor.interfaces.document import TableColumn
from loadfactor.interfaces.formats import UNKNOWN
from loadfactor.interfaces.pages.bridge import FLEET, POOLS
from loadfactor.interfaces.pages.readings import NO_NAME
from loadfactor.interfaces.render.html import write_text
from loadfactor.interfaces.reports.inquiry import NOBODY, UNTAGGED
from loadfactor.interfaces.reports.sections import ALL
from loadfactor.interfaces.web.ask import FACETS, VIEW, Ask
from loadfactor.interfaces.web.views import LONGEST_ADDRESS

STATEMENT_OF, STATEMENT_OF_MONTH = "statement of", "statement of month"
"""Titles of columns whose cells, a team, or a month on the page of a team, lead to a statement."""
FACETED: Final = ("last", "from", "to", "tz", "where", "sort", "q", "rows", *FACETS)
NAMELESS: Final = (UNKNOWN, NO_NAME, NOBODY, UNTAGGED, f"{UNTAGGED}, or {NOBODY}", "", ALL, POOLS, FLEET)
"""Cells that name nothing of a dimension: unknown, nobody, or a sum."""


class Linker:
    """Makes links of cells whose column is called after a dimension, in the window of the page."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def __call__(self, column: TableColumn, cell: str) -> Markup | str:
        """The cell spelled out, as a link where it names something that has a page; an address too long for browsers is none."""
        shown, address = write_text(column, cell), self._find_address(column, cell)
        if address is None or len(address) > LONGEST_ADDRESS:
            return shown
        return Markup('<a href="{}">{}</a>').format(address, shown)

    def _find_address(self, column: TableColumn, cell: str) -> str | None:
        title, name = column.title, column.facet
        if name:
            if name in FACETS:
                return self._ask.link(self._ask.path, FACETED, **{name: cell})
            chosen = f"{name}={cell}"
            others = [w for w in self._ask.state.get("where", ()) if w]
            return self._ask.link(self._ask.path, FACETED, where=",".join((*others, chosen)))
        if title == VIEW:
            return next((view.address for view in self._ask.views if view.name == cell), None)
        if title == STATEMENT_OF_MONTH:
            return self._ask.link(address_of(PLACES["team"], self._ask.name) + STATEMENT, ("tz",), month=cell)
        if title == STATEMENT_OF and cell not in NAMELESS:
            return self._ask.link(address_of(PLACES["team"], cell) + STATEMENT, ("tz",))
        place = PLACES.get(title)
        if place is None or cell in NAMELESS:
            return None
        return self._ask.link(address_of(place, cell), ("last", "from", "to", "tz"))
