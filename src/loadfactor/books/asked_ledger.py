"""The ledger of the window that a question asks for, under the name `asked_ledger` in a session.

It is made of booked hours, and of those that a limit of the window or a local midnight cuts, which are booked afresh. Several
questions of one window can read its days added up instead, where they name no GPU and no hour: these are many times fewer rows.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

from loadfactor.books.booking import book
from loadfactor.books.compiled_sql import Queries, recall
from loadfactor.metrics.query.calendar import Window
from loadfactor.metrics.query.question import NOT_OF_DAYS, Question, list_calendar
from loadfactor.store.session import Session
from loadfactor.units import MS_PER_HOUR


class AskedLedger:
    """Names parts of the table `ledger` of a session."""

    def __init__(self, session: Session, idle_below: float) -> None:
        self._session = session
        self._idle_below = idle_below
        self._cuts: dict[int, frozenset[int]] = {}  # hours that are booked as `cut`, and where they are cut
        self._folded: Window | None = None  # what `folded_ledger` is of

    def view_for(self, question: Question) -> None:
        """Name what a question reads `asked_ledger`: the days of its window added up where there are such and they tell enough."""
        window, folded, by_day = question.window, self._folded, bool(question.periods)
        named = {*question.by, *(name for name, _ in question.where)}
        if folded is None or not named.isdisjoint(NOT_OF_DAYS):
            self.view(window, by_day)
        elif folded == window or (not by_day and folded.limits == window.limits):
            self._session.create_view("asked_ledger", "SELECT * FROM folded_ledger")
        else:
            self.view(window, by_day)

    def view(self, window: Window, by_day: bool) -> None:
        """Name the ledger of a window `asked_ledger`; `by_day`: no row of it spans a local midnight."""
        session, cuts = self._session, self._find_cuts(window, by_day)
        sql = f"SELECT * FROM ledger WHERE from_utc < {window.end_ms} AND to_utc > {window.start_ms}"
        if cuts:
            if any(not self._cuts.get(hour, frozenset()).issuperset(points) for hour, points in cuts.items()):
                self._book(cuts)
            hours = f"({', '.join(map(str, cuts))})"
            within = f"hour_utc IN {hours} AND from_utc >= {window.start_ms} AND to_utc <= {window.end_ms}"
            sql += f" AND hour_utc NOT IN {hours} UNION ALL BY NAME SELECT * FROM cut WHERE {within}"
        session.create_view("asked_ledger", sql)

    def fold(self, window: Window) -> None:
        """Add the ledger of a window up by local day, for `view_for`."""
        self.view(window, True)
        self._session.put("calendar", list_calendar(window, ("day",)))
        self._session.materialize("folded_ledger", recall("days", _compile_days)["days"])
        self._folded = window

    def book_cuts(self, windows: Iterable[Window]) -> None:
        """Book at once all hours that these windows cut."""
        cuts: dict[int, set[int]] = {}
        for window in windows:
            for hour, points in self._find_cuts(window, False).items():
                cuts.setdefault(hour, set()).update(points)
        if cuts:
            self._book(cuts)

    def _find_cuts(self, window: Window, by_day: bool) -> dict[int, list[int]]:
        """The instants that cut hours of a window, by hour. In the hour where the books begin or end no row spans a cut outside."""
        start, end = self._session.span()
        inside = {h: [p for p in points if start < p < end] for h, points in window.cut_hours(by_day).items()}
        return {h: points for h, points in sorted(inside.items()) if points}

    def _book(self, cuts: Mapping[int, Iterable[int]]) -> None:
        """Book these hours as `cut`, no row of which spans a cut: the windows that end at these instants are asked of it, too."""
        start, end = self._session.span()
        spans = tuple((max(hour, start), min(hour + MS_PER_HOUR, end)) for hour in sorted(cuts))
        book(self._session, spans, sorted(chain.from_iterable(cuts.values())), self._idle_below)
        self._session.materialize("cut", "SELECT * FROM book ORDER BY ALL")  # sums keep their digits
        self._cuts = {hour: frozenset(points) for hour, points in cuts.items()}


def _compile_days() -> Queries:
    """The SQL of a ledger added up by day."""
    from loadfactor.books.expressions import write_days  # Ibis takes longer to import than most answers

    return write_days()
