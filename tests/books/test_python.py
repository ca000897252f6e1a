"""The books in Python: opening, asking, frames, checks, and the same digits every time."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args
from zoneinfo import ZoneInfo

import pytest

import loadfactor
from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.metrics import METRICS
from loadfactor.metrics.names import Dimension, MetricName
from loadfactor.metrics.query.calendar import Window, milliseconds
from loadfactor.tables.schema import DIMENSIONS


def test_a_folder_without_books_says_how_to_begin(tmp_path: Path) -> None:
    """Opening it is an InputError, unless the books are to be made there; nothing is written by opening."""
    with pytest.raises(InputError, match=r"no books in .*; begin with `loadfactor import"):
        loadfactor.open(tmp_path / "none")
    assert isinstance(loadfactor.open(tmp_path / "none", create=True), loadfactor.Books)
    assert not (tmp_path / "none").exists()


def test_names_are_types() -> None:
    """Editors complete every declared metric and dimension, and no other."""
    assert get_args(MetricName) == tuple(m.name for m in METRICS)
    assert get_args(Dimension) == tuple(DIMENSIONS)


def test_one_name_is_enough(simulated_books: Books) -> None:
    """A metric or dimension alone needs no list, and readings show themselves."""
    (whole,) = simulated_books.show("utilization")
    assert repr(whole).startswith("<utilization = 0.")
    teams = simulated_books.show("utilization", by="team")
    assert len(repr(teams).splitlines()) == len(teams)


def test_a_wide_frame_has_a_row_a_group(simulated_books: Books) -> None:
    """A column a dimension, from, to, and a column a metric; a notebook shows it as a table."""
    readings = simulated_books.show(["utilization", "cost"], by="team")
    wide = readings.to_wide()
    assert list(wide.columns) == ["team", "from", "to", "utilization", "cost"]
    assert len(wide) * 2 == len(readings)
    assert wide.cost.sum() == sum(r.value for r in readings if r.metric == "cost")
    assert "<table" in readings._repr_html_()


def test_books_are_checked(simulated_books: Books) -> None:
    """Both sides of the books and what there is to know of them."""
    checked = simulated_books.check()
    assert checked.is_sound
    assert checked.balance.booked_gpu_hours == pytest.approx(checked.balance.installed_gpu_hours, rel=1e-12)
    assert all(finding.do for finding in checked.findings)


def test_weeks_and_months_are_those_of_the_local_calendar() -> None:
    """Weeks begin on Monday, a month of daylight saving's end has an hour more, and each touches the window."""
    berlin = ZoneInfo("Europe/Berlin")
    start, end = datetime(2026, 10, 1, tzinfo=berlin), datetime(2026, 11, 3, tzinfo=berlin)
    window = Window(milliseconds(start), milliseconds(end), berlin)
    months = window.periods("month")
    assert [(last - first) / 3_600_000 for first, last in months.values()] == [31 * 24 + 1, 48]
    assert list(window.periods("week"))[0::4] == ["2026-W40", "2026-W44"]


def test_weeks_are_the_sum_of_their_days(simulated_books: Books) -> None:
    """A split by week or month adds up to the whole, and its readings speak of that part of the window."""
    start, end = simulated_books.span
    (whole,) = simulated_books.show("cost")
    for unit in ("week", "month"):
        parts = simulated_books.show("cost", by=unit)
        assert sum(r.value for r in parts) == pytest.approx(whole.value, rel=1e-12)
        assert (parts[0].start, parts[-1].end) == (start, end)
        assert parts[0].by.keys() == {unit}


def test_the_same_question_has_the_same_digits(simulated_books: Books) -> None:
    """However often it is asked, with hours that the window cuts, too."""
    start, end = simulated_books.span
    cut = (start + timedelta(minutes=17), end - timedelta(minutes=33))

    def ask() -> list[object]:
        readings = simulated_books.show(by=["team", "day"], start=cut[0], end=cut[1], timezone=UTC)
        return [(r.metric, r.by, r.value, r.coverage) for r in readings]

    first = ask()
    assert all(ask() == first for _ in range(5))
