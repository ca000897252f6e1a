"""The ledger of the window that a question asks for, under the name `window_ledger` in a session.

It is made of booked hours, and of those that a limit of the window or a local midnight cuts, which are booked afresh. A question
reads sums that are kept beside the ledger where these tell it: many times fewer rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from itertools import chain, pairwise

from loadfactor.base.units import MS_PER_DAY, MS_PER_HOUR
from loadfactor.books.booking import book
from loadfactor.books.kept_sums import LEDGER_FILES, choose_sum
from loadfactor.books.ledger_inputs import select_ledger
from loadfactor.books.served_use import divide_ledger
from loadfactor.metrics.query.calendar import Window
from loadfactor.metrics.query.question import UNKNOWN_HOLDER, Question
from loadfactor.store.manifest import merge, subtract
from loadfactor.store.sample_files import quote
from loadfactor.store.session import Session
from loadfactor.tables.schema import DIMENSIONS

_LEDGER = "SELECT * FROM ledger"
_CUTS = "cuts"
"""The name of what is booked as `cut` among what a session derived."""


class WindowLedger:
    """Names parts of the table `ledger` of a session."""

    def __init__(self, session: Session, idle_below: float) -> None:
        self._session = session
        self._idle_below = idle_below
        # hours that are booked as `cut`, and where they are cut
        self._cuts: dict[int, frozenset[int]] = session.derived.setdefault(_CUTS, {})

    def view_for(self, question: Question, sums: Iterable[str]) -> None:
        """Name what a question reads `window_ledger`: the smallest of `sums`, kept sums that tell it, and else the ledger."""
        self._view_undivided(question, tuple(sums))
        if question.divides:
            divide_ledger(self._session, question.divides == "charged")

    def _view_undivided(self, question: Question, sums: Sequence[str]) -> None:
        window, by_day = question.window, bool(question.periods)
        # of a job that worked elsewhere, too, no work is counted; whose a row is, is not known before it is divided
        where = () if question.units or question.divides else question.where
        cuts = self._find_cuts(window, by_day)
        hours = ((window.start_ms - window.start_ms % MS_PER_HOUR, window.end_ms + -window.end_ms % MS_PER_HOUR),)
        whole = subtract(hours, merge([(hour, hour + MS_PER_HOUR) for hour in cuts]))
        files, rest = choose_sum(self._session.derived[LEDGER_FILES], sums, _find_longest(question), whole)
        if not files:
            self.view(window, by_day, where)
            return
        within = " OR ".join(f"(hour_utc >= {start} AND hour_utc < {end})" for start, end in rest)
        # the first names columns that the sum does not tell, too
        of_ledger = f"{_LEDGER} WHERE {within}" if rest else self._session.find_once(_LEDGER, self._write_empty)
        self._name([of_ledger, select_ledger(self._session, files)], window, cuts, where)

    def _write_empty(self) -> str:
        """SQL: the columns of the ledger without rows, for which no file of it is opened."""
        described = self._session.raw.execute(f"DESCRIBE {_LEDGER}").fetchall()
        columns = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind, *_ in described)
        return f"SELECT {columns} WHERE false"

    def view(self, window: Window, by_day: bool, where: Sequence[tuple[str, str]] = ()) -> None:
        """Name the ledger of a window `window_ledger`; `by_day`: no row of it spans a local midnight.

        `where` are filters to apply here already: the engine then reads the other columns of these rows alone.
        """
        cuts = self._find_cuts(window, by_day)
        sql = f"{_LEDGER} WHERE from_utc < {window.end_ms} AND to_utc > {window.start_ms}"
        if cuts:
            sql += f" AND hour_utc NOT IN ({', '.join(map(str, cuts))})"
        self._name([sql], window, cuts, where)

    def _name(
        self, parts: list[str], window: Window, cuts: Mapping[int, list[int]], where: Sequence[tuple[str, str]]
    ) -> None:
        """Name the rows of these queries and of hours that are cut."""
        if cuts:
            self._book(cuts)
            within = f"from_utc >= {window.start_ms} AND to_utc <= {window.end_ms}"
            parts = [*parts, f"SELECT * FROM cut WHERE hour_utc IN ({', '.join(map(str, cuts))}) AND {within}"]
        sql = " UNION ALL BY NAME ".join(parts)
        self._session.create_view("window_ledger", f"SELECT * FROM ({sql}) WHERE {_choose(where)}" if where else sql)

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

    def book_cuts(self, windows: Iterable[Window]) -> None:
        """Book at once all hours that these windows cut."""
        cuts: dict[int, set[int]] = {}
        for window in windows:
            for hour, points in self._find_cuts(window, False).items():
                cuts.setdefault(hour, set()).update(points)
        self._book(cuts)

    def _find_cuts(self, window: Window, by_day: bool) -> dict[int, list[int]]:
        """The instants that cut hours of a window, by hour. In the hour where the books begin or end no row spans a cut outside."""
        start, end = self._session.span()
        inside = {h: [p for p in points if start < p < end] for h, points in window.cut_hours(by_day).items()}
        return {h: points for h, points in sorted(inside.items()) if points}

    def _book(self, cuts: Mapping[int, Iterable[int]]) -> None:
        """Have these hours in `cut`, no row of which spans a cut, booked once each, unless another cut comes to one."""
        more = {
            hour: self._cuts.get(hour, frozenset()).union(points)
            for hour, points in cuts.items()
            if not self._cuts.get(hour, frozenset()).issuperset(points)
        }
        if not more:
            return
        start, end = self._session.span()
        frozen = {hour for hour in more if any(s <= hour < e for s, e in self._session.manifest.dropped.hours)}
        parts = [self._divide_rows(hour, sorted(more[hour])) for hour in sorted(frozen)]
        spans = tuple((max(hour, start), min(hour + MS_PER_HOUR, end)) for hour in sorted(more) if hour not in frozen)
        if spans:
            points = (more[hour] for hour in more if hour not in frozen)
            book(self._session, spans, sorted(chain.from_iterable(points)), self._idle_below)
            parts.append("SELECT * FROM book")
        booked = " UNION ALL BY NAME ".join(parts)
        if self._cuts:
            booked += f" UNION ALL BY NAME SELECT * FROM cut WHERE hour_utc NOT IN ({', '.join(map(str, more))})"
        self._session.materialize("cut", f"{booked} ORDER BY ALL")  # sums keep their digits
        self._cuts |= more

    def _divide_rows(self, hour: int, points: list[int]) -> str:
        """SQL: the rows of an hour cut at some points, of which the ledger is all there is: as if they were alike all the time."""
        from loadfactor.ledger.sums import ADDITIVE  # slow to import

        edges = [hour, *points, hour + MS_PER_HOUR]
        share = "(least(l.to_utc, until) - greatest(l.from_utc, since)) / (l.to_utc - l.from_utc)"
        divided = ", ".join(f"{column} * {share} AS {column}" for column in ADDITIVE)
        pieces = ", ".join(f"({since}, {until})" for since, until in pairwise(edges))
        return (
            "SELECT * EXCLUDE (since, until) REPLACE (greatest(l.from_utc, since) AS from_utc, least(l.to_utc, until) AS to_utc,"
            f" {divided}) FROM ledger AS l JOIN (VALUES {pieces}) AS pieces(since, until)"
            f" ON l.from_utc < until AND l.to_utc > since WHERE l.hour_utc = {hour}"
        )


def _choose(where: Sequence[tuple[str, str]]) -> str:
    """SQL: a row is of these values; whose it is where nobody knows the holder is not chosen here."""
    chosen = [f"{DIMENSIONS[name]} = {quote(value)}" for name, value in where if value != UNKNOWN_HOLDER]
    return " AND ".join(chosen) or "true"


def _find_longest(question: Question) -> int:
    """The longest period (ms) by which what a question splits by can be added up before."""
    days = question.window.days() if question.periods else ()
    is_by_hour = "hour" in question.by or question.reads_grid
    return MS_PER_HOUR if is_by_hour or any(first % MS_PER_DAY for _, first, _ in days) else MS_PER_DAY
