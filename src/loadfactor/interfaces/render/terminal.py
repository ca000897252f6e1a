"""A document in a terminal: headline, tiles, pictures, tables, assumptions, notes; good at 80 columns, at most 100 wide.

A command to type is never broken: it stands in one line of text, or where it is too long for that in a line of its own, which the
terminal may wrap and a mouse copies whole.
"""

import io
import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from loadfactor.interfaces.document import Assumption, DataTable, Document, Histogram, Section, Tile
from loadfactor.interfaces.formats import draw_bins, make_visible

MAX_WIDTH = 100
CHART_HEIGHT = 13
NARROW = 90  # below it, three tiles a line instead of four
GAP = 2  # columns of a table stand this far apart
LEAST_TEXT = 12  # a column of text behind numbers is folded down to this
MOST_FITTED = 1000  # rows of a table that is fitted to the width
JOINT = "\ue000"  # stands for a space that no line may break at, until all lines are drawn
COMMAND = re.compile(r"`(loadfactor [^`\n]+)`")


def print_document(document: Document) -> None:
    """Print the page on stdout, as wide as the terminal but at most 100 columns."""
    console = Console(highlight=False)
    document = make_visible(document)
    width = min(console.width, MAX_WIDTH)
    if not console.is_terminal:
        console.file.write(_plain(document, width) + "\n")
        return
    with console.capture() as drawn:
        console.print(_page(document, width, has_color(console)), width=width, crop=False)
    console.file.write(drawn.get().replace(JOINT, " "))


def render_text(document: Document, width: int = MAX_WIDTH) -> str:
    """The same as plain text without colour."""
    return _plain(make_visible(document), width)


def _plain(document: Document, width: int) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, color_system=None, force_terminal=False)
    console.print(_page(document, width, color=False), crop=False)
    return "\n".join(line.rstrip() for line in out.getvalue().replace(JOINT, " ").split("\n")).rstrip()


def has_color(console: Console) -> bool:
    return console.is_terminal and not console.no_color and console.color_system is not None


def _page(document: Document, width: int, color: bool) -> RenderableType:
    parts: list[RenderableType] = [*_prose(document.headline, width, "bold")]
    if document.subtitle:
        parts += _prose(document.subtitle, width, "dim")
    if document.tiles:
        parts += ["", _tiles(document.tiles, 3 if width < NARROW else 4)]
    for section in document.sections:
        parts += _section(section, width, color)
    if document.assumptions:
        parts += ["", Text("Assumed", style="bold"), _assumptions(document.assumptions)]
    if document.notes:
        parts += ["", Text("What would change this answer", style="bold")]
        for note in document.notes:
            parts += _bullet(note, width)
    return Group(*parts)


def _divide_commands(text: str, width: int) -> Iterator[tuple[bool, str]]:
    """Text and commands that are too long for a line of it, in turn; the spaces of other commands hold together."""
    at = 0
    for found in COMMAND.finditer(text):
        if len(found[0]) > width - 1:  # a full stop or comma follows
            if before := text[at : found.start()].strip():
                yield False, _hold(before)
            yield True, found[1]
            at = found.end()
    if rest := text[at:].lstrip(" .,;" if at else ""):
        yield False, _hold(rest)


def _hold(text: str) -> str:
    return COMMAND.sub(lambda found: found[0].replace(" ", JOINT), text)


def _write_command(command: str) -> Text:
    return Text(f"  {command}", no_wrap=True, overflow="ignore")


def _prose(text: str, width: int, style: str = "") -> list[RenderableType]:
    return [
        _write_command(part) if is_command else Text(part, style=style)
        for is_command, part in _divide_commands(text, width)
    ]


def _bullet(note: str, width: int) -> list[RenderableType]:
    parts: list[RenderableType] = []
    sign = "•"
    for is_command, part in _divide_commands(note, width - 2):
        if is_command:
            parts.append(_write_command(part))
            continue
        grid = Grid.grid(padding=(0, 1))
        grid.add_row(sign, Text(part))
        parts.append(grid)
        sign = " "
    return parts


def _section(section: Section, width: int, color: bool) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if section.title:
        parts += ["", Text(section.title, style="bold underline")]
    if section.lead:
        parts += _prose(section.lead, width)
    for chart in section.charts:
        from loadfactor.interfaces.charts import terminal as chart_terminal  # most answers have none

        drawn = chart_terminal.draw(chart, width, CHART_HEIGHT, color)
        parts += ["", Text.from_ansi(drawn, no_wrap=True, overflow="crop")]
    for table in section.tables:
        parts += ["", draw_table(table.without_empty_columns(), width), *_prose(table.note, width, "dim")]
    if section.histograms:
        parts += ["", _histograms(section.histograms)]
    for item in section.suggestions:
        parts += [_write_command(item.command), Padding(Text(item.why, style="dim"), (0, 0, 0, 6))]
    return parts


def _tiles(tiles: Sequence[Tile], across: int) -> Grid:
    table = Grid.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in range(across):
        table.add_column(ratio=1)
    cells = [Text.assemble((t.title + "\n", ""), (t.value + "\n", "bold cyan"), (t.text + "\n", "dim")) for t in tiles]
    for i in range(0, len(cells), across):
        table.add_row(*cells[i : i + across])
    return table


