"""What should somebody read who pays for the fleet? Sections of sentences, pictures and tables, the same in every format.

`sections.SECTIONS` lists them in reading order; `compile_report` asks the books, and `html`, `markdown`, `terminal` and
`as_json` show what came back. Every number is a reading of a metric asked for by name; nothing is worked out here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from loadfactor.faces.answer import Table
from loadfactor.faces.charts import Chart
from loadfactor.metrics.query.reading import Reading


@dataclass(frozen=True)
class Tile:
    """One number a reader should see first, with a few words on what it is and how much of it is known."""

    title: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Histogram:
    """How the observed time of one GPU is spread over the activity scale, 0 on the left."""

    name: str
    bins: Sequence[float]
    note: str


@dataclass(frozen=True)
class Section:
    """One part of the report. `lead` is what a hurried reader takes away; `commands` are things to type, each with why."""

    name: str
    title: str
    lead: str = ""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    histograms: Sequence[Histogram] = ()
    commands: Sequence[tuple[str, str]] = ()
    readings: Sequence[Reading] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """A whole report: the sentence on top, the tiles, the sections."""

    headline: str
    window: tuple[datetime, datetime]
    stands_on: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    readings: Sequence[Reading]
