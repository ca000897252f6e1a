"""The ledger of the window that a question asks for, under the name `window_ledger` in a session.

It is made of booked hours, and of those that a limit of the window or a local midnight cuts, which are booked afresh. Several
questions of one window can read its days added up instead, where these tell what they ask by: these are many times fewer rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from itertools import chain

from loadfactor.base.units import MS_PER_HOUR
from loadfactor.books.booking import book
from loadfactor.books.compiled_sql import expressions, recall
from loadfactor.metrics.query.calendar import PERIODS, Window
from loadfactor.metrics.query.question import NOT_OF_DAYS, UNKNOWN_HOLDER, Question
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import DIMENSIONS


@dataclass(frozen=True)
class _Folded:
    """Scope of the table `folded_ledger`: the questions it answers."""

    window: Window
    by: tuple[str, ...]
    basis: str

    def answers(self, question: Question) -> bool:
        """True where it tells what a question asks for."""
        window = question.window
        return (
            {*question.by, *(name for name, _ in question.where)} <= {*self.by, *PERIODS, "state"}
            and question.basis == self.basis
            and (window == self.window or (not question.periods and window.limits == self.window.limits))
        )


class WindowLedger:
    """Names parts of the table `ledger` of a session."""

    def __init__(self, session: Session, idle_below: float) -> None:
        self._session = session
        self._idle_below = idle_below
        self._cuts: dict[int, frozenset[int]] = {}  # hours that are booked as `cut`, and where they are cut
        self._folded: _Folded | None = None

    def view_for(self, question: Question) -> None:
        """Name what a question reads `window_ledger`: the days of its window added up where there are such and they tell enough."""
        if self._folded is not None and self._folded.answers(question):
            self._session.create_view("window_ledger", "SELECT * FROM folded_ledger")
        else:
            where = () if question.units else question.where  # of a job that worked elsewhere, too, no work is counted
            self.view(question.window, bool(question.periods), where)

    def view(self, window: Window, by_day: bool, where: Sequence[tuple[str, str]] = ()) -> None:
        """Name the ledger of a window `window_ledger`; `by_day`: no row of it spans a local midnight.

        `where` are filters to apply here already: the engine then reads the other columns of these rows alone.
        """
        session, cuts = self._session, self._find_cuts(window, by_day)
        sql = f"SELECT * FROM ledger WHERE from_utc < {window.end_ms} AND to_utc > {window.start_ms}"
        if cuts:
            if any(not self._cuts.get(hour, frozenset()).issuperset(points) for hour, points in cuts.items()):
                self._book(cuts)
            hours = f"({', '.join(map(str, cuts))})"
            within = f"hour_utc IN {hours} AND from_utc >= {window.start_ms} AND to_utc <= {window.end_ms}"
            sql += f" AND hour_utc NOT IN {hours} UNION ALL BY NAME SELECT * FROM cut WHERE {within}"
        for name, value in where:
            if value != UNKNOWN_HOLDER:
                sql = f"SELECT * FROM ({sql}) WHERE {DIMENSIONS[name]} = {quote(value)}"
        session.create_view("window_ledger", sql)

    def view_span(self, window: Window | None) -> bool:
        """Name the ledger of a window `window_ledger`, of all time without one; False where the books know nothing of it.

        In a zone whose midnights cut hours, no row of it spans one.
        """
        first, last = self._session.span()
        zone = window.zone if window else UTC
        start, end = (first, last) if window is None else (max(first, window.start_ms), min(last, window.end_ms))
        if start < end:
            self.view(Window(start, end, zone), window is not None)
        return start < end

    def fold(self, window: Window, by: Sequence[str], basis: str) -> None:
        """Add the ledger of a window up by local day, job, these dimensions and in this basis, for `view_for`."""
        needed = {"job", *by}.difference(NOT_OF_DAYS)  # work is stated by jobs, whatever it is split by
        kept = tuple(name for name in DIMENSIONS if name in needed)
        sql = recall(f"day {kept} {basis}", lambda: expressions().write_day(kept, basis))["day"]
        self.view(window, True)
        self._session.materialize("folded_ledger", "SELECT * FROM window_ledger LIMIT 0")
        for _, first, after in window.days():  # one after another: engines are quickest where there are few groups
            part = replace(window, start_ms=max(first, window.start_ms), end_ms=min(after, window.end_ms))
            self.view(part, False)
            self._session.raw.execute(f"INSERT INTO folded_ledger {sql}")
        self._folded = _Folded(window, kept, basis)

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
        """Book these hours as `cut`, no row of which spans a cut: the windows that end at these instants are put to it, too."""
        start, end = self._session.span()
        spans = tuple((max(hour, start), min(hour + MS_PER_HOUR, end)) for hour in sorted(cuts))
        book(self._session, spans, sorted(chain.from_iterable(cuts.values())), self._idle_below)
        self._session.materialize("cut", "SELECT * FROM book ORDER BY ALL")  # sums keep their digits
        self._cuts = {hour: frozenset(points) for hour, points in cuts.items()}
