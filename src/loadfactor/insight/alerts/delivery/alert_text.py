"""Alerts as text of JSON, as they are kept and read again."""

import json
from dataclasses import asdict
from typing import Any

from loadfactor.insight.alerts.alert import Alert


def write_alert(alert: Alert) -> str:
    """An alert as JSON."""
    return json.dumps(asdict(alert) | {"by": dict(alert.by), "holder": dict(alert.holder)})


def read_alert(text: str) -> Alert:
    """The alert that was written."""
    row: dict[str, Any] = json.loads(text)
    return Alert(**{**row, "evidence": tuple(row["evidence"])})
