"""Amounts of bills as exact decimals: texts as written, stored doubles by their shortest text."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadfactor.base.errors import SourceError
from loadfactor.base.units import MS_PER_DAY
from loadfactor.sources.parsing.cells import CellPosition, quote
from loadfactor.tables.columns import EXACT_DECIMALS, EXACT_DIGITS, arrow_type

AMOUNT: Final = arrow_type("exact")
_SUMMAND: Final = pa.decimal128(EXACT_DIGITS - 1, EXACT_DECIMALS)  # Arrow gives a sum one digit more
_FACTOR: Final = pa.decimal256(EXACT_DIGITS - 1, EXACT_DECIMALS)
_LAST: Final = Decimal(1).scaleb(-EXACT_DECIMALS)
_LARGEST: Final = 18  # digits before the point: two digits are left for sums of many
_CELL: Final = pa.decimal128(_LARGEST + EXACT_DECIMALS, EXACT_DECIMALS)
_LIMIT: Final = pa.scalar(Decimal(10) ** _LARGEST)
_EXACTLY: Final = Context(prec=1000, rounding=ROUND_HALF_EVEN, Emin=-(10**6), Emax=10**6)
_SIGN: Final = r"(?:[A-Z]{0,3}[$€£¥₹₩]|[A-Z]{3})"
_WRITTEN: Final = re.compile(
    rf"(?P<open>\()?(?P<minus>[-+])?\s*(?P<before>{_SIGN})?\s*(?P<inner>[-+])?"
    r"(?P<number>[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,6})?)"
    rf"\s*(?P<after>{_SIGN})?(?P<close>\))?"
)
_SIGNS: Final = {"€": ("EUR",), "£": ("GBP",), "¥": ("JPY", "CNY"), "₹": ("INR",), "₩": ("KRW",)}
"""Signs of one or two currencies; a $ is that of many."""
_POINT: Final = r"\.[0-9]{1,2}\s*$|\.[0-9]{4}|,[0-9]{3}[.,]|[$€£¥₹₩]"


@dataclass
class AmountNotes:
    """Findings about the amounts of one file."""

    sign: str = ""  # the currency as amounts carry it: $ or EUR
    doubles: int = 0  # amounts stored as binary floating point
    rounded: int = 0  # amounts with more than 18 decimals
    taken: Decimal = field(default_factory=Decimal)  # what rounding them to 18 took away


def parse_amounts(cells: pa.Array, position: CellPosition, notes: AmountNotes) -> pa.Array:
    """Cells of text, whole numbers, decimals or doubles as exact decimals; null stays null.

    Raises SourceError naming file, row, column and value of what is no amount, or could be two.
    """
    kind = cells.type
    if pa.types.is_floating(kind):
        cells = pc.if_else(pc.is_nan(cells), pa.scalar(None, kind), cells)  # how pandas writes null
        notes.doubles += len(cells) - cells.null_count
        cells = pc.cast(cells, pa.string())
    elif not pa.types.is_string(kind):
        cells = pc.cast(cells, pa.string())
    try:
        return pc.cast(pc.cast(cells, _CELL), AMOUNT)  # exact, or refused
    except pa.ArrowInvalid:
        return _read_unusual(cells, position, notes)


def add_amounts(one: pa.Array, other: pa.Array) -> pa.Array:
    """Their exact sums, row by row."""
    return pc.cast(pc.add(pc.cast(one, _SUMMAND), pc.cast(other, _SUMMAND)), AMOUNT)


def subtract_amounts(one: pa.Array, other: pa.Array) -> pa.Array:
    """Their exact differences, row by row."""
    return add_amounts(one, pc.negate(other))


def multiply_amounts(one: pa.Array, other: pa.Array) -> pa.Array:
    """Their products, row by row, rounded half-even to 18 decimals; null where they are larger than any amount."""
    product = pc.round(pc.multiply(pc.cast(one, _FACTOR), pc.cast(other, _FACTOR)), EXACT_DECIMALS, "half_to_even")
    known = pc.less(pc.abs(product), pc.cast(_LIMIT, product.type))
    return pc.cast(pc.if_else(known, product, pa.scalar(None, product.type)), AMOUNT)


def read_amount(text: str, point_seen: bool = True) -> tuple[Decimal, str]:
    """The amount that a text writes, and its currency sign: "$10,000.00 ", "(1.50)", "-5.2E-9", "12 EUR".

    `point_seen`: this file writes points before decimals, so that 1,234 is 1234. ValueError says what is wrong otherwise.

    >>> read_amount("$10,000.00 "), read_amount("(1,234.5)")
    ((Decimal('10000.00'), '$'), (Decimal('-1234.5'), ''))
    """
    found = _WRITTEN.fullmatch(text.replace("\u2212", "-").strip())
    if found is None or bool(found["open"]) != bool(found["close"]):
        raise ValueError("is not an amount; write it like 1234.56")
    signs = [s for s in (found["minus"], found["inner"]) if s]
    currencies = {s for s in (found["before"], found["after"]) if s}
    if len(signs) + bool(found["open"]) > 1 or len(currencies) > 1:
        raise ValueError("is not an amount; write it like -1234.56")
    number, sign = found["number"], currencies.pop() if currencies else ""
    if "," in number:
        if number.startswith("0"):
            raise ValueError("has a comma before its decimals; write a point")
        if number.count(",") == 1 and "." not in number and not sign and not point_seen:
            raise ValueError("could be thousands or decimals; write it without the comma, or with a point")
    amount = Decimal(number.replace(",", ""))
    if amount and amount.adjusted() >= _LARGEST:
        raise ValueError(f"is larger than any bill; an amount has at most {_LARGEST} digits before its point")
    return (amount.copy_negate() if found["open"] or "-" in signs else amount), sign


def _read_unusual(cells: pa.Array, position: CellPosition, notes: AmountNotes) -> pa.Array:
    """Cells among which some are not plain: each distinct one by `read_amount`."""
    encoded = cells.dictionary_encode()
    point_seen = pc.any(pc.match_substring_regex(encoded.dictionary, _POINT)).as_py()
    times = np.bincount(encoded.indices.drop_null(), minlength=len(encoded.dictionary)).tolist()
    amounts: list[Decimal | None] = []
    for number, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            amount, sign = (None, "") if not text.strip() else read_amount(text, point_seen)
            if sign and notes.sign not in ("", sign):
                raise ValueError(f"is in {sign} where amounts above are in {notes.sign}; give one file a currency")
        except ValueError as error:
            index = pc.index(encoded.indices, pa.scalar(number, encoded.indices.type)).as_py()
            raise position.refuse(index, text, str(error)) from None
        notes.sign = notes.sign or sign
        amounts.append(amount if amount is None else _round(amount, times[number], notes))
    return pa.array(amounts, AMOUNT).take(encoded.indices)


def _round(amount: Decimal, times: int, notes: AmountNotes) -> Decimal:
    rounded = amount.quantize(_LAST, context=_EXACTLY)
    if rounded != amount:
        notes.rounded += times
        notes.taken = _EXACTLY.add(notes.taken, _EXACTLY.multiply(_EXACTLY.subtract(amount, rounded), Decimal(times)))
    return rounded


def check_sign(label: str, sign: str, currency: str) -> None:
    """SourceError when amounts carry the sign of another currency than the file names."""
    named = _SIGNS.get(sign, (sign,) if sign.isalpha() else ())
    others = {code for codes in _SIGNS.values() for code in codes} if sign.endswith("$") else set()
    if (named and currency not in named) or currency in others:
        raise SourceError(f"{label}: amounts are written in {sign} and the currency is {currency}; correct one of them")


_UTC_MS: Final = pa.timestamp("ms", "UTC")
_LOCAL_MS: Final = pa.timestamp("ms")
SLASHED: Final = r"^\s*[0-9]{1,2}/[0-9]{1,2}/[0-9]"
_SLASHED: Final = re.compile(
    r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4}|[0-9]{2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?(?: ?([AaPp])[Mm])?)?Z?"
)
_COMPACT: Final = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})?")
_ZONE_WORD: Final = re.compile(r" ?(?:UTC|GMT)$")
_LAST_MONTH: Final = 12
_HALF_DAY: Final = 12
_CENTURY: Final = 2000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class DayOrder:
    """Whether 5/1/25 is a day in May (month first) or in January, in one file; None: not known yet."""

    month_first: bool | None = None
    evidence: str = ""

    def learn(self, label: str, days: Iterable[str], begins_month: bool = False) -> None:
        """Learn from days as written; `begins_month`: they are starts of billing periods, which begin with a month.

        Raises SourceError when one day has its month first and another one its day.
        """
        for day in days:
            found = _SLASHED.fullmatch(day.strip())
            if not found:
                continue
            one, two = int(found[1]), int(found[2])
            order = None
            if max(one, two) > _LAST_MONTH:
                order = two > _LAST_MONTH
            elif begins_month and one != two and 1 in (one, two):
                order = two == 1
            if order is None:
                continue
            if self.month_first is None:
                self.month_first, self.evidence = order, day
            elif self.month_first != order and max(one, two) > _LAST_MONTH:
                raise SourceError(
                    f"{label} mixes days: {quote(self.evidence)} has its {'month' if self.month_first else 'day'} first, "
                    f"{quote(day)} its {'month' if order else 'day'}; write 2025-05-01"
                )


def is_ambiguous(day: str) -> bool:
    """True for a day with slashes that is another day when day and month change places."""
    found = _SLASHED.fullmatch(day.strip())
    return found is not None and int(found[1]) != int(found[2]) and max(int(found[1]), int(found[2])) <= _LAST_MONTH


def parse_instants(cells: pa.Array, position: CellPosition, order: DayOrder) -> pa.Array:
    """Cells as int64 milliseconds since 1970 UTC; null stays null. Finer than a millisecond is cut off.

    Raises SourceError naming file, row, column and value of what is no time.
    """
    kind = cells.type
    if pa.types.is_timestamp(kind):
        return pc.cast(pc.cast(cells, pa.timestamp("ms", kind.tz), safe=False), pa.int64())
    if pa.types.is_date(kind):
        return pc.cast(pc.cast(cells, _LOCAL_MS), pa.int64())
    text = pc.cast(cells, pa.string())
    for form in (_UTC_MS, _LOCAL_MS):
        try:
            return pc.cast(pc.cast(text, form), pa.int64())
        except pa.ArrowInvalid:
            continue
    encoded = text.dictionary_encode()
    instants: list[int | None] = []
    for number, value in enumerate(encoded.dictionary.to_pylist()):
        try:
            instants.append(_read(value.strip(), order) if value.strip() else None)
        except ValueError:
            index = pc.index(encoded.indices, pa.scalar(number, encoded.indices.type)).as_py()
            raise position.refuse(index, value, "is not a time; write 2026-05-01T12:00:00Z") from None
    return pa.array(instants, pa.int64()).take(encoded.indices)


def begin_months(instants: pa.Array, later: int = 0) -> pa.Array:
    """The start of each instant's month in UTC, or of a month so many later; int64 milliseconds."""
    known = instants.is_valid().to_numpy(zero_copy_only=False)
    ms = instants.fill_null(0).to_numpy().astype("datetime64[ms]")
    months = ms.astype("datetime64[M]") + np.timedelta64(later, "M")
    return pa.array(months.astype("datetime64[ms]").astype(np.int64), mask=~known)


