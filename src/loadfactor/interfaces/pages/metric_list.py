"""The page of `loadfactor metrics`: every metric with its unit and meaning, from the declarations themselves."""

from dataclasses import dataclass

from loadfactor.interfaces.document import DataTable, Document, Section, TableColumn
from loadfactor.metrics import METRICS, Metric

COLUMNS = (TableColumn("metric"), TableColumn("unit"), TableColumn("meaning"))


@dataclass(frozen=True)
class MetricEntry:
    """What a metric says of itself. `better` is the direction: higher, lower or neither."""

    name: str
    unit: str
    title: str
    meaning: str
    better: str
    topic: str


def build_document() -> Document:
    """The metrics by topic, and as data one entry each."""
    topics = dict.fromkeys(m.topic for m in METRICS)
    sections = tuple(Section(tables=(_table(topic),)) for topic in topics)
    return Document(
        f"{len(METRICS)} metrics; any cost_per_<unit> of a unit in your progress table is a metric, too.",
        sections,
        data=list_entries(),
    )


def list_entries() -> tuple[MetricEntry, ...]:
    """An entry for each metric."""
    return tuple(MetricEntry(m.name, m.unit, m.title, m.meaning, m.better, m.topic) for m in METRICS)


def _table(topic: str) -> DataTable:
    rows = tuple((m.name, m.unit, _meaning(m)) for m in METRICS if m.topic == topic)
    return DataTable(COLUMNS, rows, title=topic)


def _meaning(metric: Metric) -> str:
    return metric.meaning if metric.better == "neither" else f"{metric.meaning} {metric.better.capitalize()} is better."
