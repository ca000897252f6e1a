"""Values as messages quote them."""

from typing import Final

_SHOWN: Final = 60


def quote(value: object) -> str:
    """A value as a message may quote it: one line, at most about 60 characters.

    >>> quote("173%"), quote("two" + chr(10) + "lines")
    ("'173%'", "'two\\\\nlines'")
    """
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
