"""Lines on stderr, each written once, whatever happens again."""

from __future__ import annotations

import sys
from typing import Final

_WRITTEN: Final[set[str]] = set()


def say_once(topic: str, text: str) -> None:
    """One line for each topic and process; a closed stderr is no reason to fail."""
    if topic in _WRITTEN:
        return
    _WRITTEN.add(topic)
    try:
        print(f"loadfactor: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        return
