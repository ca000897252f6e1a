"""Does docs/alerts.md have a section for every rule, and does it say what is declared? `UPDATE_PAGES=1` writes that anew."""

import os
import re
from pathlib import Path

import pytest

from loadfactor.insight.alerts.rule import Limit, Rule, Threshold, show, show_duration
from loadfactor.insight.alerts.rules import RULES
from loadfactor.metrics import metric

PAGE = Path(__file__).parents[3] / "docs" / "alerts.md"
CANNOT_TELL = "- **When it cannot tell.** "
UNTIL = r"(?=^- \*\*When it cannot tell|^##)"


def write_declared(rule: Rule) -> str:
    """The part of the section of a rule that follows from its declaration."""
    by = f"by {', '.join(rule.by)}" if rule.by else "for the fleet"
    held = f"when it has held for {show_duration(rule.for_s)}" if rule.for_s else "at once"
    lines = [
        f"### {rule.name}",
        "",
        rule.meaning,
        "",
        f"{by.capitalize()}; fires {held}; {rule.severity}; cause: {rule.cause}.",
        "",
        f"- **Ask first.** {rule.ask_first}",
        f"- **Look at next.** {rule.look_next}",
        f'- **Change it.** `rule = "{rule.name}"`; {"; ".join(write_thresholds(rule))}.',
    ]
    return "\n".join(lines) + "\n"


def write_thresholds(rule: Rule) -> list[str]:
    """The thresholds of a rule as settings would say them."""
    condition = rule.condition
    if isinstance(condition, Threshold):
        unit = metric(condition.metric).unit
        return [
            f'`{condition.side} = "{show(condition.limit, unit)}"`, of {metric(condition.metric).title.lower()}',
            f'`clears_at = "{show(condition.clears_at, unit)}"`',
            f'`window = "{show_duration(condition.window_s).replace(" ", "")}"`',
            f"`least_coverage = {condition.least_coverage:g}`",
            f'`for = "{show_duration(rule.for_s).replace(" ", "")}"`',
        ]
    return [
        *(write_limit(name, limit) for name, limit in condition.limits.items()),
        f'`for = "{show_duration(rule.for_s).replace(" ", "")}"`',
    ]


def write_limit(name: str, limit: Limit) -> str:
    unit = "" if limit.unit == "share" else f" {limit.unit}"
    return f"`limits = {{ {name} = {limit.value:g} }}`{unit and ' (' + unit.strip() + ')'}, {limit.meaning}"


def test_the_runbook_says_what_is_declared() -> None:
    """Meaning, what to ask and to look at, thresholds and times of each rule stand in its section."""
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("UPDATE_PAGES"):
        for rule in RULES:
            text = re.sub(rf"^### {rule.name}\n.*?{UNTIL}", lambda _: write_declared(rule), text, flags=re.M | re.S)  # noqa: B023
        PAGE.write_text(text, encoding="utf-8")
    for rule in RULES:
        assert write_declared(rule) in text, f"run UPDATE_PAGES=1 for {rule.name}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_has_a_section_that_its_alerts_link_to(rule: Rule) -> None:
    """The link of an alert ends with the name of a heading, and the section says when nothing can be told."""
    assert rule.runbook == f"docs/alerts.md#{rule.name}"
    (section,) = re.findall(rf"^### {rule.name}\n(.*?)(?=^##|\Z)", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert CANNOT_TELL in section
