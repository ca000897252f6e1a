"""Text for a terminal that knows no Unicode: one ASCII character for one character, so that columns stay aligned."""

import codecs
import sys

_INSTEAD = str.maketrans(
    "–—−÷×•…µ≥≤→◆“”‘’·€£¥\u202f\u00a0█▓▒░▚",
    "---/xo.u><>@\"\"''.ELY  #%=./",
)


def write_ascii_where_needed() -> None:
    """Let stdout and stderr replace what their encoding cannot write, instead of failing."""
    codecs.register_error("loadfactor", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="loadfactor")


def to_ascii(text: str) -> str:
    """The text with every character that is not ASCII replaced by one that is.

    >>> to_ascii("−5 ÷ 2 × ▁█ é")
    '-5 / 2 x _# e'
    """
    return "".join(c if c.isascii() else _one(c) for c in text.translate(_INSTEAD))


def _one(character: str) -> str:
    """One ASCII character for one that is not: blocks by their height, braille as a dot, letters without accents."""
    import unicodedata  # most terminals never need it

    code = ord(character)
    if 0x2581 <= code <= 0x2588:  # blocks that fill from below
        return "_.:-=+*#"[code - 0x2581]
    if 0x2589 <= code <= 0x258F:  # blocks that fill from the left
        return "#" if code <= 0x258B else "|"
    if 0x2800 <= code <= 0x28FF:
        return " " if code == 0x2800 else "*"
    if 0x2500 <= code <= 0x257F:
        name = unicodedata.name(character, "")
        return "+" if " AND " in name else "|" if name.endswith("VERTICAL") else "-"
    plain = unicodedata.normalize("NFKD", character)[0]
    return plain if plain.isascii() else "?"


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return to_ascii(error.object[error.start : error.end]), error.end
