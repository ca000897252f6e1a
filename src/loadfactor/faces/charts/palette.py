"""Which colours tell series apart? Okabe and Ito's, which every common form of colour blindness can separate."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444", "#8C6D31")


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
