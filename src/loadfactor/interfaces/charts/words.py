"""How wide words are in a picture, and words in lines of a width. DejaVu Sans is measured: what pages fall back to is no wider."""

from collections.abc import Iterator
from unicodedata import combining, east_asian_width

HUNDREDTHS = """
 32 41 46 84 64 96 78 28 40 40 50 84 32 37 32 34 64 64 64 64 64 64 64 64 64 64 34 34 84 84 84 54
100 69 69 70 77 64 58 78 76 30 30 66 56 87 75 79 61 79 70 64 62 74 69 99 69 62 69 40 34 40 84 50
 50 62 64 55 64 62 36 64 64 28 28 58 28 98 64 62 64 64 42 53 40 64 60 82 60 60 53 64 34 64 84"""
WIDTHS = dict(zip(map(chr, range(0x20, 0x7F)), map(int, HUNDREDTHS.split()), strict=True))
"""Of the characters of ASCII, in hundredths of the size of the letters."""
OTHER, WIDE, BOLD = 84, 105, 1.12
"""A character of another script, one as wide as it is high, and how much wider bold letters are."""
LINE_HEIGHT = 1.3


def measure(text: str, size: float, bold: bool = False) -> float:
    """The width of a line, in the unit of the size.

    >>> measure("GPU", 10), measure("GPUs", 10) > measure("GPU", 10)
    (21.3, True)
    """
    hundredths = sum(WIDTHS.get(character) or _measure_other(character) for character in text)
    return round(hundredths * size * (BOLD if bold else 1.0) / 100, 2)


def _measure_other(character: str) -> int:
    if combining(character):
        return 0
    return WIDE if east_asian_width(character) in "WF" or ord(character) > 0xFFFF else OTHER


def fold(text: str, width: float, size: float, most: int, bold: bool = False) -> list[str]:
    """The text in at most that many lines of a width, broken at spaces, a long word anywhere; … where there is more.

    >>> fold("foundation models of the year", 70, 10, 2), fold("", 70, 10, 2)
    (['foundation', 'models of t…'], [''])
    """
    lines = [""]
    for word in _break(text, width, size, bold):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if measure(longer, size, bold) <= width:
            lines[-1] = longer
        elif len(lines) < most:
            lines.append(word)
        else:
            while lines[-1] and measure(f"{lines[-1]}…", size, bold) > width:
                lines[-1] = lines[-1][:-1]
            lines[-1] = f"{lines[-1].rstrip()}…"
            break
    return lines


def _break(text: str, width: float, size: float, bold: bool) -> Iterator[str]:
    """The words one after the other, those that are wider than a line in pieces."""
    for word in text.split():
        piece = ""
        for character in word:
            if piece and measure(piece + character, size, bold) > width:
                yield piece
                piece = ""
            piece += character
        yield piece
