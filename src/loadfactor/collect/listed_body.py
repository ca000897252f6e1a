"""A body of what was listed or watched: events as JSON, packed, with marks in front that say how far the collector got."""

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from loadfactor.base.errors import SourceError

LISTED: Final = "listed"
"""The format of these bodies."""
_QUICK: Final = 1


class ListedBody(NamedTuple):
    """`events`: what the decoder takes. `marks`: by name, where the collector goes on after them; "" takes a mark away."""

    events: list[Any]
    marks: dict[str, str]


def pack_listed(events: Sequence[Any], marks: Mapping[str, str]) -> bytes:
    """The body of these events."""
    return zlib.compress(json.dumps([list(events), dict(marks)], separators=(",", ":")).encode(), _QUICK)


def unpack_listed(content: bytes) -> ListedBody:
    """What is in a body. Raises SourceError where it is none."""
    try:
        events, marks = json.loads(zlib.decompress(content))
    except (zlib.error, ValueError, TypeError) as error:
        raise SourceError(f"a kept list cannot be read: {error}") from error
    return ListedBody(events, marks)
