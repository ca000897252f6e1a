"""Do the tables [[alert]] change and add rules, and are those that make no sense refused in one line?"""

from typing import Any

import pytest

from loadfactor.base.errors import InputError
from loadfactor.insight.alerts.configured import configure
from loadfactor.insight.alerts.rule import Threshold
from loadfactor.insight.alerts.rules import RULES
from loadfactor.settings.alerts import AlertTable


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