def end_days(instants: pa.Array) -> pa.Array:
    """The midnight after the day of each instant; int64 milliseconds."""
    return pc.multiply(pc.add(pc.divide(instants, MS_PER_DAY), 1), MS_PER_DAY)  # whole days, as bills are of after 1970


def list_slashed(cells: pa.Array) -> Sequence[str]:
    """The distinct days with slashes among these cells of text."""
    distinct = pc.unique(cells)
    found: list[str] = distinct.filter(pc.fill_null(pc.match_substring_regex(distinct, SLASHED), False)).to_pylist()
    return found


def _read(text: str, order: DayOrder) -> int:
    if found := _SLASHED.fullmatch(text):
        one, two, year = int(found[1]), int(found[2]), int(found[3])
        month, day = (one, two) if order.month_first is not False else (two, one)
        hour = int(found[4] or 0)
        if found[7]:
            if not 1 <= hour <= _HALF_DAY:
                raise ValueError
            hour = hour % _HALF_DAY + (_HALF_DAY if found[7] in "Pp" else 0)
        year += _CENTURY if len(found[3]) == len("25") else 0
        when = datetime(year, month, day, hour, int(found[5] or 0), int(found[6] or 0), tzinfo=UTC)
    elif found := _COMPACT.fullmatch(text):
        when = datetime(int(found[1]), int(found[2]), int(found[3] or 1), tzinfo=UTC)
    else:
        when = datetime.fromisoformat(_ZONE_WORD.sub("", text))
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
