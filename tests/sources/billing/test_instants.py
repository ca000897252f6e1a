"""Times of bills: ISO, days with slashes in the order that the file shows, and what is refused."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import SourceError
from loadfactor.sources.billing.amounts import DayOrder, begin_months, end_days, is_ambiguous, parse_instants
from loadfactor.sources.parsing.cells import CellPosition

POSITION = CellPosition("bill.csv", "Date", 1)


def _ms(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1000


def _parse(*cells: object, month_first: bool | None = None) -> list[int | None]:
    return parse_instants(pa.array(cells), POSITION, DayOrder(month_first)).to_pylist()


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2023-11-01T00:00:00.000Z", (2023, 11, 1)),
        ("2024-10-01 00:00:00", (2024, 10, 1)),
        ("2024-10-01 07:30:00 UTC", (2024, 10, 1, 7, 30)),
        ("2024-10-01 07:30:00.123456 UTC", (2024, 10, 1, 7, 30)),
        ("2024-10-01T02:00:00+02:00", (2024, 10, 1)),
        ("2021-02-02", (2021, 2, 2)),
        ("20230901", (2023, 9, 1)),
        ("202409", (2024, 9, 1)),
        ("9/30/2023", (2023, 9, 30)),
        ("5/1/25", (2025, 5, 1)),
        ("5/1/2025 1:30:00 PM", (2025, 5, 1, 13, 30)),
        ("5/1/2025 12:00 AM", (2025, 5, 1)),
    ],
)
def test_times_as_bills_write_them(text: str, when: tuple[int, ...]) -> None:
    """Every form is an instant in UTC."""
    assert _parse(text, None)[0] // 1000 == _ms(*when) // 1000


@pytest.mark.parametrize(
    "text", ["soon", "2023-13-01", "13/13/2024", "2/30/2024", "5/1/025", "1/2/2024 13:00 PM", "45000"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    """One line names file, row, column and value."""
    with pytest.raises(SourceError, match=r"bill\.csv, row 2: Date '"):
        _parse("2024-01-01", text)


def test_the_order_of_days_is_learnt() -> None:
    """A part above 12 is a day; a billing period begins with a month; both orders in one file are refused."""
    for days, begins, expected in (
        (["2/2/2021", "5/31/2021"], False, True),
        (["31/5/2021"], False, False),
        (["5/1/25"], True, True),
        (["1/5/25"], True, False),
        (["5/4/25"], False, None),
    ):
        order = DayOrder()
        order.learn("bill.csv", days, begins)
        assert order.month_first is expected
    with pytest.raises(
        SourceError, match=r"bill\.csv mixes days: '5/31/2021' has its month first, '31/5/2021' its day"
    ):
        DayOrder().learn("bill.csv", ["5/31/2021", "31/5/2021"])
    assert [is_ambiguous(day) for day in ("5/1/25", "2/2/21", "5/31/21", "2021-05-01")] == [True, False, False, False]
    assert _parse("1/5/25", month_first=False) == [_ms(2025, 5, 1)]


def test_months_and_days_end_where_the_next_begins() -> None:
    """Starts of months and midnights after days, in UTC."""
    instants = pa.array([_ms(2024, 2, 29, 23), _ms(2024, 12, 1), None])
    assert begin_months(instants).to_pylist() == [_ms(2024, 2, 1), _ms(2024, 12, 1), None]
    assert begin_months(instants, later=1).to_pylist() == [_ms(2024, 3, 1), _ms(2025, 1, 1), None]
    assert end_days(instants).to_pylist() == [_ms(2024, 3, 1), _ms(2024, 12, 2), None]


@settings(max_examples=200, deadline=None)
@given(st.dates(date(2000, 1, 1), date(2068, 12, 31)), st.booleans(), st.booleans())
def test_days_with_slashes_come_back(day: date, month_first: bool, short: bool) -> None:
    """A day written either way round, with two or four digits of the year, is its midnight UTC."""
    year = f"{day.year % 100:02}" if short else str(day.year)
    text = f"{day.month}/{day.day}/{year}" if month_first else f"{day.day}/{day.month}/{year}"
    assert _parse(text, month_first=month_first) == [_ms(day.year, day.month, day.day)]
