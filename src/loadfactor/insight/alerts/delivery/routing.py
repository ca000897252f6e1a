"""Which receiver is told of which alert, and when it is tried again."""

from typing import Final

from loadfactor.base.units import MS_PER_S
from loadfactor.insight.alerts.alert import Alert
from loadfactor.insight.alerts.delivery.silence import matches
from loadfactor.settings.alerts import AlertReceiver

FIRST_WAIT_S: Final = 2.0
LONGEST_WAIT_S: Final = 300.0
_MOST_DOUBLINGS: Final = 20


def wants(receiver: AlertReceiver, alert: Alert) -> bool:
    """Whether a receiver is told of an alert: by its rule, its severity, and the team it is of."""
    team = alert.by.get("team", alert.holder.get("team"))
    return (
        (not receiver.rules or any(matches(alert.rule, rule) for rule in receiver.rules))
        and (not receiver.severities or alert.severity in receiver.severities)
        and (not receiver.teams or team in receiver.teams)
    )


def wait_ms(attempts: int, luck: float) -> int:
    """How long to wait after so many attempts that failed: twice as long each time, less up to half of it by `luck` in [0, 1).

    >>> wait_ms(1, 0.0), wait_ms(2, 0.0), wait_ms(2, 0.5), wait_ms(50, 0.0)
    (2000, 4000, 3000, 300000)
    """
    longest: float = min(FIRST_WAIT_S * 2 ** min(attempts - 1, _MOST_DOUBLINGS), LONGEST_WAIT_S)
    return round(longest * (1 - luck / 2) * MS_PER_S)