def draw_table(table: DataTable, width: int) -> RenderableType:
    """A table as rich draws it, numbers to the right; as several tables under one another where one is too wide."""
    rows = table.text_rows()
    parts: list[RenderableType] = [Text(table.title, style="bold")] if table.title else []
    if len(rows) > MOST_FITTED:
        return Group(*parts, _draw_aligned(table, rows))
    for place, columns in enumerate(_divide(table, rows, width)):
        parts += [*([""] if place else []), _draw_columns(table, rows, columns, width)]
    return Group(*parts)


def _least_width(table: DataTable, rows: Sequence[Sequence[str]], column: int) -> int:
    """The width that a column needs: its longest value, or the longest word of its heading. Text is folded where it must be."""
    words = table.columns[column].title.split()
    longest = max((len(row[column]) for row in rows), default=0)
    return max([longest, *map(len, words)])


def _divide(table: DataTable, rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """The columns of each table it takes for all of them to fit; the names in front are repeated."""
    first = next((i for i, column in enumerate(table.columns) if column.style != "text"), len(table.columns))
    names = list(range(first))
    left = room = width - min(sum(_least_width(table, rows, i) + GAP for i in names), width // 2)
    tables: list[list[int]] = [names]
    for i in range(first, len(table.columns)):
        needs = min(_least_width(table, rows, i), LEAST_TEXT if table.columns[i].style == "text" else room) + GAP
        if needs > left + GAP and len(tables[-1]) > len(names):
            tables.append(names)
            left = room
        tables[-1] = [*tables[-1], i]
        left -= needs
    return tables


def _draw_columns(
    table: DataTable, rows: Sequence[Sequence[str]], columns: Sequence[int], width: int
) -> RenderableType:
    natural = sum(max(_least_width(table, rows, i), len(table.columns[i].title)) + GAP for i in columns)
    rows, least, commands = _place_commands(table, rows, columns, width)
    if least and natural > width:  # what is beside commands is folded into the rest
        folded = [i for i in columns if i not in least and i and table.columns[i].style == "text"]
        others = [i for i in columns if i not in least and i not in folded]
        room = (
            width - sum(least.values()) - sum(_least_width(table, rows, i) for i in others) - GAP * (len(columns) - 1)
        )
        least |= {i: min(room // len(folded), _least_width(table, rows, i)) for i in folded}
    else:
        least = {}
    grid = _plain_grid()
    for i in columns:
        column = table.columns[i]
        is_text = column.style == "text"
        title = column.title
        if natural > width and not is_text:  # headings are wrapped, values never
            title = "\n".join(wrap(title, _least_width(table, rows, i), break_long_words=False, break_on_hyphens=False))
        whole = not is_text or (i == 0 and _least_width(table, rows, i) <= width // 2)
        grid.add_column(
            Text(title),
            justify="left" if is_text else "right",
            overflow="fold",
            no_wrap=whole,
            width=least.get(i),
        )
    for row in rows:
        grid.add_row(*(Text(row[i]) for i in columns))
    return Group(grid, *commands) if commands else grid


def _place_commands(
    table: DataTable, rows: Sequence[Sequence[str]], columns: Sequence[int], width: int
) -> tuple[Sequence[Sequence[str]], dict[int, int], list[Text]]:
    """Rows whose commands hold together, the least widths of their columns, and under the table the commands that fit none."""
    found = {i: [text[0] for row in rows for text in COMMAND.finditer(row[i])] for i in columns}
    found = {i: of for i, of in found.items() if of}
    if not found:
        return rows, {}, []
    least, under, changed = {}, dict[str, int](), [list(row) for row in rows]

    def number(text: re.Match[str]) -> str:
        return f"[{under.setdefault(text[1], len(under) + 1)}]"

    for i, of in found.items():
        others = sum(
            min(_least_width(table, rows, j), LEAST_TEXT if table.columns[j].style == "text" and j else width) + GAP
            for j in columns
            if j != i
        )
        longest = max(map(len, of)) + 1  # a full stop or comma follows
        is_narrow = longest > width - others - GAP
        if not is_narrow:
            least[i] = longest
        for row in changed:
            row[i] = COMMAND.sub(number, row[i]) if is_narrow else _hold(row[i])
    lines = [Text(f"  [{n}] {command}", no_wrap=True, overflow="ignore") for command, n in under.items()]
    return changed, least, lines


def _draw_aligned(table: DataTable, rows: Sequence[Sequence[str]]) -> Text:
    """A line a row, as wide as it is: rich takes half a millisecond a row, and nobody reads thousands of rows on a screen."""
    lines = [[column.title for column in table.columns], *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    is_text = [column.style == "text" for column in table.columns]
    drawn = (
        (" " * GAP).join(
            cell.ljust(size) if left else cell.rjust(size)
            for cell, size, left in zip(line, widths, is_text, strict=True)
        )
        for line in lines
    )
    return Text("\n".join(line.rstrip() for line in drawn), no_wrap=True, overflow="ignore")


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


def _plain_grid() -> Grid:
    return Grid(box=None, header_style="underline", padding=(0, 2, 0, 0), pad_edge=False)
