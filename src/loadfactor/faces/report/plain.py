"""What of the report can a program read? Every reading of every section, and what it says beside them, as plain JSON."""

import json
from collections.abc import Sequence
from typing import Any

from loadfactor.faces.report import Report
from loadfactor.metrics.query.reading import Reading


def as_json(report: Report) -> str:
    """The report as JSON text: window, headline, and the sections with their readings."""
    whole = _listed(report.readings)
    window = Reading("", "", None, {}, *report.window, None, None).as_json()
    body = {
        "headline": report.headline,
        "from": window["from"],
        "to": window["to"],
        "readings": whole,
        "sections": [
            {
                "name": s.name,
                "title": s.title,
                "says": s.lead,
                **s.data,
                "readings": _listed(s.readings),
                **({"commands": [{"command": c, "why": w} for c, w in s.commands]} if s.commands else {}),
            }
            for s in report.sections
        ],
    }
    return json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False)


def _listed(readings: Sequence[Reading]) -> list[dict[str, Any]]:
    return [r.as_json() for r in readings]
