"""Reasons why a server does not do all of its work, as `GET /health` lists them."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["note", "degraded", "failing"]
"""A `note` never changes the status: it tells of something to look at, not of work that is not done."""


@dataclass(frozen=True)
class HealthReason:
    """One reason: what is wrong, since when, and what to do.

    `component`: the part of the server (`clock`, `store`, `collector`, `alerts`, `digests`, `backup`, `retention`).
    `source`: the name of a source, receiver or target; None if there is no such thing.
    `since_utc`: ISO 8601; None if it is not known.
    """

    component: str
    source: str | None
    severity: Severity
    cause: str
    since_utc: str | None
    action: str
