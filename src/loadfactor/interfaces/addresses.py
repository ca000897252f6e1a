"""Addresses of pages of the server: a value of a dimension has one page, wherever it is named."""

from typing import Final
from urllib.parse import quote

PLACES: Final = {"team": "/teams", "job": "/jobs", "device": "/gpus"}
"""Where a value of a dimension has its page."""
STATEMENT: Final = "/statement"
"""Behind the page of a team: its statement of a month."""


def address_of(place: str, name: str) -> str:
    """The path of a page of one thing.

    >>> address_of(PLACES["team"], "vision & speech") + STATEMENT
    '/teams/vision%20%26%20speech/statement'
    """
    return f"{place}/{quote(name, safe='')}"
