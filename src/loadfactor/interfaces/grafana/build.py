"""Pages as dashboards of Grafana's own builders: the only module that knows them, imported when a dashboard is written."""

import json
from itertools import count
from string import ascii_uppercase
from typing import Any, Final
from urllib.parse import quote

from grafana_foundation_sdk.builders import barchart, bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shown
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from loadfactor.interfaces.grafana.panels import GrafanaPage, Panel, PanelLimit, Query

TAG: Final = "loadfactor"
SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
BUILDERS: Final[dict[str, Any]] = {
    "stat": stat.Panel,
    "timeseries": timeseries.Panel,
    "bargauge": bargauge.Panel,
    "barchart": barchart.Panel,
    "table": table.Panel,
}
QUOTABLE: Final = r"/^[^\\\x00-\x1f]*$/"
"""Names that can be chosen: Grafana escapes quotes in a name, but neither backslashes nor line breaks."""
SHADED_PERCENT: Final = 10
STACKED_PERCENT: Final = 60


def write_dashboard(page: GrafanaPage, runbooks: str) -> str:
    """The JSON of a page. `runbooks`: the address that links to the documentation begin with; without one there are none."""
    made: Any = (
        dashboard.Dashboard(f"loadfactor: {page.title}")
        .uid(page.uid)
        .description(page.about)
        .tags([TAG])
        .timezone("browser")
        .time("now-24h", "now")
        .refresh("1m")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(
            dashboard.DashboardLink("loadfactor")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .keep_time(True)
            .include_vars(True)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for variable in page.variables:
        made = made.with_variable(
            dashboard.QueryVariable(variable.label)
            .label(variable.title)
            .datasource(SOURCE)
            .query({"query": f"label_values({variable.gauge}, {variable.label})", "refId": variable.label})
            .regex(QUOTABLE)
            .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(model.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
        )
    ids = count(1)
    for row in page.rows:
        made = made.with_row(dashboard.Row(row.title).id(next(ids)))
        for panel in row.panels:
            made = made.with_panel(_draw(panel, row.height, runbooks).id(next(ids)))
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _draw(panel: Panel, height: int, runbooks: str) -> Any:
    made = (
        BUILDERS[panel.kind]()
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit)
        .height(height)
        .span(panel.width)
        .no_value("not known")
    )
    for number, query in enumerate(panel.queries):
        made = made.with_target(_ask(query, ascii_uppercase[number], panel))
    if panel.limit:
        made = made.thresholds(_colour(panel.limit))
        if runbooks:
            made = made.links([_link("Runbook", f"{runbooks.rstrip('/')}/alerts.md#{quote(panel.limit.rule)}", True)])
    else:
        made = made.thresholds(_steps([(None, "green")]))
    if panel.opens:
        # A link of a series to the dashboard about what its label names.
        page, _, label = panel.opens.partition(":")
        value = f"${{__field.labels.{label}:percentencode}}"
        made = made.data_links(
            [_link(f"Open {label}", f"/d/loadfactor-{page}?var-{label}={value}&${{__url_time_range}}", False)]
        )
    return _dress(made, panel)


def _ask(query: Query, ref: str, panel: Panel) -> Any:
    made = prometheus.Dataquery().expr(query.expression).legend_format(query.legend).ref_id(ref).datasource(SOURCE)
    if panel.is_now or panel.kind == "stat":
        made = made.instant()
    else:
        made = made.range()
    return made.format(PromQueryFormat.TABLE if panel.matrix else PromQueryFormat.TIME_SERIES)


def _dress(made: Any, panel: Panel) -> Any:
    if panel.kind == "timeseries":
        made = made.fill_opacity(STACKED_PERCENT if panel.is_stacked else SHADED_PERCENT).min(0)
        made = made.legend(
            common.VizLegendOptions()
            .display_mode(shown.LegendDisplayMode.LIST)
            .placement(shown.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        if panel.is_stacked:
            made = made.stacking(common.StackingConfig().mode(shown.StackingMode.NORMAL).group("A"))
        if panel.limit:
            made = made.thresholds_style(
                common.GraphThresholdsStyleConfig().mode(shown.GraphThresholdsStyleMode.DASHED)
            )
        if panel.unit == "percentunit":
            made = made.axis_soft_max(1)
    if panel.kind in ("stat", "bargauge"):
        made = made.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    if panel.kind == "stat":
        made = made.graph_mode(shown.BigValueGraphMode.NONE)
        several = len(panel.queries) > 1 or "__name__" in panel.queries[0].expression
        made = made.text_mode(shown.BigValueTextMode.VALUE_AND_NAME if several else shown.BigValueTextMode.VALUE)
    if panel.kind == "bargauge":
        made = made.orientation(shown.VizOrientation.HORIZONTAL).display_mode(shown.BarGaugeDisplayMode.BASIC).min(0)
        if panel.unit == "percentunit":
            made = made.max(1)
    if panel.matrix:
        row, column = panel.matrix
        options = {"rowField": row, "columnField": column, "valueField": "Value", "emptyValue": "null"}
        made = made.with_transformation(model.DataTransformerConfig(id_val="groupingToMatrix", options=options))
        made = made.x_field(f"{row}\\{column}")
    return made


def _colour(limit: PanelLimit) -> Any:
    """Colours of a limit: red on the bad side, yellow up to where the rule is clear again."""
    if limit.is_floor:
        return _steps([(None, "red"), (limit.limit, "yellow"), (limit.clears_at, "green")])
    if limit.clears_at < limit.limit:
        return _steps([(None, "green"), (limit.clears_at, "yellow"), (limit.limit, "red")])
    return _steps([(None, "green"), (limit.limit, "red")])


def _steps(steps: list[tuple[float | None, str]]) -> Any:
    made = [model.Threshold(value=value, color=colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(made)


def _link(title: str, url: str, is_new_tab: bool) -> Any:
    return dashboard.DashboardLink(title).type(model.DashboardLinkType.LINK).url(url).target_blank(is_new_tab)
