"""Tables that squeue and sinfo print with a heading: columns apart by anything, or padded with blanks to a width.

What is wider than its column is cut off without a word, and a cut list of resources or nodes would be another one: a table in which
that may have happened is refused.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loadfactor.base.errors import SourceError
from loadfactor.sources.base import Input
from loadfactor.sources.parsing.cells import quote
from loadfactor.sources.parsing.text_blocks import split_lines
from loadfactor.sources.slurm.gpus import BREAKS_OFF, Notes
from loadfactor.sources.slurm.scontrol import MOST_RECORDS


@dataclass(frozen=True)
class TableHeading:
    """The names of columns; what stands between them, or where each begins; the width of those that are padded."""

    names: tuple[str, ...]
    between: str
    starts: tuple[int, ...]
    widths: tuple[int | None, ...]

    @property
    def is_cut(self) -> bool:
        """The columns are aligned to the right, which leaves no sign of what was cut off."""
        return not self.between and self.starts[0] > 0


@dataclass(frozen=True)
class TableKind:
    """A command's tables: a column that each has, columns of which no letter may be missing, free texts, and what to save instead.

    `check` raises SourceError where a table has not the columns that are needed.
    """

    anchor: str
    matters: tuple[str, ...]
    free: tuple[str, ...]
    remedy: str
    check: Callable[[str, TableHeading], None]


def read_table(source: Input, kind: TableKind, notes: Notes) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows: the line of each, and its cells by name. SourceError names the line and column of what may be cut off."""
    heading: TableHeading | None = None
    end = b"\n"
    for chunk in source.chunks:
        end = chunk[-1:] or end
    waiting: tuple[int, str] | None = None
    count = 0
    for number, line in enumerate(split_lines(source), 1):
        text = line.rstrip("\r")
        if not text.strip() or (heading is None and not re.search(rf"\b(?:{kind.anchor})\b", text)):
            continue
        if heading is None:
            heading = _read_heading(text, kind.anchor)
            kind.check(source.label, heading)
        elif heading.names[0] not in text or tuple(_split(heading, text)) != heading.names:  # repeated by --iterate
            if waiting is not None:
                yield waiting[0], _read_cells(source.label, kind, heading, *waiting)
            waiting, count = (number, text), count + 1
            if count > MOST_RECORDS:
                raise SourceError(f"{source.label} has more than {MOST_RECORDS:,} rows; {kind.remedy}")
    if heading is not None and waiting is not None:
        if end == b"\n":
            yield waiting[0], _read_cells(source.label, kind, heading, *waiting)
        else:
            notes.add(source.label, BREAKS_OFF, 1, waiting[0])


def _read_heading(text: str, anchor: str) -> TableHeading:
    found = re.search(rf"\b(?:{anchor}) *([^\w ()]+)", text) or re.search(rf"([^\w ()]+) *(?:{anchor})\b", text)
    words = list(re.finditer(r"\S+", text))
    between, starts = found[1] if found else "", tuple(word.start() for word in words)
    if not between and (text.startswith(" ") or "  " in text):
        cells = [word.group() for word in words]
        widths: tuple[int | None, ...] = tuple(None for _ in cells)
    else:
        between = between or " "
        raw = text.removesuffix(between).split(between)
        cells, starts = [cell.strip() for cell in raw], ()
        widths = tuple(len(cell) if cell != cell.strip() else None for cell in raw)
    return TableHeading(tuple("STATE" if cell == "ST" else cell for cell in cells), between, starts, widths)


def _split(heading: TableHeading, text: str) -> list[str]:
    if heading.between:
        return [cell.strip() for cell in text.removesuffix(heading.between).split(heading.between)]
    ends = (*heading.starts[1:], len(text))
    return [text[start:end].strip() for start, end in zip(heading.starts, ends, strict=True)]


def _read_cells(label: str, kind: TableKind, heading: TableHeading, line: int, text: str) -> dict[str, str]:
    cells = _split(heading, text)
    last = len(heading.names) - 1
    if heading.between and len(cells) > len(heading.names) and heading.names[last] in kind.free:
        cells = [*cells[:last], heading.between.join(cells[last:])]
    if len(cells) != len(heading.names):
        raise SourceError(
            f"{label}, line {line}: {len(cells)} columns where the heading has {len(heading.names)}: {quote(text)}; {kind.remedy}"
        )
    raw = text.removesuffix(heading.between).split(heading.between) if heading.between else []
    for number, (name, width) in enumerate(zip(heading.names, heading.widths, strict=True)):
        is_full = width is not None and len(cells[number]) >= width
        start = heading.starts[number + 1] if not heading.between and number < last else 0
        is_full = is_full or (0 < start < len(text) and text[start - 1] != " ")
        if is_full and (name in kind.matters or not raw):
            raise SourceError(
                f"{label}, line {line}: {name} fills its column, so it may be cut off ({quote(cells[number])}); {kind.remedy}"
            )
    return dict(reversed(list(zip(heading.names, cells, strict=True))))
