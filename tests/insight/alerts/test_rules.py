"""Rules as tables [[alert]] change them, as docs/alerts.md describes them, and on the faults of simulated fleets.

`UPDATE_PAGES=1` writes the sections of docs/alerts.md anew; `benchmarks/alerts.py` simulates many more fleets.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.faults.cases import Case, make_case
from tests.long import rest_long

from loadfactor.base.errors import InputError
from loadfactor.books.books import Books
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.judge import replay
from loadfactor.insight.alerts.rule import Limit, Rule, Threshold, show, show_duration
from loadfactor.insight.alerts.rules import RULES
from loadfactor.metrics import metric
from loadfactor.settings.alerts import AlertTable
from loadfactor.sources.base import Rows, Source


def made(**table: Any) -> Any:
    return configure(RULES, [AlertTable(**table)])


def test_a_shipped_rule_takes_another_threshold_and_keeps_its_distance_to_where_it_clears() -> None:
    """Below 40 % in place of 50 %, it clears at 45 %; a text with % means the same."""
    for below in (0.4, "40 %"):
        rule = next(r for r in made(rule="fleet_utilization_low", below=below, **{"for": "2h"}) if not r.by)
        assert isinstance(rule.condition, Threshold)
        assert (rule.condition.limit, rule.condition.clears_at, rule.for_s) == (0.4, pytest.approx(0.45), 7200)


def test_a_rule_is_switched_off() -> None:
    """A rule that is not enabled is not judged."""
    assert "fleet_utilization_low" not in [r.name for r in made(rule="fleet_utilization_low", enabled=False)]


def test_a_rule_of_ones_own_watches_any_ratio_or_sum() -> None:
    """A name, a metric and a threshold are enough."""
    rule = made(name="hot nodes", metric="temperature_c", by=("node",), above="85 °C", window="5min", **{"for": "0s"})[
        -1
    ]
    assert (rule.name, rule.by, rule.for_s, rule.is_shipped) == ("hot nodes", ("node",), 0.0, False)
    assert (rule.condition.limit, rule.condition.clears_at) == (85.0, pytest.approx(76.5))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"rule": "fleet_utilisation_low"}, "did you mean 'fleet_utilization_low'"),
        ({"rule": "fleet_utilization_low", "below": 40}, "is no share of one"),
        ({"rule": "fleet_utilization_low", "below": "40 W"}, "what it limits is in share"),
        ({"rule": "fleet_utilization_low", "above": 0.4}, "say `below`"),
        ({"rule": "fleet_utilization_low", "clears_at": 0.3}, "give one beyond it"),
        ({"rule": "fleet_utilization_low", "limits": {"share": 1}}, "has no `limits`"),
        ({"name": "x", "metric": "utilisation", "below": 0.4}, "did you mean 'utilization'"),
        ({"name": "x", "metric": "queue_wait_s_p50", "above": 60}, "cannot be watched"),
        ({"name": "x", "metric": "utilization", "below": 0.4, "by": ("hour",)}, "cannot be split by hour"),
        ({"name": "x", "metric": "utilization", "below": 0.4, "by": ("squad",)}, "no dimension called 'squad'"),
        ({"name": "x", "metric": "utilization", "below": "low"}, "is no number"),
        ({"name": "fleet_utilization_low", "metric": "utilization", "below": 0.4}, "a shipped rule has this name"),
    ],
)
def test_what_makes_no_sense_is_refused(table: dict[str, Any], said: str) -> None:
    """The message names the table and what to write instead."""
    with pytest.raises(InputError, match=r"^\[\[alert\]\] of '") as refused:
        made(**table)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"rule": "a", "name": "b"},
        {"name": "x", "metric": "utilization"},
        {"rule": "a", "tresholds": 1},
        {"rule": "a", "for": "soon"},
    ],
)  # fmt: skip
def test_tables_that_say_too_little_or_too_much_are_refused(table: dict[str, Any]) -> None:
    """A table speaks of one rule, and of settings there are."""
    with pytest.raises((ValueError, InputError)):
        AlertTable(**table)


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


SIMULATED = Source("simulated", lambda _paths: (), lambda _paths, _options: ())  # type: ignore[arg-type,return-value]


def make_books(folder: Path, case: Case) -> Books:
    books = Books.open(folder / "books", create=True)
    for name, batches in (("first", case.rows()), ("late", case.late_rows())):
        books.add_rows(SIMULATED, (Rows(batch.table, batch.data) for batch in batches), name)
    return books


@pytest.mark.long
@pytest.mark.parametrize(
    ("kinds", "spoilt"),
    rest_long(
        [
            (("collective_bound", "gpu_hot", "gpu_ecc", "job_became_idle"), {"has_gaps": True, "is_late": True}),
            (("pcie_saturated", "memory_pressure", "gpu_xid", "node_down"), {}),
            (("job_straggler", "gpu_throttled", "notebook_idle", "telemetry_lost"), {"is_late": True}),
            ((), {}),
        ]
    ),
    ids=lambda value: "+".join(value) or "healthy",
)
def test_faults_are_told_and_nothing_else(tmp_path: Path, kinds: tuple[str, ...], spoilt: dict[str, bool]) -> None:
    """Several faults in one fleet, also with gaps and late samples: each is told, and each alert tells of something that was so."""
    case = make_case(4, kinds, **spoilt)
    scene = case.scene
    alerts = replay(make_books(tmp_path, case), RULES, (scene.at_ms(0), scene.at_ms(scene.minutes)))
    explained = [case.explain(a.rule, a.by, a.start_ms, a.end_ms) for a in alerts]
    assert [a for a, of in zip(alerts, explained, strict=True) if not of] == []
    told = [expected for of in explained for expected in of]
    assert [e.rule for e in case.expected if e.is_certain and e not in told] == []


@pytest.mark.long
def test_without_signals_rules_are_silent(tmp_path: Path) -> None:
    """GPU_UTIL and memory alone: full links, waiting and heat cannot be told, and nothing is."""
    case = make_case(4, ("pcie_saturated", "collective_bound", "gpu_hot"), missing="GPU_UTIL and memory only")
    scene = case.scene
    alerts = replay(make_books(tmp_path, case), RULES, (scene.at_ms(0), scene.at_ms(scene.minutes)))
    assert [a for a in alerts if not case.explain(a.rule, a.by, a.start_ms, a.end_ms)] == []
