"""Text that came from data or was typed, as it may be shown: characters that act instead of being seen are spelled out."""

import re

HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls: escape sequences, line ends, bells
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction of writing
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # of no width
    "\u2028\u2029"  # separators of lines and paragraphs
    "\ud800-\udfff]"  # bytes that were no text
)
"""Control characters, and what Unicode calls default ignorable apart from the variation selectors of emoji."""


def spell_out(text: str) -> str:
    r"""The text with hidden characters as Python writes them: nothing in it moves a cursor, sets a colour or turns a line round.

    >>> print(spell_out("a\x1b[31m\tb\u202e é"))
    a\x1b[31m\tb\u202e é
    """
    return HIDDEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")
