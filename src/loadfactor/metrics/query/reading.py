"""The answer to a question: readings, each a value with its unit and currency, of whom, of when, its coverage and its bases."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from loadfactor.base.errors import no_such
from loadfactor.metrics.metric import Metric, Sum
from loadfactor.tables.schema import DEFAULT_CURRENCY

if TYPE_CHECKING:  # Arrow takes longer to import than most answers
    import pyarrow as pa

Value = float | list[float] | None
ORDERED_DIGITS = 12
"""Digits of a value that its place in an order depends on; the sum of the same rows in another order differs in later ones."""
SHOWN = 60
"""Readings or rows that a notebook shows."""


class Reading(NamedTuple):
    """One answer. `by` says of whom, [start, end) of when; `coverage` how much of what it needs was known.

    `currency` is that of an amount of money, else None. `activity_basis` names the activity signals it rests on, of work `rate`
    where amounts are an estimate, `cost_basis` the kind of prices; None where it rests on none.
    """

    metric: str
    unit: str
    value: Value
    by: dict[str, str | None]
    currency: str | None
    start: datetime
    end: datetime
    coverage: float | None
    activity_basis: str | None
    cost_basis: str | None

    def __repr__(self) -> str:
        """Metric, value and unit, of whom: utilization = 0.53 share, team=vision."""
        value = (
            "unknown" if self.value is None else f"{self.value:.6g}" if isinstance(self.value, float) else self.value
        )
        of = "".join(f", {name}={who}" for name, who in self.by.items())
        known = "" if self.coverage in (None, 1) else f", coverage {self.coverage:.4g}"
        return f"<{self.metric} = {value} {self.unit}{of}{known}>"

    def as_json(self) -> dict[str, Any]:
        """The reading as plain JSON values; times are ISO 8601 in UTC."""
        return {
            "metric": self.metric,
            "unit": self.unit,
            "value": self.value,
            "by": self.by,
            "currency": self.currency,
            "from": iso(self.start),
            "to": iso(self.end),
            "coverage": self.coverage,
            "activity_basis": self.activity_basis,
            "cost_basis": self.cost_basis,
        }


class MetricColumn(NamedTuple):
    """The values of one metric, by group: sequences of the same length."""

    values: Sequence[Value]
    coverage: Sequence[float | None]
    activity_basis: Sequence[str | None]
    cost_basis: str | None = None


class Groups(NamedTuple):
    """Of whom and of when, group by group: the values of the requested dimensions, and an interval."""

    keys: Sequence[tuple[str | None, ...]]
    starts: Sequence[datetime]
    ends: Sequence[datetime]


class Readings(Sequence[Reading]):
    """The answer to a question: for each group, in order, one reading a metric. Large ones are quickest `to_arrow`."""

    def __init__(
        self,
        metrics: Sequence[Metric],
        by: Sequence[str],
        groups: Groups,
        columns: Sequence[MetricColumn],
        currency: str = DEFAULT_CURRENCY,
    ) -> None:
        self._metrics, self._by, self._groups, self._columns = metrics, by, groups, columns
        self._currency = currency
        self._currencies = [currency if m.is_money else None for m in metrics]
        self._units = [m.unit_in(currency) for m in metrics]

    def __len__(self) -> int:
        return len(self._groups.keys) * len(self._metrics)

    @overload
    def __getitem__(self, at: int) -> Reading: ...
    @overload
    def __getitem__(self, at: slice) -> list[Reading]: ...
    def __getitem__(self, at: int | slice) -> Reading | list[Reading]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        group, number = divmod(range(len(self))[at], len(self._metrics))
        return self._reading(group, number)

    def __iter__(self) -> Iterator[Reading]:
        for group in range(len(self._groups.keys)):
            for number in range(len(self._metrics)):
                yield self._reading(group, number)

    def _reading(self, group: int, number: int) -> Reading:
        column = self._columns[number]
        return Reading(
            self._metrics[number].name,
            self._units[number],
            column.values[group],
            dict(zip(self._by, self._groups.keys[group], strict=True)),
            self._currencies[number],
            self._groups.starts[group],
            self._groups.ends[group],
            column.coverage[group],
            column.activity_basis[group],
            column.cost_basis,
        )

    def __repr__(self) -> str:
        """The first readings, and how many there are."""
        shown = "\n".join(map(repr, self[:SHOWN]))
        return shown + (f"\n… {len(self):,} readings" if len(self) > SHOWN else "")

    def _repr_html_(self) -> str:
        """The wide frame, as a notebook shows it."""
        return str(self.to_wide().to_html(index=False, na_rep="unknown", max_rows=SHOWN))

    @property
    def metrics(self) -> Sequence[str]:
        """The names of its metrics."""
        return [metric.name for metric in self._metrics]

    @property
    def by(self) -> Sequence[str]:
        """The requested dimensions."""
        return self._by

    @property
    def keys(self) -> Sequence[tuple[str | None, ...]]:
        """The requested dimensions of each group."""
        return self._groups.keys

    def column(self, metric: str) -> Sequence[Value]:
        """The values of a metric, one a group."""
        return self._columns[[m.name for m in self._metrics].index(metric)].values

    def arrange(self, name: str = "", descending: bool = False, limit: int | None = None) -> "Readings":
        """The groups in the order of a metric or dimension (as they are, where none is named), at most `limit` of them.

        What is not known stands last. Raises InputError for a name that is not among them.
        """
        return self.pick(self.order(name, descending)[:limit])

    def order(self, name: str = "", descending: bool = False) -> list[int]:
        """The numbers of the groups in that order. Raises as `arrange`."""
        order = list(range(len(self._groups.keys)))
        if name:
            names = [metric.name for metric in self._metrics]
            if name in self._by:
                values: Sequence[Any] = [key[list(self._by).index(name)] for key in self._groups.keys]
            elif name in names:
                values = self._columns[names.index(name)].values
            else:
                raise no_such("metric or dimension shown", name, [*names, *self._by])
            unknown = [i for i in order if values[i] is None]
            known = [i for i in order if values[i] is not None]  # in the order of their names, which equal ones keep
            order = sorted(known, key=lambda i: rank(values[i]), reverse=descending) + unknown
        elif descending:
            order.reverse()
        return order

    def of(self, metrics: Sequence[str]) -> "Readings":
        """Those of some of the metrics, in the requested order."""
        kept = [number for number, metric in enumerate(self._metrics) if metric.name in metrics]
        metrics_kept, columns = (_pick(part, kept) for part in (self._metrics, self._columns))
        return Readings(metrics_kept, self._by, self._groups, columns, self._currency)

    def pick(self, order: Sequence[int]) -> "Readings":
        """Some of the groups, by their numbers, in this order."""
        groups = Groups(*(_pick(part, order) for part in self._groups))
        columns = [
            MetricColumn(_pick(c.values, order), _pick(c.coverage, order), _pick(c.activity_basis, order), c.cost_basis)
            for c in self._columns
        ]
        return Readings(self._metrics, self._by, groups, columns, self._currency)

    def divide(self, name: str) -> "dict[str | None, Readings]":
        """The readings of each value of a dimension, without that dimension."""
        place = list(self._by).index(name)
        numbers: dict[str | None, list[int]] = {}
        for number, key in enumerate(self._groups.keys):
            numbers.setdefault(key[place], []).append(number)
        by = [other for other in self._by if other != name]
        found = {}
        for value, order in numbers.items():
            part = self.pick(order)
            keys = [key[:place] + key[place + 1 :] for key in part._groups.keys]
            found[value] = Readings(self._metrics, by, part._groups._replace(keys=keys), part._columns, self._currency)
        return found

    def to_arrow(self) -> "pa.Table":
        """A row a reading, a column a dimension; `from` and `to` are instants, unknown values null.

        A metric that is a list of values (the histogram) has them in `values`, and no `value`.
        """
        import numpy as np
        import pyarrow as pa

        groups, metrics = len(self._groups.keys), len(self._metrics)
        of_group, of_metric = np.repeat(np.arange(groups), metrics), np.tile(np.arange(metrics), groups)
        one_after_another = pa.array(of_metric * groups + of_group)

        def of_metrics(columns: Iterable[Sequence[object]], kind: "pa.DataType") -> "pa.Array":
            return pa.concat_arrays([pa.array(c, kind) for c in columns]).take(one_after_another)

        def by_metric(values: Sequence[str | None]) -> "pa.Array":
            return pa.array(values, pa.string()).take(pa.array(of_metric))

        def of_groups(column: Sequence[object], kind: "pa.DataType") -> "pa.Array":
            return pa.array(column, kind).take(pa.array(of_group))

        lists = [isinstance(m.kind, Sum) and m.kind.each for m in self._metrics]  # whatever is known of them
        none = [None] * groups
        numbers = (none if many else c.values for c, many in zip(self._columns, lists, strict=True))
        vectors = (c.values if many else none for c, many in zip(self._columns, lists, strict=True))
        instants = pa.timestamp("ms", "UTC")
        return pa.table(
            {
                "metric": by_metric([m.name for m in self._metrics]),
                "unit": by_metric(self._units),
                **{
                    name: of_groups([key[place] for key in self._groups.keys], pa.string())
                    for place, name in enumerate(self._by)
                },
                "currency": by_metric(self._currencies),
                "from": of_groups(self._groups.starts, instants),
                "to": of_groups(self._groups.ends, instants),
                "value": of_metrics(numbers, pa.float64()),
                **({"values": of_metrics(vectors, pa.list_(pa.float64()))} if any(lists) else {}),
                "coverage": of_metrics((c.coverage for c in self._columns), pa.float64()),
                "activity_basis": of_metrics((c.activity_basis for c in self._columns), pa.string()),
                "cost_basis": by_metric([c.cost_basis for c in self._columns]),
            }
        )

    def to_pandas(self) -> Any:
        """As a pandas data frame, alike."""
        return self.to_arrow().to_pandas()

    def to_wide(self) -> Any:
        """A pandas data frame with a row a group: a column a dimension, `from`, `to`, and a column a metric."""
        import pandas as pd

        groups = self._groups
        of_groups = {name: [key[place] for key in groups.keys] for place, name in enumerate(self._by)}
        of_time = {"from": pd.to_datetime(groups.starts, utc=True), "to": pd.to_datetime(groups.ends, utc=True)}
        values = {m.name: list(c.values) for m, c in zip(self._metrics, self._columns, strict=True)}
        return pd.DataFrame({**of_groups, **of_time, **values})


def rank(value: Any) -> Any:
    """The key of a value in order: amounts that differ by no more than rounding are equal, so that names decide.

    >>> rank(0.1 + 0.2) == rank(0.3), rank("vision"), rank(None)
    (True, 'vision', 0.0)
    """
    return float(f"{value:.{ORDERED_DIGITS}g}") if isinstance(value, float) else 0.0 if value is None else value


def _pick(values: Sequence[Any], order: Sequence[int]) -> Sequence[Any]:
    return [values[i] for i in order]


@lru_cache(maxsize=4096)  # many readings speak of the same time
def iso(at: datetime) -> str:
    """An instant in UTC, without milliseconds where there are none: 2026-11-21T08:00:00Z."""
    text = at.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00").removesuffix(".000") + "Z"
