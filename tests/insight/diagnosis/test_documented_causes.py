"""Does docs/diagnose.md list every cause with its class and its thresholds? `UPDATE_PAGES=1` writes the thresholds anew."""

import os
import re
from pathlib import Path

from loadfactor.insight.diagnosis.rule import DiagnosisRule
from loadfactor.insight.diagnosis.rules import DIAGNOSES

PAGE = Path(__file__).parents[3] / "docs" / "diagnose.md"
HEAD = "| cause | at least | confidence | thresholds |\n|---|--:|--:|---|\n"


def write_row(rule: DiagnosisRule) -> str:
    """The declaration of a cause as a row."""
    limits = "; ".join(
        f"{name} = {limit.value:g}{'' if limit.unit == 'share' else f' {limit.unit}'}: {limit.meaning}"
        for name, limit in rule.limits.items()
    )
    low = f"{rule.low:.0%}".replace("%", " %") if rule.low else "varies"
    return f"| {rule.cause} | {low} | {rule.confidence:g} | {limits or '–'} |\n"


def test_the_page_has_the_thresholds_that_are_declared() -> None:
    """A table that is generated from the declarations, in their order."""
    table = HEAD + "".join(map(write_row, DIAGNOSES))
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("UPDATE_PAGES"):
        text = re.sub(rf"{re.escape(HEAD)}(\|.*\n)*", lambda _: table, text)
        PAGE.write_text(text, encoding="utf-8")
    assert table in text, "run UPDATE_PAGES=1"


def test_the_page_explains_every_cause_with_its_class() -> None:
    """The table that people write has a row for each cause, in the order in which they are judged."""
    rows = re.findall(r"^\| (\w+) \| ([^|%]+) \| [^|]+ \| [^|]+ \|$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    assert [row for row in rows if row[0] != "cause" and row[1] != "varies"] == [
        (rule.cause, rule.class_) for rule in DIAGNOSES
    ]
