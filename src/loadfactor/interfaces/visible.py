"""Parts of a page as they may be shown: every text that came from data or was typed is spelled out.

The renderers, the charts and the messages on standard error pass everything through here before they measure or draw it.
"""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from loadfactor.base.spelling import spell_out

Shown = TypeVar("Shown")


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
