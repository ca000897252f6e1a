"""How does an answer look in a terminal? Sentence, pictures, tables, assumptions, what would change it; good at 80 columns."""

import io

from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from loadfactor.faces.answer import Answer, Table
from loadfactor.faces.charts import terminal as chart_terminal

MAX_WIDTH = 100
CHART_HEIGHT = 14


def show(answer: Answer) -> None:
    """Print the answer on stdout, as wide as the terminal but at most 100 columns."""
    console = Console(highlight=False)
    console.print(_body(answer, min(console.width, MAX_WIDTH), has_color(console)), width=min(console.width, MAX_WIDTH))


def as_text(answer: Answer, width: int = MAX_WIDTH) -> str:
    """The same as plain text without colour."""
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, color_system=None, force_terminal=False)
    console.print(_body(answer, width, color=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def has_color(console: Console) -> bool:
    """True when the console shows colours."""
    return console.is_terminal and not console.no_color and console.color_system is not None


def _body(answer: Answer, width: int, color: bool) -> RenderableType:
    parts: list[RenderableType] = [Text(answer.sentence, style="bold"), ""]
    for chart in answer.charts:
        drawn = chart_terminal.draw(chart, width, CHART_HEIGHT, color)
        parts += [Text.from_ansi(drawn, no_wrap=True, overflow="crop"), ""]
    for table in answer.tables:
        parts += [grid(table), *([Text(table.note, style="dim")] if table.note else []), ""]
    if answer.assumptions:
        parts += [Text("Assumed", style="bold"), _assumptions(answer), ""]
    if answer.would_change:
        parts.append(Text("What would change this answer", style="bold"))
        lines = Grid.grid(padding=(0, 1))
        for line in answer.would_change:
            lines.add_row("•", Text(line))
        parts.append(lines)
    return Group(*parts)


def grid(table: Table) -> RenderableType:
    """A table as rich draws it, its title above it, numbers to the right."""
    grid = _plain_grid()
    for column in table.columns:
        grid.add_column(
            column.title,
            justify="left" if column.style == "text" else "right",
            overflow="fold",
            no_wrap=column.style != "text",
        )
    for row in table.text_rows():
        grid.add_row(*(Text(cell) for cell in row))
    return Group(Text(table.title, style="bold"), grid) if table.title else grid


def _assumptions(answer: Answer) -> Grid:
    grid = _plain_grid()
    grid.add_column("what", overflow="fold", ratio=3)
    grid.add_column("value", overflow="fold", ratio=3)
    grid.add_column("source", overflow="fold", ratio=4)
    grid.expand = True
    for a in answer.assumptions:
        grid.add_row(Text(a.name), Text(a.value), Text(f"{a.source} ({a.as_of})" if a.as_of else a.source, style="dim"))
    return grid


def _plain_grid() -> Grid:
    return Grid(box=None, header_style="underline", padding=(0, 2, 0, 0), pad_edge=False)
