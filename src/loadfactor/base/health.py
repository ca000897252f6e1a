"""Reasons why a server does not do all of its work, as `GET /health` lists them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from loadfactor.base.clock import now_ms

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


def derive_status(reasons: Iterable[HealthReason]) -> str:
    """Derive the status of a server: ok, degraded or failing.

    >>> derive_status([HealthReason("collector", "remote_write", "note", "3 samples are NaN", None, "nothing")])
    'ok'
    """
    severities = {reason.severity for reason in reasons}
    return "failing" if "failing" in severities else "degraded" if "degraded" in severities else "ok"


@dataclass
class Trouble:
    """The cause that keeps one part of a server from its work now, and since when; empty while there is none."""

    cause: str = ""
    since_ms: int | None = None

    def note(self, cause: str) -> None:
        """Note the cause of now. It lasts from the first cause on until an empty one ends it."""
        if not cause:
            self.since_ms = None
        elif not self.cause:
            self.since_ms = now_ms()
        self.cause = cause
