"""Where labels go so that none covers another: geometry alone, in any unit (pixels of a picture, cells of a terminal)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#C56A96", "#B97F00", "#2E96CC", "#777777", "#9467BD")

SCALE = ("#29487D", "#575D6D", "#7D7C78", "#A59C74", "#D2BF5D", "#FFE945")
"""Of shares from 0 to 1, in equal steps: cividis, which reads alike with every kind of colour blindness, and without colour."""

INK, FAINT, LINE, CARD = "#222222", "#59626c", "#d9dde2", "#ffffff"
"""Words, small print and axes, thin lines, and what they stand on, on a white page."""


def color_of(index: int) -> str:
    """The colour of the series at this place, as #rrggbb."""
    return PALETTE[index % len(PALETTE)]


def rgb(index: int) -> tuple[int, int, int]:
    """The same as three numbers 0..255."""
    code = color_of(index)
    return int(code[1:3], 16), int(code[3:5], 16), int(code[5:7], 16)


def paint(text: str, index: int, color: bool) -> str:
    """The text in the colour of the series at this place, for a terminal; unchanged where there is no colour."""
    if not color or not text:
        return text
    red, green, blue = rgb(index)
    return f"\x1b[38;2;{red};{green};{blue}m{text}\x1b[0m"


@dataclass(frozen=True)
class Box:
    """A rectangle; `right` and `top` are not part of it."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: "Box") -> float:
        """The area that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(width, 0.0) * max(height, 0.0)

    def holds(self, other: "Box") -> bool:
        """True when the other lies inside."""
        return (
            self.left <= other.left
            and self.bottom <= other.bottom
            and other.right <= self.right
            and other.top <= self.top
        )


def spread(preferred: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Centres of labels of these sizes, near where they should be, in the same order, none over another, within [low, high].

    Where they do not all fit they leave at `low`.

    >>> spread([5.0, 5.0], [2.0, 2.0], 0.0, 10.0)
    [5.0, 7.0]
    >>> spread([10.0, 10.0], [2.0, 2.0], 0.0, 10.0)
    [7.0, 9.0]
    """
    order = sorted(range(len(preferred)), key=lambda i: preferred[i])
    centres = [0.0] * len(preferred)
    floor = low
    for i in order:
        centres[i] = max(preferred[i], floor + sizes[i] / 2)
        floor = centres[i] + sizes[i] / 2
    ceiling = high
    for i in reversed(order):
        centres[i] = min(centres[i], ceiling - sizes[i] / 2)
        ceiling = centres[i] - sizes[i] / 2
    return centres


def place(width: float, height: float, spots: Iterable[tuple[float, float]], taken: Sequence[Box], inside: Box) -> Box:
    """The first spot (left, bottom) inside that is free; where none is, the one that covers least."""
    best, least = Box(inside.left, inside.bottom, inside.left + width, inside.bottom + height), float("inf")
    for left, bottom in spots:
        box = Box(left, bottom, left + width, bottom + height)
        if not inside.holds(box):
            continue
        covered = sum(box.overlap(other) for other in taken)
        if covered == 0:
            return box
        if covered < least:
            best, least = box, covered
    return best


def spots_around(
    x: float, y: float, width: float, height: float, gap: tuple[float, float], inside: Box
) -> Iterable[tuple[float, float]]:
    """Places (left, bottom) for a label of a point, the best first: beside it, then anywhere, the nearest first."""
    across, up = gap
    lefts = (x + across, x - across - width, x - width / 2)
    bottoms = (y + up, y - up - height, y - height / 2)
    first, second = (0, 1) if x < (inside.left + inside.right) / 2 else (1, 0)
    for side, level in ((first, 0), (first, 1), (second, 0), (second, 1), (2, 0), (2, 1), (first, 2), (second, 2)):
        yield lefts[side], bottoms[level]
    columns, rows = max(int((inside.right - inside.left) / max(width / 2, 1e-9)), 1), 0
    rows = max(int((inside.top - inside.bottom) / max(height, 1e-9)), 1)
    anywhere = [
        (inside.left + (inside.right - inside.left - width) * i / columns, inside.bottom + height * j)
        for i in range(columns + 1)
        for j in range(rows)
    ]
    yield from sorted(
        anywhere, key=lambda at: abs(at[0] + width / 2 - x) / width + abs(at[1] + height / 2 - y) / height
    )
