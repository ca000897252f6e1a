"""What comes back? Readings: a value with its unit, of whom, of when, how much of it was known, and what it stands on."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, overload

import numpy as np
import pyarrow as pa

from loadfactor.errors import no_such
from loadfactor.metrics.metric import Metric, Sum

Value = float | list[float] | None


class Reading(NamedTuple):
    """One answer. `by` says of whom, [start, end) of when; `coverage` how much of it was known; `basis` what it stands on."""

    metric: str
    unit: str
    value: Value
    by: dict[str, str | None]
    start: datetime
    end: datetime
    coverage: float | None
    basis: str | None

    def as_json(self) -> dict[str, Any]:
        """The reading as plain JSON values; times are ISO 8601 in UTC."""
        return {
            "metric": self.metric,
            "unit": self.unit,
            "value": self.value,
            "by": self.by,
            "from": iso(self.start),
            "to": iso(self.end),
            "coverage": self.coverage,
            "basis": self.basis,
        }


class Column(NamedTuple):
    """What one metric says of every group: sequences of the same length."""

    values: Sequence[Value]
    coverage: Sequence[float | None]
    basis: Sequence[str | None]


class Groups(NamedTuple):
    """Of whom and of when, group by group: the values of the dimensions asked for, and a stretch of time."""

    keys: Sequence[tuple[str | None, ...]]
    starts: Sequence[datetime]
    ends: Sequence[datetime]


class Readings(Sequence[Reading]):
    """The answer to a question: for each group, in order, one reading a metric. Large ones are quickest `to_arrow`."""

    def __init__(self, metrics: Sequence[Metric], by: Sequence[str], groups: Groups, columns: Sequence[Column]) -> None:
        self._metrics, self._by, self._groups, self._columns = metrics, by, groups, columns

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
        metric, column = self._metrics[number], self._columns[number]
        return Reading(
            metric.name,
            metric.unit,
            column.values[group],
            dict(zip(self._by, self._groups.keys[group], strict=True)),
            self._groups.starts[group],
            self._groups.ends[group],
            column.coverage[group],
            column.basis[group],
        )

    def __iter__(self) -> Iterator[Reading]:
        for group, (key, start, end) in enumerate(zip(*self._groups, strict=True)):
            for metric, column in zip(self._metrics, self._columns, strict=True):
                by = dict(zip(self._by, key, strict=True))
                value, coverage, basis = column.values[group], column.coverage[group], column.basis[group]
                yield Reading(metric.name, metric.unit, value, by, start, end, coverage, basis)

    def arrange(self, name: str = "", descending: bool = False, limit: int | None = None) -> "Readings":
        """The groups in the order of a metric or dimension (as they are, where none is named), at most `limit` of them.

        What is not known stands last. Raises InputError for a name that is not among them.
        """
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
            order = sorted((i for i in order if values[i] is not None), key=lambda i: values[i], reverse=descending)
            order += unknown
        elif descending:
            order.reverse()
        order = order[:limit]
        groups = Groups(*(_pick(part, order) for part in self._groups))
        columns = [Column(*(_pick(part, order) for part in column)) for column in self._columns]
        return Readings(self._metrics, self._by, groups, columns)

    def to_arrow(self) -> pa.Table:
        """A row a reading, a column a dimension; `from` and `to` are instants, unknown values null.

        A metric that is a list of values (the histogram) has them in `values`, and no `value`.
        """
        groups, metrics = len(self._groups.keys), len(self._metrics)
        of_group, of_metric = np.repeat(np.arange(groups), metrics), np.tile(np.arange(metrics), groups)
        one_after_another = pa.array(of_metric * groups + of_group)

        def of_metrics(columns: Iterable[Sequence[object]], kind: pa.DataType) -> pa.Array:
            return pa.concat_arrays([pa.array(c, kind) for c in columns]).take(one_after_another)

        def of_groups(column: Sequence[object], kind: pa.DataType) -> pa.Array:
            return pa.array(column, kind).take(pa.array(of_group))

        lists = [isinstance(m.kind, Sum) and m.kind.each for m in self._metrics]  # whatever is known of them
        none = [None] * groups
        numbers = (none if many else c.values for c, many in zip(self._columns, lists, strict=True))
        vectors = (c.values if many else none for c, many in zip(self._columns, lists, strict=True))
        instants = pa.timestamp("ms", "UTC")
        return pa.table(
            {
                "metric": pa.array([m.name for m in self._metrics], pa.string()).take(pa.array(of_metric)),
                "unit": pa.array([m.unit for m in self._metrics], pa.string()).take(pa.array(of_metric)),
                **{
                    name: of_groups([key[place] for key in self._groups.keys], pa.string())
                    for place, name in enumerate(self._by)
                },
                "from": of_groups(self._groups.starts, instants),
                "to": of_groups(self._groups.ends, instants),
                "value": of_metrics(numbers, pa.float64()),
                **({"values": of_metrics(vectors, pa.list_(pa.float64()))} if any(lists) else {}),
                "coverage": of_metrics((c.coverage for c in self._columns), pa.float64()),
                "basis": of_metrics((c.basis for c in self._columns), pa.string()),
            }
        )

    def to_pandas(self) -> Any:
        """As a pandas data frame, alike."""
        return self.to_arrow().to_pandas()


def _pick(values: Sequence[Any], order: Sequence[int]) -> Sequence[Any]:
    return [values[i] for i in order]


@lru_cache(maxsize=4096)  # many readings speak of the same time
def iso(at: datetime) -> str:
    """An instant in UTC, without milliseconds where there are none: 2026-11-21T08:00:00Z."""
    text = at.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00").removesuffix(".000") + "Z"
