"""How do readings look in a terminal, as CSV and as JSON? Values by their unit; what was not fully known says so."""

import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loadfactor.faces.formats import UNKNOWN, draw_bins, duration, money, number, percent
from loadfactor.metrics import metric
from loadfactor.metrics.query.reading import Reading

NOBODY = "(none)"
GAP = 2  # columns of a table stand this far apart
FITTED = 1000  # groups that are fitted to the screen, which takes half a millisecond each
Groups = dict[tuple[str | None, ...], dict[str, Reading]]


def value_text(reading: Reading) -> str:
    """A reading's value as a person writes it; a list (a histogram) as a row of bars."""
    value = reading.value
    if value is None:
        return UNKNOWN
    if isinstance(value, list):
        return draw_bins(value)
    if reading.unit == "share":
        return percent(value)
    if reading.unit.startswith("USD"):
        return money(value)
    if reading.unit == "s":
        return duration(value)
    if reading.unit == "jobs":
        return f"{value:,.0f}"
    return number(value, 4)


def coverage_text(reading: Reading) -> str:
    """Coverage where something was missing; nothing where everything was known."""
    return "" if reading.coverage is None or reading.coverage == 1 else percent(reading.coverage)


def as_json(readings: Sequence[Reading]) -> str:
    """Readings as one JSON list, a line each."""
    lines = ",\n ".join(json.dumps(r.as_json(), allow_nan=False) for r in readings)
    return f"[\n {lines}\n]" if lines else "[]"


def as_csv(readings: Sequence[Reading]) -> str:
    """Readings as CSV, one a line, one column a dimension; unknown is empty."""
    dimensions = list(readings[0].by) if readings else []
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["metric", "unit", "value", *dimensions, "from", "to", "coverage", "basis"])
    for reading in readings:
        row = reading.as_json()
        value = json.dumps(row["value"]) if isinstance(row["value"], list) else row["value"]
        by = [row["by"].get(d) for d in dimensions]
        writer.writerow([row["metric"], row["unit"], value, *by, row["from"], row["to"], row["coverage"], row["basis"]])
    return out.getvalue()


def print_table(readings: Sequence[Reading], console: Console) -> None:
    """Readings for people: a line a metric, or a line a group with a column a metric; fits the width of the console."""
    if not readings:
        console.print("nothing in this window; widen --from and --to")
        return
    if readings[0].by:
        _by_group(readings, console)
    else:
        _by_metric(readings, console)


def _by_metric(readings: Sequence[Reading], console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("unit", style="dim", no_wrap=True)
    table.add_column("known", justify="right", no_wrap=True)
    for reading in readings:
        said = reading.unit in ("share", "s") or reading.unit.startswith("USD")  # the value itself says its unit
        table.add_row(reading.metric, value_text(reading), "" if said else reading.unit, coverage_text(reading))
    console.print(table)
    _print_bases(readings, console)


def _by_group(readings: Sequence[Reading], console: Console) -> None:
    groups: Groups = {}
    for reading in readings:
        groups.setdefault(tuple(reading.by.values()), {})[reading.metric] = reading
    if len(groups) > FITTED:
        _print_aligned(groups, list(readings[0].by), console)
        _print_bases(readings, console)
        return
    widths = {name: _width(name, groups) for name in dict.fromkeys(r.metric for r in readings)}
    names = sum(max(len(v or NOBODY) for v in values) + GAP for values in zip(*groups, strict=True))
    known = max(len("known"), *(len(coverage_text(r)) for r in readings))
    for place, some in enumerate(_fitting(widths, console.width - min(names, console.width // 2) - known)):
        if place:
            console.print()
        table = _groups_table(list(readings[0].by), some, groups)
        unbound = console.options.update(max_width=sys.maxsize)
        if console.measure(table, options=unbound).maximum > console.width:
            for name, column in zip(some, table.columns[len(readings[0].by) :], strict=False):
                column.width = widths[name]  # titles are wrapped, values never
        console.print(table)
    _print_bases(readings, console)


def _width(name: str, groups: Groups) -> int:
    """The least a column needs: its longest value, or the longest word above it."""
    return max(map(len, [*metric(name).title.split(), *(value_text(row[name]) for row in groups.values())]))


def _fitting(widths: Mapping[str, int], room: int) -> list[list[str]]:
    """Columns in as many tables as it takes for each to fit."""
    tables: list[list[str]] = []
    left = 0
    for name, width in widths.items():
        if not tables or width + GAP > left:
            tables.append([])
            left = room
        tables[-1].append(name)
        left -= width + GAP
    return tables


def _groups_table(by: Sequence[str], metrics: Sequence[str], groups: Groups) -> Table:
    heads, *rows = _cells(by, metrics, groups)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, head in enumerate(heads):
        if place < len(by):
            table.add_column(head, overflow="fold")
        elif place < len(by) + len(metrics):
            table.add_column(head, justify="right")
        else:
            table.add_column(head, justify="right", style="dim", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _print_aligned(groups: Groups, by: Sequence[str], console: Console) -> None:
    """A line a group, as wide as it is: nobody reads thousands of lines on a screen."""
    rows = _cells(by, list(next(iter(groups.values()))), groups)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [c.ljust(w) if i < len(by) else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        console.file.write((" " * GAP).join(cells).rstrip() + "\n")


def _cells(by: Sequence[str], metrics: Sequence[str], groups: Groups) -> list[list[str]]:
    """A table's heading and rows: the names of the group, a value a metric, and the least coverage where any is missing."""
    some_missing = any(coverage_text(row[name]) for row in groups.values() for name in metrics)
    rows = [[*by, *(metric(name).title for name in metrics), *(["known"] if some_missing else [])]]
    for key, row in groups.items():
        least = min((row[name] for name in metrics), key=lambda r: 1 if r.coverage is None else r.coverage)
        known = [coverage_text(least)] if some_missing else []
        rows.append([*(v or NOBODY for v in key), *(value_text(row[name]) for name in metrics), *known])
    return rows


def _print_bases(readings: Sequence[Reading], console: Console) -> None:
    """What the numbers stand on, once for all: kinds of money and of activity, without the shares that differ by group."""
    told = [part for r in readings if r.basis for part in r.basis.split(", ")]
    bases = list(dict.fromkeys(part.rsplit(" ", 1)[0] if part.endswith("%") else part for part in told))
    if bases:
        console.print("stands on: " + ", ".join(bases), style="dim")
