"""Amounts and times as bills write them are read to the last digit, or refused."""

from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loadfactor.base.errors import SourceError
from loadfactor.sources.billing.amounts import (
    AmountNotes,
    DayOrder,
    begin_months,
    end_days,
    is_ambiguous,
    multiply_amounts,
    parse_amounts,
    parse_instants,
    read_amount,
)
from loadfactor.sources.parsing.cells import CellPosition

POSITION = CellPosition("bill.csv", "BilledCost", 1)
LAST, WIDE = Decimal(1).scaleb(-18), Context(prec=200, rounding=ROUND_HALF_EVEN)


def _parse(*cells: object, kind: pa.DataType | None = None) -> tuple[list[Decimal | None], AmountNotes]:
    notes = AmountNotes()
    return parse_amounts(pa.array(cells, kind), POSITION, notes).to_pylist(), notes


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("$10,000.00 ", "10000"),
        (" $100.00 ", "100"),
        ("-$1,234,567.89", "-1234567.89"),
        ("$-5", "-5"),
        ("(1,234.50)", "-1234.5"),
        ("5.2E-9", "0.0000000052"),
        ("1e3", "1000"),
        ("USD 12.5", "12.5"),
        ("12.5 EUR", "12.5"),
        ("US$3", "3"),
        ("\u22121.5", "-1.5"),
        ("+.5", "0.5"),
        ("5.", "5"),
        ("0e99", "0"),
    ],
)
def test_amounts_as_bills_write_them(text: str, amount: str) -> None:
    """Signs of currencies, separators of thousands, brackets and exponents are read."""
    assert read_amount(text)[0] == Decimal(amount)
    assert _parse(text, "1.25", None)[0] == [Decimal(amount), Decimal("1.25"), None]


@pytest.mark.parametrize(
    "text",
    [
        *("n/a", "1,23", "0,075", "1.234,56", "12,34,567.00", "--1", "(-1)"),
        *("(1", "$1 EUR", "1_000", "٣", "nan", "inf", "1e25", "0x10"),
    ],
)
def test_what_is_no_amount_is_refused(text: str) -> None:
    """One line names file, row, column and value."""
    with pytest.raises(SourceError, match=r"bill\.csv, row 2: BilledCost '"):
        _parse("1.5", text)


def test_a_lone_comma_is_read_where_the_file_writes_points() -> None:
    """1,234 is thousands beside 0.5 or with a sign; alone it could be either and is refused."""
    assert _parse("1,234", "0.5")[0] == [Decimal(1234), Decimal("0.5")]
    assert _parse("$1,234", "$2,000")[0] == [Decimal(1234), Decimal(2000)]
    with pytest.raises(SourceError, match="could be thousands or decimals"):
        _parse("1,234", "2,000")


def test_two_currencies_in_one_column_are_refused() -> None:
    """A column that writes $ and then € is of two currencies."""
    with pytest.raises(SourceError, match=r"row 2: BilledCost '€2' is in € where amounts above are in \$"):
        _parse("$1", "€2")


def test_doubles_are_read_by_their_shortest_text() -> None:
    """0.1 stored as a double is 0.1, and how many were is said; NaN is what pandas writes for null."""
    amounts, notes = _parse(0.1, 1e-7, None, 123456789.123, float("nan"), kind=pa.float64())
    assert amounts == [Decimal("0.1"), Decimal("1e-7"), None, Decimal("123456789.123"), None]
    assert notes.doubles == 3


def test_more_than_18_decimals_are_rounded_and_said() -> None:
    """What rounding takes away is counted, each time the amount stands there."""
    amounts, notes = _parse("0.0000000000000000015", "0.0000000000000000015", "1")
    assert amounts == [Decimal("2e-18"), Decimal("2e-18"), Decimal(1)]
    assert (notes.rounded, notes.taken) == (2, Decimal("-1.0e-18"))


def test_products_are_rounded_half_even() -> None:
    """A price times a quantity keeps 18 decimals."""
    one, other = (
        parse_amounts(pa.array(x), POSITION, AmountNotes()) for x in (["0.000000001", "2.5"], ["0.0000000015", "-4"])
    )
    assert multiply_amounts(one, other).to_pylist() == [Decimal("2e-18"), Decimal(-10)]


@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(st.text("0123456789.,-+eE$ ()", max_size=12))
@example("1E-19")
def test_whatever_is_read_is_what_decimal_reads(text: str) -> None:
    """A text that Python's decimal knows is that number, to 18 decimals; without separators nothing else is read."""
    try:
        known = Decimal(text.strip()) if text.strip() else None
    except ArithmeticError:
        known = None
    try:
        found = _parse(text)[0][0]
    except SourceError:
        assert known is None or abs(known) >= Decimal(10) ** 18 or len(str(known.as_tuple().exponent)) > 6
        return
    if known is not None:
        assert found == known.quantize(LAST, context=WIDE)
    elif found is not None:
        assert set(text) & set(",$() ")


@settings(max_examples=300, deadline=None)
@given(st.decimals(-(10**12), 10**12, places=2), st.sampled_from(["{:,}", "${:,}", "${:,} ", "{} USD", "{:E}"]))
def test_written_amounts_come_back(amount: Decimal, form: str) -> None:
    """An amount written with separators, signs or exponents is read as itself."""
    assert _parse(form.format(amount), "0.25")[0][0] == amount


@settings(max_examples=300, deadline=None)
@given(st.floats(-9e17, 9e17))
def test_doubles_come_back(value: float) -> None:
    """A double is the decimal that Python prints for it, to 18 decimals."""
    assert _parse(value, kind=pa.float64())[0] == [Decimal(repr(value)).quantize(LAST, context=WIDE)]


DATES = CellPosition("bill.csv", "Date", 1)


def _ms(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * 1000


def _parse_instants(*cells: object, month_first: bool | None = None) -> list[int | None]:
    return parse_instants(pa.array(cells), DATES, DayOrder(month_first)).to_pylist()


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
    assert _parse_instants(text, None)[0] // 1000 == _ms(*when) // 1000


@pytest.mark.parametrize(
    "text", ["soon", "2023-13-01", "13/13/2024", "2/30/2024", "5/1/025", "1/2/2024 13:00 PM", "45000"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    """One line names file, row, column and value."""
    with pytest.raises(SourceError, match=r"bill\.csv, row 2: Date '"):
        _parse_instants("2024-01-01", text)


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
    assert _parse_instants("1/5/25", month_first=False) == [_ms(2025, 5, 1)]


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
    assert _parse_instants(text, month_first=month_first) == [_ms(day.year, day.month, day.day)]
