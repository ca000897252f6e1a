"""Statements of every month of the books as rows, a line of a statement each: they sum to what each team and pool is charged."""

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from loadfactor.tables.charges import COSTS

if TYPE_CHECKING:
    import pyarrow as pa

    from loadfactor.books.books import Books

TEXTS: Final = ("month", "team", "pool", "closing", "currency", "cost_source", "basis", "line", "method")
DIGITS: Final = 9
"""Digits behind the point of amounts and hours: more than any currency has."""


def list_statement_rows(books: "Books") -> "pa.Table":
    """A row a line: month, team or pool, closing, the line, its GPU-hours, and an exact decimal a cost column."""
    import pyarrow as pa

    amount = pa.decimal128(38, DIGITS)
    kinds = {**dict.fromkeys(TEXTS, pa.string()), **dict.fromkeys(("is_share", "gpu_hours", *COSTS), amount)}
    kinds["is_share"] = pa.bool_()
    return pa.Table.from_pylist(list(_list_lines(books)), schema=pa.schema(kinds))


def _list_lines(books: "Books") -> Iterator[dict[str, Any]]:
    with books.snapshot() as snapshot:
        for month in _list_months(books):
            for found in snapshot.read_statements(month):
                of_all = {name: getattr(found, name) for name in TEXTS if hasattr(found, name)}
                for line in found.lines:
                    costs = {cost: _round(line.amounts.get(cost)) for cost in COSTS}
                    of_line = {"line": line.name, "method": line.method, "is_share": line.is_share}
                    yield {**of_all, **of_line, "gpu_hours": _round(line.hours), **costs}


def _list_months(books: "Books") -> list[str]:
    """The UTC months that the books know of: 2026-10."""
    start, end = books.span
    return [
        f"{number // 12:04d}-{number % 12 + 1:02d}"
        for number in range(start.year * 12 + start.month - 1, end.year * 12 + end.month)
    ]


def _round(amount: Decimal | None) -> Decimal | None:
    return None if amount is None else round(amount, DIGITS)
