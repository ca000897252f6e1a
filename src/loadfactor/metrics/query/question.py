"""A question: metrics, split by dimensions, in a window, in one cost basis; and the rows of a table that it speaks of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from loadfactor.base.errors import no_such
from loadfactor.base.units import MS_PER_HOUR
from loadfactor.ledger.columns import ACTIVITIES, HELD
from loadfactor.metrics.metric import OF_GRID, OF_WORK, Made, Metric, Part, Quantile, Speed
from loadfactor.metrics.query.calendar import PERIODS, Window, name_period
from loadfactor.tables.schema import DEFAULT_CURRENCY, DIMENSIONS

Columns = Mapping[str, NDArray[Any]]
"""Columns by name, masked where null; all of the same length."""
Fetch = Callable[[str], Columns]
"""Works the query of this name out (`queries.list_queries`)."""
Row = dict[Any, Any]
Key = tuple[Any, ...]
"""The values of the dimensions that a group has."""

ACTIVE = tuple(Part((f"observed_{kind.basis}_s",)) for kind in ACTIVITIES)
"""The seconds that each activity signal speaks for, best first: the basis of a number that rests on activity."""
OF_A_HOLDER = ("job", "experiment", "user", "team", "project", "purpose")
UNKNOWN_HOLDER = "unknown holder"
"""The group of unattributed time in a split by any of them."""
TOLD_BY = "told by"
"""Among the queries of a question: not SQL, but the names of the kept sums that tell all it reads of the ledger."""
TENANT = "tenant"
"""Who used what a job served, as gateways call it: a dimension of rows that are divided."""
OF_A_JOB = (*OF_A_HOLDER, "hour", *PERIODS)
OF_A_WAIT = (*OF_A_JOB, "pool")


@dataclass(frozen=True)
class Question:
    """A question: metrics, split by dimensions, in a window, in one cost basis.

    `most`: only so many groups, those with most of its first metric, a sum, and some more that are as good as equal.
    """

    metrics: tuple[Metric, ...]
    by: tuple[str, ...]
    window: Window
    basis: str
    where: tuple[tuple[str, str], ...] = ()
    without_idle: bool = False
    currency: str = DEFAULT_CURRENCY
    knows_grid: bool = False
    """Whether settings say what energy is worked out of (`query.grid`); else what follows from them is unknown."""
    most: int | None = None
    divides: Literal["", "shown", "charged"] = ""
    """Whether rows of jobs that serve are divided by who used them, and whether team, user and project are those of who did."""

    @property
    def reads_grid(self) -> bool:
        """True where it reads what the settings say of energy."""
        return self.knows_grid and any(column in OF_GRID for part in self.parts for column in part.columns)

    @property
    def periods(self) -> tuple[str, ...]:
        """The dimensions of the local calendar that it splits by."""
        return tuple(unit for unit in PERIODS if unit in self.by)

    @property
    def shape(self) -> str:
        """All that its queries depend on: the same for another window, or another value of a filter."""
        filters = tuple(name for name, _ in self.where)
        limit = () if self.most is None else (self.most,)
        return repr(
            (self.metrics, self.by, self.basis, filters, self.without_idle, self.reads_grid, self.divides, *limit)
        )

    @property
    def keys(self) -> list[str]:
        """The columns that it groups by."""
        return [DIMENSIONS[name] for name in self.by]

    @property
    def parts(self) -> list[Part]:
        """The sums over the ledger that its metrics are made of, and those that say what activity they rest on, if any does."""
        parts = [p for m in self.metrics for p in m.parts]
        if any(isinstance(m.kind, Made | Speed) for m in self.metrics):
            parts.append(self.held)
        if any(part.rests_on_activity for part in parts):
            parts += ACTIVE
        return list(dict.fromkeys(parts))

    @property
    def held(self) -> Part:
        """The held seconds whose work it reads: those of busy GPUs alone where idle time is left out."""
        return Part(("gpu_s",), ("busy",) if self.without_idle else HELD)

    @property
    def peaks(self) -> list[str]:
        """The columns of the ledger of which its metrics are the highest value."""
        kinds = [m.kind for m in self.metrics if isinstance(m.kind, Quantile)]
        return list(dict.fromkeys(kind.of for kind in kinds if kind.of != "wait_s"))

    @property
    def units(self) -> list[str]:
        """The units of work it reads; none where it splits by what work does not have."""
        if any(name not in (*OF_A_JOB, TENANT) for name in self.by):
            return []
        return list(dict.fromkeys(unit for m in self.metrics if isinstance(m.kind, OF_WORK) for unit in m.units))

    @property
    def waits(self) -> bool:
        """True where it reads waits, and splits by nothing that they do not have."""
        return any(m.topic == "queue" for m in self.metrics) and all(name in OF_A_WAIT for name in self.by)


def check_dimensions(by: Sequence[str]) -> tuple[str, ...]:
    """The dimensions, or InputError naming the one that is none."""
    for name in by:
        if name not in DIMENSIONS:
            raise no_such("dimension", name, DIMENSIONS)
    return tuple(dict.fromkeys(by))


def list_rows(columns: Columns) -> Iterator[Row]:
    """The rows of some columns, None where null."""
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield dict(zip(columns, values, strict=True))


def list_inputs(question: Question) -> dict[str, dict[str, list[Any]]]:
    """The columns of the small tables that its queries read by name besides those of the books: limits and filters, the calendar.

    So the queries of two questions of one shape are the same text.
    """
    window = question.window
    limits: dict[str, list[Any]] = {"start_ms": [window.start_ms], "end_ms": [window.end_ms]}
    inputs = {"asked": limits | {f"where_{name}": [value] for name, value in question.where}}
    if question.periods:
        inputs["calendar"] = list_calendar(window, question.periods)
    if "hour" in question.by or question.periods:
        starts = {window.start_ms - window.start_ms % MS_PER_HOUR}
        starts |= set(range(min(starts), window.end_ms, MS_PER_HOUR)) if "hour" in question.by else set()
        ordered = sorted(starts.union(inputs["calendar"]["first"] if question.periods else ()))
        ends = [*ordered[1:], max(window.end_ms, ordered[-1] + 1)]
        inputs["buckets"] = {"first": ordered, "after": ends}
    return inputs


def list_calendar(window: Window, periods: Sequence[str]) -> dict[str, list[Any]]:
    """The local days of a window: their first instants, the first after them, and the periods they lie in."""
    days = list(window.days())
    columns = {unit: [name_period(day, unit) for day, _, _ in days] for unit in periods}
    return columns | {"first": [first for _, first, _ in days], "after": [after for _, _, after in days]}
