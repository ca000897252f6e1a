"""The dashboard of telemetry: how much of the fleet is seen, when each source was heard of, what was lost on the way."""

from loadfactor.interfaces.grafana.panels import DAY, Gauges, GrafanaPage, Panel, Query, Row, Variable, find_limit

NODE = ("node",)
SERVER = "loadfactor_server_"


def build_telemetry(gauges: Gauges) -> GrafanaPage:
    """Unobserved time, coverage, age of samples, and samples lost; and of one node."""
    ask, hot = gauges.ask, find_limit("gpu_hot", "temperature_c")
    variable = Variable("node", "Node", gauges.select("paid_gpu_hours", NODE))
    where = variable.matcher
    seen = 'metric="utilization"'
    return GrafanaPage(
        "telemetry",
        "Telemetry quality",
        "How much of the fleet is seen: what is not seen is unknown, never idle.",
        (
            Row("Now", (
                Panel("stat", "Held time not observed, 1 h", [_unseen(gauges, "")], 6),
                Panel("stat", "Held time not observed, 24 h", [_unseen(gauges, DAY)], 6),
                Panel("stat", "The books know through", [
                    Query("time() - loadfactor_books_end_timestamp_seconds", "s", "ago", "How long ago the books end."),
                ], 6),
                Panel("stat", "Samples not readable yet", [
                    Query(f"{SERVER}lag_seconds", "s", "lag", "How long the oldest sample waits that readers cannot see yet."),
                ], 6),
            ), height=5),
            Row("Coverage", (
                Panel("bargauge", "Known of each metric, 1 h", [gauges.cover(legend="{{metric}}")], 8, is_now=True),
                Panel("timeseries", "Known of utilization, by team", [
                    gauges.cover(("team",), "", f'{seen},team!~"[(].*[)]"', "{{team}}"),
                ], 8, opens="team:team"),
                Panel("bargauge", "Nodes with most unobserved GPU-hours, 1 h", [
                    ask("unobserved_gpu_hours", NODE, legend="{{node}}", template="topk(15, {})"),
                ], 8, is_now=True),
            ), height=10),
            Row("Sources", (
                Panel("timeseries", "Age of the last sample", [
                    Query(f"time() - {SERVER}source_last_sample_timestamp_seconds", "s", "{{source}}",
                          "How long ago the last sample of each source was taken."),
                ], 12),
                Panel("timeseries", "Sources that are well", [
                    Query(f"{SERVER}source_up", "bool_yes_no", "{{source}}", "1 where a source is well."),
                ], 6),
                Panel("timeseries", "Errors of sources, 1 h", [
                    _count("sum by (source) (increase({}source_errors_total[1h]))", "{{source}}"),
                ], 6),
            )),
            Row("Samples", (
                Panel("timeseries", "Samples received", [
                    Query(f"sum(rate({SERVER}rows_received_total[5m]))", "suffix: samples/s", "samples",
                          "Mean of five minutes."),
                ], 8),
                Panel("timeseries", "Samples lost, 1 h", [
                    _count("sum(increase({0}rows_received_total[1h])) - sum(increase({0}rows_acknowledged_total[1h]))",
                           "not acknowledged"),
                    _count("sum(increase({}rows_not_understood_total[1h]))", "not understood"),
                ], 8),
                Panel("timeseries", "Requests refused, 1 h", [
                    _count("(sum(increase({}refused_total[1h])) or vector(0))", "refused"),
                ], 8),
            )),
            Row("One node", (
                Panel("timeseries", "Its GPUs", [
                    ask(f"{state}_gpu_hours", NODE, "", where, legend=state, unit="suffix: GPUs")
                    for state in ("paid", "allocated", "idle", "unobserved", "down")
                ], 8, about="Mean of the last hour."),
                Panel("timeseries", "Highest temperature, 1 h", [ask("temperature_c_max", NODE, "", where)], 8, hot),
                Panel("timeseries", "Throttled, 1 h", [ask("throttled_share", NODE, "", where)], 8),
            )),
        ),
        (variable,),
    )  # fmt: skip


def _unseen(gauges: Gauges, window: str) -> Query:
    known = gauges.cover((), window, 'metric="utilization"').expression
    return Query(f"1 - {known}", "percentunit", "not observed", "Held GPU-hours without a valid sample ÷ all held.")


def _count(expression: str, legend: str) -> Query:
    """How many things that a counter of the server counts, by the process that runs now."""
    return Query(expression.format(SERVER), "short", legend, "Counted by the server since it runs.")
