"""Findings of checks, and what checks look at: a session of the books and readings of their ledger."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from loadfactor.metrics.query.reading import Reading, Readings, Value
from loadfactor.store.sample_files import read
from loadfactor.store.session import Session, empty
from loadfactor.tables.schema import IS_LISTED, NUMBERED

Ask = Callable[[Sequence[str], Sequence[str]], Readings]
"""Answers with the readings of metrics by dimensions, over the whole of the books."""
Grade = Literal["wrong", "missing", "note"]
ROUNDING: Final = 1e-9
SHOWN_NAMES: Final = 3
OF_A_PLACE: Final = (
    *("paid_gpu_hours", "cost", "allocated_gpu_hours", "unattributed_gpu_hours", "unattributed_cost"),
    *("unobserved_gpu_hours", "unobserved_cost"),
)
"""Metrics that checks read of every node and device."""


@dataclass(frozen=True)
class Finding:
    """One thing to know of the books. `wrong`: they do not balance or are damaged; `missing`: not measured or contradictory."""

    grade: Grade
    what: str
    do: str
    coverage: float | None = None  # the share that is covered, where that is what was found
    gpu_hours: float | None = None  # that it is about
    cost: float | None = None  # of these, where a price of them is known


@dataclass(frozen=True)
class Examined:
    """The books that checks look at. `totals` are readings of the whole, by metric; `ask` answers by dimensions."""

    session: Session
    totals: Mapping[str, Reading]
    ask: Ask

    def total(self, metric: str) -> float:
        """The value of a metric over the whole; 0 where it is unknown."""
        value = self.totals[metric].value
        return value if isinstance(value, float) else 0.0

    def amounts(self, hours: str, cost: str) -> dict[str, float | None]:
        """Hours and cost of a finding that is about the whole; None where they are unknown."""
        found = {"gpu_hours": self.totals[hours].value, "cost": self.totals[cost].value}
        return {name: value if isinstance(value, float) else None for name, value in found.items()}

    @cached_property
    def places(self) -> list["Place"]:
        """Readings of every node and device."""
        readings = self.ask(OF_A_PLACE, ("node", "device"))
        columns = [readings.column(name) for name in OF_A_PLACE]
        return [
            Place(node, device, dict(zip(OF_A_PLACE, values, strict=True)))
            for (node, device), *values in zip(readings.keys, *columns, strict=True)
        ]

    @cached_property
    def sampled(self) -> set[str]:
        """Devices with samples, as the files name them: the view of samples works out more than that."""
        files = self.session.paths(self.session.manifest.of("samples"))
        parts = [read(files)] * bool(files) + [part.relation for part in self.session.live_samples]
        parts = parts or [f"({empty('samples')})"]
        sql = " UNION ".join(f"SELECT DISTINCT device_id FROM {part}" for part in parts)
        return {device for (device,) in self.session.raw.execute(sql).fetchall()}

    @cached_property
    def nodes(self) -> set[str]:
        """Names of nodes, whoever says them."""
        tables = ("devices", "allocations", "outages", "node_samples")
        return set().union(*(self._list(table, f"SELECT DISTINCT node FROM {table}") for table in tables))

    @cached_property
    def scheduled_nodes(self) -> set[str]:
        """Nodes that somebody other than labels says jobs to have run on, or that a scheduler lists."""
        self.session.view_table("devices", "devices")
        listed = f"(SELECT * FROM allocations WHERE {IS_LISTED})"
        named = self._list("allocations", f"SELECT DISTINCT node FROM {listed}")
        named |= self._list(
            "allocations",
            f"SELECT DISTINCT d.node FROM {listed} a JOIN devices d USING (device_id)",
        )
        return named | self._list(
            "devices", f"SELECT DISTINCT node FROM devices WHERE starts_with(device_id, node || '{NUMBERED}')"
        )

    def _list(self, table: str, sql: str) -> set[str]:
        self.session.view_table(table, table)
        return {name for (name,) in self.session.raw.execute(sql).fetchall() if name is not None}


@dataclass(frozen=True)
class Place:
    """Readings of a device, or of a node of which no device is known, by metric."""

    node: str | None
    device: str | None
    readings: Mapping[str, Value]

    def get(self, metric: str) -> float | None:
        """A reading; None where it is unknown."""
        value = self.readings[metric]
        return value if isinstance(value, float) else None


def add_places(places: Iterable[Place], hours: str, cost: str) -> tuple[float, float | None]:
    """Hours of some places, and their cost; None where none of it is known."""
    rows = list(places)
    known = [amount for place in rows if (amount := place.get(cost)) is not None]
    return sum(place.get(hours) or 0.0 for place in rows), sum(known) if known else None


def name_some(names: Sequence[str]) -> str:
    """The first of some names.

    >>> name_some(["a", "b"]), name_some(["a", "b", "c", "d"])
    ('a, b', 'a, b, c, …')
    """
    return ", ".join(names[:SHOWN_NAMES]) + (", …" if len(names) > SHOWN_NAMES else "")
