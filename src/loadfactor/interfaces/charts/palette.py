"""Colours that tell series apart, after Okabe and Ito: for every common form of colour blindness, on white and on dark.

Each has a contrast of at least 3 : 1 with a white page and with the dark one (WCAG 2.2, 1.4.11); words are never in them.
"""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#C56A96", "#B97F00", "#2E96CC", "#777777", "#9467BD")

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
