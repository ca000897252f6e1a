"""A picture as shapes and words in pixels, y downwards: what `svg` writes and `image` paints. Nothing here knows either of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from loadfactor.interfaces.charts.words import LINE_HEIGHT, fold, measure

INK, FAINT, RULE, GROUND = "ink", "dim", "rule", "ground"
"""Colours by name: words, small print, thin lines and what all stands on; those of series are `s0` to `s7`."""
TITLE, LABEL, SMALL = 13.0, 12.0, 11.0
"""Sizes of letters."""
ASCENT = 0.8
"""How far letters reach above their line, in parts of their size."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """Lines through points, one a run; a run of one point is a dot as wide as the line."""

    runs: Sequence[Sequence[Point]]
    color: str
    width: float = 1.0
    dash: Sequence[float] = ()


@dataclass(frozen=True)
class Rectangle:
    """A filled rectangle."""

    left: float
    top: float
    width: float
    height: float
    color: str


@dataclass(frozen=True)
class Dots:
    """Points, each of the same shape: a circle, square, triangle or diamond (0 to 3)."""

    points: Sequence[Point]
    color: str
    size: float
    shape: int = 0


@dataclass(frozen=True)
class Words:
    """A line of words; `y` is the line they stand on. `over` a drawing they keep a rim of the ground around them."""

    x: float
    y: float
    text: str
    size: float = LABEL
    color: str = INK
    anchor: str = "start"
    bold: bool = False
    over: bool = False

    @property
    def width(self) -> float:
        """How much room they take across."""
        return measure(self.text, self.size, self.bold)

    @property
    def left(self) -> float:
        """Where they begin."""
        return self.x - self.width * {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]


Shape = Line | Rectangle | Dots | Words


@dataclass
class Sheet:
    """A picture that is being drawn from the top down: `bottom` is where the next part begins."""

    width: float
    bottom: float = 0.0
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Draw something."""
        self.shapes += shapes

    def write(self, text: str, size: float, most: int, color: str = INK, bold: bool = False) -> None:
        """Write a text across the sheet in at most so many lines, and go on below it."""
        for line in fold(text, self.width, size, most, bold) if text else ():
            self.add(Words(0.0, self.bottom + size, line, size, color, bold=bold))
            self.bottom += size * LINE_HEIGHT

    def write_lines(
        self, lines: Sequence[str], x: float, middle: float, size: float, anchor: str = "start", over: bool = False
    ) -> None:
        """Write lines one under the other around a height."""
        first = middle - (len(lines) - 1) / 2 * size * LINE_HEIGHT + size * (ASCENT / 2 - 0.03)
        for number, line in enumerate(lines):
            self.add(Words(x, first + number * size * LINE_HEIGHT, line, size, anchor=anchor, over=over))


HATCH_PX = 7.5
HATCHES = ("", "/", "\\", "-", "x", "|", "/|", "+")
"""What is drawn over the parts of a bar, by place, so that colour alone never tells them apart."""


def fill(left: float, top: float, width: float, height: float, index: int) -> Iterator[Shape]:
    """A rectangle in the colour of the series at this place, with its hatching."""
    yield Rectangle(left, top, width, height, color_name(index))
    runs = list(hatch(left, top, left + width, top + height, HATCHES[index % len(HATCHES)]))
    if runs:
        yield Line(runs, GROUND, 1.1)


def color_name(index: int) -> str:
    """The name of the colour of the series at this place."""
    return f"s{index % len(HATCHES)}"


def hatch(left: float, top: float, right: float, bottom: float, signs: str) -> Iterator[Sequence[Point]]:
    """Lines through a rectangle, in steps that run on from one rectangle to the next."""
    if "-" in signs or "+" in signs:
        yield from (((left, y), (right, y)) for y in _steps(top, bottom, HATCH_PX * 0.7))
    if "|" in signs or "+" in signs:
        yield from (((x, top), (x, bottom)) for x in _steps(left, right, HATCH_PX))
    if "/" in signs or "x" in signs:
        for at in _steps(left + top, right + bottom, HATCH_PX):
            first, last = max(left, at - bottom), min(right, at - top)
            yield (first, at - first), (last, at - last)
    if "\\" in signs or "x" in signs:
        for at in _steps(left - bottom, right - top, HATCH_PX):
            first, last = max(left, at + top), min(right, at + bottom)
            yield (first, first - at), (last, last - at)


def _steps(low: float, high: float, step: float) -> Iterator[float]:
    number = int(low // step) + 1
    while number * step < high:
        yield number * step
        number += 1
