"""Values that rules compared with their thresholds, as pages of alerts say them, beside `show` at the window of each."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from tests.identities.fleet import Fleet
from tests.identities.metric_places import WATCHED
from tests.identities.values import Value, Values

from loadfactor.base.clock import now_ms
from loadfactor.base.units import MS_PER_HOUR
from loadfactor.insight.alerts.delivery.outbox import Judged, Outbox
from loadfactor.insight.alerts.judge import STEP_MS, Judge
from loadfactor.insight.alerts.rule import Threshold
from loadfactor.insight.alerts.rules import RULES
from loadfactor.metrics.query.calendar import instant, milliseconds

OF_RATES: Final = {
    rule.name: rule for rule in RULES if isinstance(rule.condition, Threshold) and rule.condition.metric == WATCHED
}
JUDGED_H: Final = 4
"""So long before the books end rules are judged."""
MOST: Final = 6
"""So many alerts of a fleet are compared."""


def find_span(fleet: Fleet) -> tuple[int, int]:
    """The hours that are judged, whole minutes."""
    end = milliseconds(fleet.books.span[1]) // STEP_MS * STEP_MS
    return end - JUDGED_H * MS_PER_HOUR, end


def judge(fleet: Fleet) -> bool:
    """Judge these hours and keep what came of it, as the server does; of one fleet in four."""
    if not fleet.draws:
        return False
    start, end = find_span(fleet)
    own = Judge(tuple(OF_RATES.values()), start)
    with fleet.books.watch() as watched:
        transitions = own.step(watched, end)
    outbox = Outbox(fleet.books.store.folder)
    outbox.begin((), now_ms())
    outbox.keep(Judged(own.judged_ms, own.dump(), own.alive), transitions, (), now_ms())
    outbox.close()
    return True


def name(alert: Mapping[str, Any], judged: str | None = None) -> str:
    """The rule, the group, and the minute at whose end the value was compared: that of now while an alert is pending."""
    return f"{alert['rule']}, {', '.join(alert['by'].values())}, {alert['fired'] or judged}"


def replay(fleet: Fleet) -> Mapping[str, Any]:
    """Alerts of `alerts test`, by name."""
    if not fleet.draws:
        return {}
    start, end = (instant(at).isoformat() for at in find_span(fleet))
    found = fleet.page("alerts test", rule=tuple(OF_RATES), start=start, end=end)["alerts"]
    return {name(of): of for of in found}


def list_board(found: Any) -> Mapping[str, Any]:
    """Alerts of a board in JSON, by name."""
    return {name(of, found["judged"]): of for of in found["alerts"]}


def read_page(fleet: Fleet) -> Mapping[str, Any]:
    """Those of `alerts`."""
    return list_board(fleet.page("alerts", ended=True)) if fleet.once("judged", judge) else {}


def get_alerts(fleet: Fleet) -> Mapping[str, Any]:
    """Those of the server."""
    return list_board(fleet.get("/api/v1/alerts", state="all")) if fleet.once("judged", judge) else {}


def see_alerts(fleet: Fleet) -> Mapping[str, Any]:
    """Those of its page."""
    return list_board(fleet.get("/alerts", format="json")) if fleet.once("judged", judge) else {}


def choose(fleet: Fleet) -> tuple[str, ...]:
    """The first few of all, which are compared."""
    return tuple(sorted({**replay(fleet), **read_page(fleet)})[:MOST])


def list_values(fleet: Fleet, found: Mapping[str, Any]) -> Values:
    """Their values."""
    return {of: found[of]["value"] for of in fleet.once("chosen", choose) if of in found}


def read_show(fleet: Fleet) -> Values:
    """What `show` says of the window before the same minutes."""
    out: dict[str, Value] = {}
    for of in fleet.once("chosen", choose):
        rule_name, group, at = of.split(", ")
        rule, end = OF_RATES[rule_name], datetime.fromisoformat(at)
        assert isinstance(rule.condition, Threshold)
        start = end - timedelta(seconds=rule.condition.window_s)
        asked = {"start": start.isoformat(), "end": end.isoformat(), "metrics": (WATCHED,), "by": rule.by}
        out[of] = find_group(fleet.page("show", **asked), group)
    return out


def find_group(readings: Iterable[Any], group: str) -> Value:
    """The value of a group, "" being the fleet."""
    return next((of["value"] for of in readings if ", ".join(of["by"].values()) == group), None)
