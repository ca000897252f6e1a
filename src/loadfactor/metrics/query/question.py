"""A question: metrics, split by dimensions, in a window, in one cost basis; and the rows of a table that it speaks of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ibis
import pyarrow as pa

from loadfactor.errors import no_such
from loadfactor.ledger.columns import UNKNOWN
from loadfactor.metrics.metric import Metric
from loadfactor.metrics.query.calendar import PERIODS, Window, name_period
from loadfactor.tables import DEFAULT_CURRENCY, DIMENSIONS

Expr = Any
Fetch = Callable[[Expr], pa.Table]
"""Works an Ibis expression out."""
Row = dict[Any, Any]
Key = tuple[Any, ...]
"""The values of the dimensions that a group has."""

OF_A_HOLDER = ("job", "experiment", "user", "team", "project", "purpose")
UNKNOWN_HOLDER = "unknown holder"
"""The group of unattributed time in a split by any of them."""
OF_A_JOB = (*OF_A_HOLDER, "hour", *PERIODS)
OF_A_WAIT = (*OF_A_JOB, "pool")


@dataclass(frozen=True)
class Question:
    """What is asked: metrics, split by dimensions, in a window, in one cost basis."""

    metrics: tuple[Metric, ...]
    by: tuple[str, ...]
    window: Window
    basis: str
    where: tuple[tuple[str, str], ...] = ()
    without_idle: bool = False
    currency: str = DEFAULT_CURRENCY

    @property
    def periods(self) -> tuple[str, ...]:
        """The dimensions of the local calendar that it splits by."""
        return tuple(unit for unit in PERIODS if unit in self.by)


def check_dimensions(by: Sequence[str]) -> tuple[str, ...]:
    """The dimensions, or InputError naming the one that is none."""
    for name in by:
        if name not in DIMENSIONS:
            raise no_such("dimension", name, DIMENSIONS)
    return tuple(dict.fromkeys(by))


def apply_filters(question: Question, rows: Expr, known: Sequence[str] | dict[str, str]) -> Expr:
    """Rows that pass the question's filters; none where they cannot be told apart."""
    for name, value in question.where:
        if name in known:
            rows = rows.filter(rows[DIMENSIONS[name]] == value)
        else:
            rows = rows.limit(0)
    return rows


def name_unknown(question: Question, book: Expr) -> Expr:
    """The ledger with unattributed time under a name of its own in the holder dimensions that the question uses."""
    used = {*question.by, *(name for name, _ in question.where)}
    columns = [DIMENSIONS[name] for name in OF_A_HOLDER if name in used]
    return book.mutate(**{c: ibis.ifelse(book.holder == UNKNOWN, UNKNOWN_HOLDER, book[c]) for c in columns})


def add_calendar(rows: Expr, hour: Expr, at: Expr, question: Question) -> Expr:
    """Rows with the hour and the local day, week and month they lie in, where the question splits by them."""
    if "hour" in question.by:
        rows = rows.mutate(hour=hour)
    if question.periods:
        days = list(question.window.days())
        columns = {unit: [name_period(day, unit) for day, _, _ in days] for unit in question.periods}
        names = ibis.memtable(
            {**columns, "first": [first for _, first, _ in days], "after": [after for _, _, after in days]},
            schema={**dict.fromkeys(columns, "string"), "first": "int64", "after": "int64"},
        )
        rows = rows.mutate(dated_utc=at)
        rows = rows.join(names, [rows.dated_utc >= names.first, rows.dated_utc < names.after]).drop("first", "after")
    return rows
