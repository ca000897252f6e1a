"""The rules over loadfactor's own metrics: Prometheus takes them, and each fires, stays and ends as it should."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.interfaces.prometheus_rules.promtool import Story, check_rules, needs_promtool, play

from loadfactor.base.units import S_PER_MIN
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.rule import Rule, Threshold
from loadfactor.insight.alerts.rules import RULES
from loadfactor.interfaces.gauges.rules import CONDITION, name_labels, name_watched
from loadfactor.interfaces.prometheus_rules.files import list_own_rules, write_for
from loadfactor.settings.alerts import AlertTable

SETTLE = 20
"""Minutes before and between the parts of a story."""


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file."""
    path = tmp_path_factory.mktemp("rules") / "loadfactor.rules.yml"
    path.write_text(write_for("loadfactor", RULES, "USD", "")[0])
    return path


def levels(rule: Rule) -> tuple[str, float | None, float, float]:
    """The gauge of a rule, and values of it that are clear of the limit, beyond it, and between both."""
    condition = rule.condition
    if not isinstance(condition, Threshold):
        return CONDITION, None, 1.0, 0.5
    away = 0.01 * abs(condition.limit) * (1 if condition.side == "below" else -1)
    between = (condition.limit + condition.clears_at) / 2
    return name_watched(rule, "USD"), condition.clears_at + away, condition.limit - away, between


@needs_promtool
def test_prometheus_takes_them(rules: Path) -> None:
    """Every rule is in the file, with severity, cause, meaning, questions and its runbook."""
    assert f"SUCCESS: {len(RULES)} rules found" in check_rules(rules)
    written = {one["alert"]: one for one in yaml.safe_load(rules.read_text())["groups"][0]["rules"]}
    assert list(written) == [rule.name for rule in RULES]
    for rule in RULES:
        one = written[rule.name]
        assert one["labels"] == {"severity": rule.severity, "cause": rule.cause}
        assert one["annotations"]["summary"] == rule.meaning
        assert one["annotations"]["ask_first"] == rule.ask_first
        assert one["annotations"]["runbook_url"] == f"docs/alerts.md#{rule.name}"


@needs_promtool
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_fires_stays_and_ends(rule: Rule, rules: Path, tmp_path: Path) -> None:
    """Beyond its limit for long enough it fires; it stays where the value is not clear yet, and ends where it is."""
    gauge, clear, bad, between = levels(rule)
    held = max(int(rule.for_s // S_PER_MIN) - 1, 0)  # after the first evaluation
    by = {name: f"some {name}" for name in name_labels(rule)}
    labels = ",".join(f'{name}="{value}"' for name, value in {"rule": rule.name, **by}.items())
    series = f"{gauge}{{{labels}}}"
    course = [*[clear] * SETTLE, *[bad] * (held + SETTLE), *[between] * SETTLE, *[clear] * SETTLE]
    fires, stays = SETTLE + held, 2 * SETTLE + held
    told: dict[int, list[dict[str, str]]] = {
        0: [],
        SETTLE - 1: [],
        fires: [by],
        stays + 5: [by],
        stays + SETTLE + 6: [],
    }
    if held:
        told[fires - 1] = []
    hardly = [*[clear] * SETTLE, *[bad] * max(held - 1, 0), *[clear] * (2 * SETTLE)]
    unknown: list[float | None] = [*[clear] * SETTLE, *[None] * (held + SETTLE)]
    stays_clear = [between] * (held + 2 * SETTLE)
    never = {minute: [] for minute in range(0, held + 2 * SETTLE, 5)}
    stories = [Story({series: course}, rule.name, told)]
    stories += [Story({series: other}, rule.name, never) for other in (hardly, unknown, stays_clear)]
    play(tmp_path, rules, stories)


@needs_promtool
def test_rules_of_the_settings_are_written(tmp_path: Path) -> None:
    """A rule that settings change, switch off or add is so in the file, whatever its words are."""
    tables = (
        AlertTable(rule="fleet_utilization_low", below="40 %", **{"for": "2h"}),
        AlertTable(rule="team_utilization_low", enabled=False),
        AlertTable(
            name='hot" or vector(1) # {{ .x }}', metric="temperature_c", by=("node",), above="75 °C", window="10min",
            meaning='{{ query "up" }} "quoted"\nsecond line', ask_first="why: # not?",
        ),
    )  # fmt: skip
    path = tmp_path / "rules.yml"
    path.write_text(write_for("loadfactor", configure(RULES, tables), "USD", "https://docs.example/lf/")[0])
    check_rules(path)
    written = {one["alert"]: one for one in yaml.safe_load(path.read_text())["groups"][0]["rules"]}
    assert written["fleet_utilization_low"]["for"] == "119m"
    assert "< 0.4\n" in written["fleet_utilization_low"]["expr"]
    assert (
        written["fleet_utilization_low"]["annotations"]["runbook_url"]
        == "https://docs.example/lf/alerts.md#fleet_utilization_low"
    )
    assert "team_utilization_low" not in written
    added = written['hot" or vector(1) # {{ .x }}']
    assert (
        'loadfactor_watched_10m_node_temperature_celsius{rule="hot\\" or vector(1) # {{ .x }}"} > 75' in added["expr"]
    )
    assert added["annotations"]["summary"].startswith('{{ "{{" }} query "up" }}')
    assert "\n" not in added["annotations"]["summary"]


def test_a_condition_that_promql_cannot_say_is_named() -> None:
    """The file says of each such rule that it asks loadfactor, and why."""
    (own,) = list_own_rules([rule for rule in RULES if not isinstance(rule.condition, Threshold)][:1], "USD") or [None]
    if own is None:
        pytest.skip("all rules are thresholds")
    text = write_for("loadfactor", RULES, "USD", "")[0]
    for rule in RULES:
        if not isinstance(rule.condition, Threshold):
            assert f"# {rule.name}: PromQL cannot say this condition" in text


def test_a_limit_without_hysteresis_is_one_comparison() -> None:
    """Where a rule is clear at its limit there is nothing to stay for."""
    rule = RULES[0]
    assert isinstance(rule.condition, Threshold)
    bare = replace(rule, condition=replace(rule.condition, clears_at=rule.condition.limit))
    assert "ALERTS" not in write_for("loadfactor", [bare], "USD", "")[0].split("groups:")[1]
