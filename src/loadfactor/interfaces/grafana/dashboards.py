"""All dashboards, in the order in which they are read: `DASHBOARDS`."""

from collections.abc import Callable
from typing import Final

from loadfactor.interfaces.grafana.cluster import build_cluster
from loadfactor.interfaces.grafana.gauges import Gauges
from loadfactor.interfaces.grafana.job import build_job
from loadfactor.interfaces.grafana.money import build_money
from loadfactor.interfaces.grafana.panels import GrafanaPage
from loadfactor.interfaces.grafana.team import build_team
from loadfactor.interfaces.grafana.telemetry import build_telemetry

DASHBOARDS: Final[tuple[Callable[[Gauges], GrafanaPage], ...]] = (
    build_cluster,
    build_team,
    build_job,
    build_money,
    build_telemetry,
)
