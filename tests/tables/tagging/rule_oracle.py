"""Rules of tagging applied one row and one rule at a time, as slowly and plainly as they read."""

import json
import re
from fnmatch import fnmatchcase
from typing import Any

COLUMNS = {"experiment": "experiment_id", "team": "team", "project": "project", "purpose": "purpose"}


def tag_row(row: dict[str, Any], rules: list[dict[str, Any]], mapping: list[dict[str, Any]], at: str) -> dict[str, Any]:
    """One row, tagged. Rules as in loadfactor.toml; rows of a mapping alike, with `from_ms` and `to_ms`."""
    row = dict(row)
    for column, said in json.loads(row["original_holder"] or "{}").items():
        row[column] = said or None
    given: dict[str, str] = {}
    for rule in rules:
        for name, text in find(rule, row, at).items():
            given.setdefault(name, text)
    for rule in mapping:
        for name, text in find(rule, row, at).items():
            said = row[COLUMNS[name]]
            stands_in = name == "team" and said in (value(row, "account"), value(row, "namespace"))
            if said is None or stands_in:
                given.setdefault(name, text)
    original = {}
    for name, text in given.items():
        if text != row[COLUMNS[name]]:
            original[COLUMNS[name]] = row[COLUMNS[name]] or ""
            row[COLUMNS[name]] = text
    row["original_holder"] = json.dumps(original, sort_keys=True, ensure_ascii=False) if original else None
    return row


def find(rule: dict[str, Any], row: dict[str, Any], at: str) -> dict[str, str]:
    """What a rule gives a row by itself."""
    if not rule.get("from_ms", 0) <= row[at] < rule.get("to_ms", 2**62):
        return {}
    groups: dict[str, str | None] = {}
    for field, patterns in rule.get("match", {}).items():
        fits = False
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            has = value(row, field)
            if pattern == "":
                fits = has is None
            elif pattern.startswith("regex:"):
                found = re.search(pattern.removeprefix("regex:"), has, re.DOTALL) if has is not None else None
                fits = found is not None
                groups |= found.groupdict() if found else {}
            else:
                fits = has is not None and fnmatchcase(has, pattern)
            if fits:
                break
        if not fits:
            return {}
    out = {}
    for name in COLUMNS:
        if name in rule:
            lacks = False

            def fill(found: re.Match[str]) -> str:
                nonlocal lacks
                text = groups[found[1]] if found[1] in groups else value(row, found[1])
                lacks = lacks or text is None
                return text or ""

            text = re.sub(r"\{([^{}]*)\}", fill, rule[name]).strip()
            if text and not lacks:
                out[name] = text
    return out


def value(row: dict[str, Any], field: str) -> str | None:
    """What a rule sees of a row."""
    column = COLUMNS.get(field, field)
    if column in ("user", "queue", "pool", "node", "job_id", "job_number", *COLUMNS.values()):
        return row.get(column)
    return (json.loads(row["tags"] or "{}").get(field) or "").strip() or None
