"""Tables whose columns stand beside what fills their cells: `table` builds a DataTable of items and columns.

table(
    plan.levers,
    col("lever", "name"),
    col("saved", "saved_cost", "money"),
    col("of all", lambda lever: lever.saved_cost / plan.cost, "percent"),
    currency=plan.currency,
    note="Each alone.",
)
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from loadfactor.interfaces.document import Cell, DataTable, Style, TableColumn


@dataclass(frozen=True)
class FilledColumn:
    """A column and how its cell is read from an item; without a reader an item is a row, and has the cell at the column's index."""

    title: str
    read: Callable[[Any], Cell] | None
    style: Style
    digits: int
    hint: str = ""
    facet: str = ""


def col(
    title: str,
    read: str | Callable[[Any], Cell] | None = None,
    style: Style = "text",
    digits: int = 3,
    hint: str = "",
    facet: str = "",
) -> FilledColumn:
    """A column of `table`: `read` is the name of an attribute of each item (dots go deeper), or a function of the item."""
    return FilledColumn(title, attrgetter(read) if isinstance(read, str) else read, style, digits, hint, facet)


def cols(
    keys: Iterable[str] | Mapping[str, str],
    read: Callable[[Any, str], Cell],
    style: Style = "text",
    digits: int = 3,
) -> list[FilledColumn]:
    """Columns of `table` that are read alike: `read` gives the cell of an item for a key; a mapping has a title for each key."""
    titles = keys if isinstance(keys, Mapping) else {key: key for key in keys}

    def reader(key: str) -> Callable[[Any], Cell]:
        return lambda item: read(item, key)

    return [FilledColumn(title, reader(key), style, digits) for key, title in titles.items()]


def table(
    items: Iterable[Any], *columns: FilledColumn | str, title: str = "", note: str = "", currency: str = "USD"
) -> DataTable:
    """One row for each item, one cell for each column; a name alone is a column of text; `currency` is that of all money.

    >>> costs = table([("own", 3.0), ("rent", None)], "plan", col("cost", style="money"), col("key", lambda row: row[0][0]))
    >>> costs.text_rows()
    [['own', '$3.00', 'o'], ['rent', '–', 'r']]
    """
    filled = [col(c) if isinstance(c, str) else c for c in columns]
    return DataTable(
        [TableColumn(c.title, c.style, currency, c.digits, c.hint, c.facet) for c in filled],
        [tuple(item[i] if c.read is None else c.read(item) for i, c in enumerate(filled)) for item in items],
        title,
        note,
    )
