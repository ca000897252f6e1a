"""Text that came from data or was typed, as it may be shown: characters that act instead of being seen are spelled out."""

import re
from typing import Final

HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls: escape sequences, line ends, bells
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction of writing
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # of no width
    "\u2028\u2029"  # separators of lines and paragraphs
    "\ud800-\udfff]"  # bytes that were no text
)
"""Control characters, and what Unicode calls default ignorable apart from the variation selectors of emoji."""
_NO_TEXT: Final = re.compile("[\ud800-\udfff]")
# Python reads byte 0xff of a name that is not UTF-8 as this surrogate (PEP 383)
_FIRST_BYTE: Final = "\udc80"
_LAST_BYTE: Final = "\udcff"
_BYTES_FROM: Final = 0xDC00


def spell_out(text: str) -> str:
    r"""The text with hidden characters as Python writes them: nothing in it moves a cursor, sets a colour or turns a line round.

    >>> print(spell_out("a\x1b[31m\tb\u202e é"))
    a\x1b[31m\tb\u202e é
    """
    return HIDDEN.sub(_escape, text)


def spell_out_bytes(text: str) -> str:
    r"""Spell out what is no text, such as bytes in the name of a file, so that UTF-8 can hold the rest.

    >>> spell_out_bytes("gpu-\udcff\ud800.csv"), spell_out_bytes("é.csv")
    ('gpu-\\xff\\ud800.csv', 'é.csv')
    """
    return _NO_TEXT.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    if _FIRST_BYTE <= found[0] <= _LAST_BYTE:
        return f"\\x{ord(found[0]) - _BYTES_FROM:02x}"
    return found[0].encode("unicode_escape").decode("ascii")
