"""How does the report look in a terminal? The same sections in characters, at most 100 columns, good at 80."""

import io
import sys
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from loadfactor.faces.answer.terminal import MAX_WIDTH, grid, has_color
from loadfactor.faces.charts import terminal as chart_terminal
from loadfactor.faces.formats import draw_bins, instant
from loadfactor.faces.report import Histogram, Report, Section, Tile

CHART_HEIGHT = 13
NARROW = 90  # below it, three tiles a line instead of four


def show(report: Report) -> None:
    """Print the report on stdout, as wide as the terminal but at most 100 columns."""
    console = Console(highlight=False)
    width = min(console.width, MAX_WIDTH)
    if not console.is_terminal:
        sys.stdout.write(as_text(report, width))
        return
    console.print(_body(report, width, has_color(console)), width=width)


def as_text(report: Report, width: int = MAX_WIDTH) -> str:
    """The same as plain text without colour."""
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, color_system=None, force_terminal=False)
    console.print(_body(report, width, color=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _body(report: Report, width: int, color: bool) -> RenderableType:
    start, end = report.window
    parts: list[RenderableType] = [
        Text(report.headline, style="bold"),
        Text(f"{instant(start)} to {instant(end)}. {report.stands_on}", style="dim"),
        "",
        _tiles(report.tiles, 3 if width < NARROW else 4),
    ]
    for section in report.sections:
        parts += _section(section, width, color)
    return Group(*parts)


def _tiles(tiles: Sequence[Tile], across: int) -> Grid:
    table = Grid.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in range(across):
        table.add_column(ratio=1)
    cells = [Text.assemble((t.title + "\n", ""), (t.value + "\n", "bold cyan"), (t.note + "\n", "dim")) for t in tiles]
    for i in range(0, len(cells), across):
        table.add_row(*cells[i : i + across])
    return table


def _section(section: Section, width: int, color: bool) -> list[RenderableType]:
    parts: list[RenderableType] = ["", Text(section.title, style="bold underline")]
    if section.lead:
        parts.append(Text(section.lead))
    for chart in section.charts:
        drawn = chart_terminal.draw(chart, width, CHART_HEIGHT, color)
        parts += ["", Text.from_ansi(drawn, no_wrap=True, overflow="crop")]
    for table in section.tables:
        parts += ["", grid(table), *([Text(table.note, style="dim")] if table.note else [])]
    if section.histograms:
        parts += ["", _histograms(section.histograms)]
    for command, why in section.commands:
        parts += [Text(f"  {command}", overflow="fold"), Padding(Text(why, style="dim"), (0, 0, 0, 6))]
    return parts


def _histograms(histograms: Sequence[Histogram]) -> Grid:
    table = Grid.grid(padding=(0, 2, 0, 0))
    for h in histograms:
        table.add_row(Text(h.name), Text(draw_bins(h.bins), style="blue"), Text(h.note, style="dim"))
    return table
