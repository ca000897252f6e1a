"""Lines of a terminal drawing as cells, so that labels are written over them where none covers another."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from loadfactor.interfaces.charts.placement import Box, place

STYLE = re.compile(r"\x1b\[[0-9;]*m")
RESET = "\x1b[0m"
NEAREST = 8
"""Places for a label that are tried before one that covers the drawing."""


@dataclass
class Canvas:
    """The part of a drawing inside its axes: rows of (style, character), row 0 at the top. Boxes count rows from below."""

    rows: list[list[tuple[str, str]]]
    left: int
    taken: list[Box] = field(default_factory=list)

    @property
    def area(self) -> Box:
        """All of it."""
        return Box(0, 0, max(len(row) for row in self.rows) - self.left, len(self.rows))

    def reserve(self, x: float, y: float) -> tuple[float, float]:
        """Keep the cell at these shares of the axes free of labels; the middle of that cell."""
        column, row = round(x * (self.area.right - 1)), round(y * (self.area.top - 1))
        self.taken.append(Box(column, row, column + 1, row + 1))
        return column + 0.5, row + 0.5

    def write(self, label: str, spots: Iterable[tuple[float, float]]) -> None:
        """Write a label at the first of the places (left, bottom) where it covers no other, off the drawing if it can be."""
        spots = [(float(round(left)), float(round(bottom))) for left, bottom in spots]
        drawn = [*self.taken, *self._drawn()]
        box = place(len(label), 1, islice(spots, NEAREST), drawn, self.area)
        if any(box.overlap(other) for other in drawn):
            box = place(len(label), 1, spots, self.taken, self.area)
        self.taken.append(box)
        row = self.rows[len(self.rows) - 1 - int(box.bottom)]
        for i, character in enumerate(label[: int(self.area.right)]):
            row[self.left + int(box.left) + i] = ("", character)

    def _drawn(self) -> list[Box]:
        """A box for every run of characters that is not blank."""
        boxes = []
        for number, row in enumerate(self.rows):
            bottom = len(self.rows) - 1 - number
            text = "".join(character for _, character in row[self.left :])
            boxes += [Box(run.start(), bottom, run.end(), bottom + 1) for run in re.finditer(r"\S+", text)]
        return boxes


def to_cells(line: str) -> list[tuple[str, str]]:
    """A line with terminal escape codes as (style, character)."""
    cells, style, at = [], "", 0
    for code in STYLE.finditer(line):
        cells += [(style, character) for character in line[at : code.start()]]
        style = "" if code.group() in (RESET, "\x1b[m") else style + code.group()
        at = code.end()
    return [*cells, *((style, character) for character in line[at:])]


def to_line(cells: Sequence[tuple[str, str]]) -> str:
    """The line again, each run of one style with its codes once."""
    out, style = "", ""
    for own, character in cells:
        if own != style:
            out += (RESET if style else "") + own
            style = own
        out += character
    return out + (RESET if style else "")
