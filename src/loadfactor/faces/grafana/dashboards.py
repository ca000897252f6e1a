"""All dashboards, in the order in which they are read: `DASHBOARDS`."""

from collections.abc import Callable
from typing import Final

from loadfactor.faces.grafana.cluster import build_cluster
from loadfactor.faces.grafana.gauges import Gauges
from loadfactor.faces.grafana.job import build_job
from loadfactor.faces.grafana.money import build_money
from loadfactor.faces.grafana.panels import GrafanaPage
from loadfactor.faces.grafana.team import build_team
from loadfactor.faces.grafana.telemetry import build_telemetry

DASHBOARDS: Final[tuple[Callable[[Gauges], GrafanaPage], ...]] = (
    build_cluster,
    build_team,
    build_job,
    build_money,
    build_telemetry,
)
