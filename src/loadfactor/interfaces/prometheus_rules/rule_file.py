"""Rules for Prometheus as text: what each one says, and of those that PromQL cannot say, that and why."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from loadfactor.base.spelling import spell_out
from loadfactor.base.units import S_PER_MIN
from loadfactor.insight.alerts.rule import Rule

INTERVAL_S: Final = S_PER_MIN
"""How often Prometheus evaluates them: as often as loadfactor judges."""
WIDTH: Final = 110


@dataclass(frozen=True)
class RecordedSeries:
    """A series that other rules read, under a name."""

    record: str
    expression: str
    about: str


@dataclass(frozen=True)
class TranslatedRule:
    """A rule in PromQL. `labels`: what tells its series apart; `remark`: how it differs from the rule of loadfactor."""

    rule: Rule
    expression: str
    labels: Sequence[str]
    unit: str = ""
    remark: str = ""


@dataclass(frozen=True)
class UntranslatedRule:
    """A rule that PromQL cannot express, and why."""

    rule: Rule
    why: str


Written = RecordedSeries | TranslatedRule | UntranslatedRule


def write_rules(about: str, group: str, rules: Sequence[Written], runbooks: str = "") -> str:
    """The file. `runbooks`: the address that links to runbooks begin with; without one they are names in these docs."""
    lines = [
        *_comment(about, ""),
        "groups:",
        f"  - name: {group}",
        f"    interval: {INTERVAL_S // S_PER_MIN}m",
        "    rules:",
    ]
    for item in rules:
        lines.append("")
        if isinstance(item, RecordedSeries):
            lines += _comment(item.about, " " * 6)
            lines += _item({"record": item.record, "expr": _Block(item.expression)})
        elif isinstance(item, UntranslatedRule):
            lines += _comment(f"{item.rule.name}: not translated. {item.why}", " " * 6)
        else:
            lines += _comment(item.remark, " " * 6)
            lines += _item(_describe(item, runbooks))
    return "\n".join(lines) + "\n"


def quote_promql(text: str) -> str:
    """A text as a string of PromQL.

    >>> print(quote_promql('a"b'))
    "a\\"b"
    """
    return json.dumps(text, ensure_ascii=False)


def escape_template(text: str) -> str:
    """A text that Prometheus does not take for a template.

    >>> escape_template("{{ x }}")
    '{{ "{{" }} x }}'
    """
    return spell_out(text).replace("{{", '{{ "{{" }}')


def _describe(one: TranslatedRule, runbooks: str) -> dict[str, Any]:
    rule = one.rule
    who = ", ".join(f"{label} {{{{ $labels.{label} }}}}" for label in one.labels)
    value = {
        "share": "{{ $value | humanizePercentage }}",
        "°C": "{{ $value | humanize }} °C",
    }.get(one.unit, f"{{{{ $value | humanize }}}} {one.unit}")
    facts = [who, f"value {value}" if one.unit else ""]
    page, _, part = rule.runbook.partition("#")
    link = f"{runbooks.rstrip('/')}/{page.removeprefix('docs/')}#{part}" if runbooks else rule.runbook
    annotations = {
        "summary": escape_template(rule.meaning),
        "description": ": ".join(fact for fact in facts if fact),
        "ask_first": escape_template(rule.ask_first),
        "look_next": escape_template(rule.look_next),
        "runbook_url": escape_template(link),
    }
    for_s = max(0.0, rule.for_s - INTERVAL_S)  # the first evaluation speaks of the minute before it
    return {
        "alert": rule.name,
        "expr": _Block(one.expression),
        "for": f"{for_s / S_PER_MIN:g}m" if for_s % S_PER_MIN == 0 else f"{for_s:g}s",
        "labels": {"severity": rule.severity, "cause": rule.cause},
        "annotations": {name: text for name, text in annotations.items() if text},
    }


class _Block(str):
    """A text that is written line by line, as a person reads it."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # yaml has no types
    """Writes such texts as blocks."""


def _represent(dumper: yaml.SafeDumper, text: _Block) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|" if "\n" in text else None)


_Dumper.add_representer(_Block, _represent)


def _item(rule: dict[str, Any]) -> list[str]:
    text = yaml.dump([rule], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
    return [" " * 6 + line if line else "" for line in text.splitlines()]


def _comment(text: str, indent: str) -> list[str]:
    return [
        f"{indent}# {line}" if line else f"{indent}#"
        for part in text.splitlines()
        for line in (textwrap.wrap(spell_out(part), WIDTH - len(indent)) or [""])
    ]
