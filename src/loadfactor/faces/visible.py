"""Text that came from data or was typed, as it may be shown: characters that act instead of being seen are spelled out.

The renderers, the charts and the messages on standard error pass everything through here before they measure or draw it.
"""

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

Shown = TypeVar("Shown")

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


def make_visible(page: Shown) -> Shown:
    """A document, a chart or another part of a page with every text in it spelled out. Its `data` stays as it is."""
    return change_texts(page, lambda _, text: spell_out(text))


def change_texts(page: Shown, change: Callable[[str, str], str], field: str = "") -> Shown:
    """A page with every text replaced by `change(name of its field, text)`, however deep it stands. `data` stays as it is."""
    changed: Any = page
    if isinstance(page, str):
        changed = change(field, page)
    elif isinstance(page, (tuple, list)) and not hasattr(page, "_fields"):
        changed = type(page)(part if isinstance(part, float) else change_texts(part, change, field) for part in page)
    elif is_dataclass(page) and not isinstance(page, type):
        names = [item.name for item in fields(page) if item.name != "data"]
        changed = replace(page, **{name: change_texts(getattr(page, name), change, name) for name in names})
    return changed  # type: ignore[no-any-return]
