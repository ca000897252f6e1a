"""A document in a terminal: headline, tiles, pictures, tables, assumptions, notes; good at 80 columns, at most 100 wide."""

import io
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from loadfactor.faces.charts import terminal as chart_terminal
from loadfactor.faces.document import Assumption, DataTable, Document, Histogram, Section, Tile
from loadfactor.faces.formats import draw_bins

MAX_WIDTH = 100
CHART_HEIGHT = 13
NARROW = 90  # below it, three tiles a line instead of four


def print_document(document: Document) -> None:
    """Print the page on stdout, as wide as the terminal but at most 100 columns."""
    console = Console(highlight=False)
    width = min(console.width, MAX_WIDTH)
    if not console.is_terminal:
        console.file.write(render_text(document, width) + "\n")
        return
    console.print(_page(document, width, has_color(console)), width=width)


def render_text(document: Document, width: int = MAX_WIDTH) -> str:
    """The same as plain text without colour."""
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, color_system=None, force_terminal=False)
    console.print(_page(document, width, color=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).rstrip()


def has_color(console: Console) -> bool:
    """True when the console shows colours."""
    return console.is_terminal and not console.no_color and console.color_system is not None


def _page(document: Document, width: int, color: bool) -> RenderableType:
    parts: list[RenderableType] = [Text(document.headline, style="bold")]
    if document.subtitle:
        parts.append(Text(document.subtitle, style="dim"))
    if document.tiles:
        parts += ["", _tiles(document.tiles, 3 if width < NARROW else 4)]
    for section in document.sections:
        parts += _section(section, width, color)
    if document.assumptions:
        parts += ["", Text("Assumed", style="bold"), _assumptions(document.assumptions)]
    if document.notes:
        parts += ["", Text("What would change this answer", style="bold"), _bullets(document.notes)]
    return Group(*parts)


def _section(section: Section, width: int, color: bool) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if section.title:
        parts += ["", Text(section.title, style="bold underline")]
    if section.lead:
        parts.append(Text(section.lead))
    for chart in section.charts:
        drawn = chart_terminal.draw(chart, width, CHART_HEIGHT, color)
        parts += ["", Text.from_ansi(drawn, no_wrap=True, overflow="crop")]
    for table in section.tables:
        parts += ["", draw_table(table), *([Text(table.note, style="dim")] if table.note else [])]
    if section.histograms:
        parts += ["", _histograms(section.histograms)]
    for command in section.commands:
        parts += [Text(f"  {command.line}", overflow="fold"), Padding(Text(command.why, style="dim"), (0, 0, 0, 6))]
    return parts


def _tiles(tiles: Sequence[Tile], across: int) -> Grid:
    table = Grid.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in range(across):
        table.add_column(ratio=1)
    cells = [Text.assemble((t.title + "\n", ""), (t.value + "\n", "bold cyan"), (t.note + "\n", "dim")) for t in tiles]
    for i in range(0, len(cells), across):
        table.add_row(*cells[i : i + across])
    return table


def draw_table(table: DataTable) -> RenderableType:
    """A table as rich draws it, its title above it, numbers to the right."""
    grid = _plain_grid()
    for column in table.columns:
        is_text = column.style == "text"
        grid.add_column(column.title, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text)
    for row in table.text_rows():
        grid.add_row(*(Text(cell) for cell in row))
    return Group(Text(table.title, style="bold"), grid) if table.title else grid


def _histograms(histograms: Sequence[Histogram]) -> Grid:
    table = Grid.grid(padding=(0, 2, 0, 0))
    for h in histograms:
        table.add_row(Text(h.name), Text(draw_bins(h.bins), style="blue"), Text(h.note, style="dim"))
    return table


def _assumptions(assumptions: Sequence[Assumption]) -> Grid:
    grid = _plain_grid()
    grid.add_column("what", overflow="fold", ratio=3)
    grid.add_column("value", overflow="fold", ratio=3)
    grid.add_column("source", overflow="fold", ratio=4)
    grid.expand = True
    for a in assumptions:
        grid.add_row(Text(a.name), Text(a.value), Text(f"{a.source} ({a.as_of})" if a.as_of else a.source, style="dim"))
    return grid


def _bullets(lines: Sequence[str]) -> Grid:
    grid = Grid.grid(padding=(0, 1))
    for line in lines:
        grid.add_row("•", Text(line))
    return grid


def _plain_grid() -> Grid:
    return Grid(box=None, header_style="underline", padding=(0, 2, 0, 0), pad_edge=False)
