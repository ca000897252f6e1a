"""Alerts and receivers that the tests of this folder make."""

from collections.abc import Mapping
from typing import Any

from loadfactor.insight.alerts.alert import Alert, Transition
from loadfactor.settings.alerts import AlertsTable, Receiver

START_MS = 1_790_000_040_000
MINUTE_MS = 60_000


def fire(job: str = "j1", rule: str = "job_became_idle", minute: int = 0, **holder: str) -> Transition:
    """A job's alert that began at a minute, and fired ten minutes later."""
    start = START_MS + minute * MINUTE_MS
    by: Mapping[str, str] = {"job": job} if job else {}
    alert = Alert(
        rule, by, "warning", "idle", "firing", start, start + 10 * MINUTE_MS, None, 0.02, "share",
        ("GPU activity 2 % over the last 30 min, below 5 %",), holder=holder or {"user": "ann", "team": "red"},
    )  # fmt: skip
    return Transition(alert, start + 10 * MINUTE_MS)


def end(fired: Transition, minutes: int = 30) -> Transition:
    """The same alert so many minutes after it began."""
    alert = fired.alert
    at = alert.start_ms + minutes * MINUTE_MS
    ended = Alert(
        **{**vars(alert), "state": "resolved", "end_ms": at, "ended_because": "the condition holds no longer"}
    )
    return Transition(ended, at)


def read_receivers(*tables: Mapping[str, Any]) -> tuple[Receiver, ...]:
    """Receivers as loadfactor.toml has them."""
    return AlertsTable.model_validate({"receiver": tables}).receiver
