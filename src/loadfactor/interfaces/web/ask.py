"""What an address asks: the state of a page, read as the command line reads it, and the part of the books that may be seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from shlex import quote
from typing import Final
from urllib.parse import urlencode

from loadfactor.base.errors import no_such
from loadfactor.base.request import make_request
from loadfactor.books.books import Books
from loadfactor.books.snapshot import Snapshot
from loadfactor.interfaces.reach import NothingKnownError, is_empty, keep_to_team
from loadfactor.interfaces.reports.inquiry import Inquiry
from loadfactor.interfaces.requests import ShowRequest
from loadfactor.interfaces.web.plans import PlanForm
from loadfactor.interfaces.web.standing import Standing
from loadfactor.interfaces.web.views import SavedView

FIELDS: Final = {
    "last": "last",
    "from": "start",
    "to": "end",
    "tz": "timezone",
    "by": "by",
    "where": "where",
    "metric": "metrics",
    "basis": "basis",
    "sort": "sort",
}
"""Names in addresses, and the fields of the request of `show`, whose words they take."""
LISTS: Final = ("by", "where", "metric")
OPTIONS: Final = {"last": "--last", "from": "--from", "to": "--to", "tz": "--timezone", "where": "--where"}
KEPT: Final = ("last", "from", "to", "tz", "where")
"""What a link to another page takes along."""
FACETS: Final = ("state", "end", "every", "on", "month", "version")
"""Facets that are names in the address of their own; the others are filters of `where`."""
VIEW: Final = "view"
"""The title of the column that names saved views."""
LIVE_WINDOW: Final = "7d"
COMPARE: Final = "compare"
BEFORE: Final = "before"
State = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Ask:
    """A question to a page: the name in its path, the state in its address, the books, and of which team alone.

    `is_live`: whether the books go on; without a window such a page shows the last days, and books at rest all of theirs.
    `standing`: long answers as far as they are made, `forms`: of which plans, on pages of those; `views`: those of who asks.
    """

    books: Books
    snapshot: Snapshot
    path: str
    name: str
    state: State
    team: str | None = None
    is_live: bool = False
    standing: Sequence[Standing] = ()
    forms: Sequence[PlanForm] = ()
    views: Sequence[SavedView] = ()

    @cached_property
    def request(self) -> ShowRequest:
        """The state as a request. Raises InputError."""
        return read_state(self.state, self.is_live)

    def text(self, name: str) -> str:
        """One text of the state; empty where it is not given."""
        values = self.state.get(name, ())
        return values[-1].strip() if values else ""

    def choose(self, name: str, known: Sequence[str]) -> str:
        """One of the texts that the state may have under a name; empty where it is not given. Raises InputError for another."""
        named = self.text(name)
        if named and named not in known:
            raise no_such(name, named, known)
        return named

    @property
    def compares(self) -> bool:
        """Whether the period before is to stand beside this one. Raises InputError for anything but `before`."""
        return self.choose(COMPARE, [BEFORE]) == BEFORE

    def inquire(self, by: Sequence[str] = (), job: str | None = None, **where: str) -> Inquiry:
        """The part of the books in question. Raises as `keep_to_team`, and NothingKnownError where the books are empty."""
        if is_empty(self.snapshot):
            raise NothingKnownError
        request = self.request
        filters = {**request.filters, **where}
        kept = keep_to_team(self.snapshot, filters | ({"job": job} if job else {}), self.team)
        if job:
            kept.pop("job")
        start, end = request.window(self.snapshot)
        return Inquiry(self.snapshot, by, start, end, request.zone, request.basis, kept, job)

    def link(self, path: str, keep: Sequence[str] = KEPT, **changed: str) -> str:
        """An address with this state, as far as it is kept, and what is changed in it."""
        kept = [(name, value) for name in keep for value in self.state.get(name, ()) if value and name not in changed]
        words = [*kept, *((name, value) for name, value in changed.items() if value)]
        return path + (f"?{urlencode(words)}" if words else "")

    def say_options(self, without: Sequence[str] = ()) -> str:
        """The state as options of a command, but for these names."""
        words = [
            f"{option} {quote(value)}"
            for name, option in OPTIONS.items()
            for value in self.state.get(name, ())
            if value and name not in without
        ]
        if self.is_live and not self.text("last") and not self.text("from"):
            words.insert(0, f"--last {LIVE_WINDOW}")
        if self.team is None:
            words.append(f"--store {quote(self.books.store.name)}")
        return " ".join(words)


def read_state(state: State, is_live: bool) -> ShowRequest:
    """The state of an address as a request. Raises InputError."""
    given = {
        FIELDS[name]: ",".join(values) if name in LISTS else values[-1]
        for name, values in state.items()
        if name in FIELDS and any(values)
    }
    if is_live and "last" not in given and "start" not in given:
        given["last"] = LIVE_WINDOW
    return make_request(ShowRequest, given)


def shift(inquiry: Inquiry) -> Inquiry | None:
    """The same question of the period before; None where the books do not reach back that far."""
    start, end = inquiry.window
    before = start - (end - start)
    return replace(inquiry, start=before, end=start) if before >= inquiry.books.span[0] else None
