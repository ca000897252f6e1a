"""The dashboards: cluster, team, job, money and telemetry, each a page of rows of panels over the gauges of `/metrics`."""

from loadfactor.interfaces.gauges.measured import WHOLE
from loadfactor.interfaces.grafana.panels import DAY, Gauges, GrafanaPage, Panel, Query, Row, Variable, find_limit

STATES = ("busy", "idle", "unobserved", "unallocated", "down")
IN_MEAN = "Mean of the last hour: GPU-hours of one hour are GPUs."
GPUS = "suffix: GPUs"


def build_cluster(gauges: Gauges) -> GrafanaPage:
    """Average utilization of an hour and a day, idle GPU-hours a day, and the distribution of waits."""
    ask, low = gauges.ask, find_limit("fleet_utilization_low")
    return GrafanaPage(
        "cluster",
        "Cluster",
        "How full the fleet is, what stands idle and who waits.",
        (
            Row("Now", (
                Panel("stat", "Average utilization, 1 h", [ask("utilization")], 4, low),
                Panel("stat", "Average utilization, 24 h", [ask("utilization", window=DAY)], 4, low),
                Panel("stat", "Load factor, 24 h", [ask("load_factor", window=DAY)], 4),
                Panel("stat", "Idle GPU-hours per day", [ask("idle_gpu_hours", window=DAY)], 4),
                Panel("stat", "Free GPUs", [ask("unallocated_gpu_hours", unit=GPUS)], 4, about=f"Held by nobody. {IN_MEAN}"),
                Panel("stat", "Jobs that wait", [ask("queue_waiting")], 4),
            ), height=5),
            Row("Utilization", (
                Panel("timeseries", "Average utilization", [
                    ask("utilization", legend="last hour"), ask("utilization", window=DAY, legend="last 24 h"),
                    ask("load_factor", window=DAY, legend="load factor, 24 h"),
                ], 12, low),
                Panel("timeseries", "Average utilization by team, 1 h", [
                    ask("utilization", ("team",), legend="{{team}}"),
                ], 12, find_limit("team_utilization_low"), opens="team:team"),
            )),
            Row("GPU-hours", (
                Panel("timeseries", "What the GPUs do", [
                    ask(f"{state}_gpu_hours", legend=state, unit=GPUS) for state in STATES
                ], 12, about=f"Every GPU in one state. {IN_MEAN}", is_stacked=True),
                Panel("bargauge", "Idle GPU-hours per day, by team", [
                    ask("idle_gpu_hours", ("team",), DAY, legend="{{team}}", template="sort_desc({} > 0)"),
                ], 6, is_now=True, opens="team:team"),
                Panel("bargauge", "Free GPUs by pool", [
                    ask("unallocated_gpu_hours", ("pool",), legend="{{pool}}", unit=GPUS),
                ], 6, about=f"Held by nobody. {IN_MEAN}", is_now=True),
            )),
            Row("Queue", (
                Panel("bargauge", "Distribution of waits, 24 h", [
                    ask(f"queue_wait_s_{q}{of}", window=DAY, legend=f"{q} of {'GPUs' if of else 'jobs'}")
                    for of in ("", "_gpu_weighted") for q in ("p50", "p90", "p99")
                ], 8, is_now=True),
                Panel("timeseries", "Waits of jobs that started in the last 24 h", [
                    ask(f"queue_wait_s_{q}", window=DAY, legend=q) for q in ("p50", "p90", "p99", "mean")
                ], 8),
                Panel("timeseries", "Jobs that wait, by pool", [
                    ask("queue_waiting", ("pool",), legend="{{pool}}"),
                ], 8),
            )),
            Row("Largest jobs and nodes", (
                Panel("bargauge", "Idle GPU-hours of jobs, 24 h", [
                    ask("idle_gpu_hours", ("job",), DAY, legend="{{job_id}}", template="topk(15, {})"),
                ], 12, is_now=True, opens="job:job_id"),
                Panel("bargauge", "Least used nodes, 1 h", [
                    ask("utilization", ("node",), legend="{{node}}", template="bottomk(15, {})"),
                ], 12, low, is_now=True, opens="telemetry:node"),
            )),
        ),
    )  # fmt: skip


TEAM = ("team",)
JOBS = ("job", "team", "user")


def build_team(gauges: Gauges) -> GrafanaPage:
    """Utilization, held and idle GPU-hours, cost, unit costs and waits of one team."""
    ask, low = gauges.ask, find_limit("team_utilization_low")
    variable = Variable("team", "Team", gauges.select("paid_gpu_hours", TEAM, "", 'team!~"[(].*[)]"'))
    where = variable.matcher
    return GrafanaPage(
        "team",
        "Team",
        "What one team holds, uses, waits for and pays.",
        (
            Row("Now", (
                Panel("stat", "Utilization, 1 h", [ask("utilization", TEAM, "", where)], 4, low),
                Panel("stat", "Utilization, 24 h", [ask("utilization", TEAM, DAY, where)], 4, low),
                Panel("stat", "GPUs held", [ask("allocated_gpu_hours", TEAM, "", where, unit=GPUS)], 4,
                      about="Mean of the last hour."),
                Panel("stat", "Idle GPU-hours per day", [ask("idle_gpu_hours", TEAM, DAY, where)], 4),
                Panel("stat", "Cost per day", [ask("cost", TEAM, DAY, where)], 4),
                Panel("stat", "Cost per effective GPU-hour, 24 h", [
                    ask("cost_per_effective_gpu_hour", TEAM, DAY, where),
                ], 4),
            ), height=5),
            Row("In time", (
                Panel("timeseries", "Utilization", [
                    ask("utilization", TEAM, "", where, legend="last hour"),
                    ask("utilization", TEAM, DAY, where, legend="last 24 h"),
                ], 12, low),
                Panel("timeseries", "GPUs held", [
                    ask(f"{state}_gpu_hours", TEAM, "", where, legend=state, unit=GPUS)
                    for state in ("busy", "idle", "unobserved")
                ], 12, about="Mean of the last hour.", is_stacked=True),
            )),
            Row("Its jobs, 1 h", (
                Panel("bargauge", "Utilization of its jobs", [
                    ask("utilization", JOBS, "", where, legend="{{job_id}} ({{user}})", template="sort({})"),
                ], 8, find_limit("job_utilization_low"), is_now=True, opens="job:job_id"),
                Panel("bargauge", "GPUs held by its jobs", [
                    ask("paid_gpu_hours", JOBS, "", where, "{{job_id}} ({{user}})", "sort_desc({})", GPUS),
                ], 8, about="Mean of the last hour.", is_now=True, opens="job:job_id"),
                Panel("bargauge", "Cost per hour of its jobs", [
                    ask("cost", JOBS, "", where, legend="{{job_id}} ({{user}})", template="sort_desc({})"),
                ], 8, is_now=True, opens="job:job_id"),
            ), height=12),
            Row("Cost and waits", (
                Panel("stat", "Cost of one unit of work, 24 h", [gauges.unit_costs(TEAM, DAY, where)], 12, is_now=True),
                Panel("bargauge", "Distribution of waits, 24 h", [
                    ask(f"queue_wait_s_{q}", TEAM, DAY, where, legend=q) for q in ("p50", "p90", "p99", "mean")
                ], 12, is_now=True),
            )),
        ),
        (variable,),
    )  # fmt: skip


JOB = ("job",)
SIGNALS = ("gpu_util", "sm_activity", "tensor_activity")
TRAFFIC = ("pcie_saturation", "nvlink_saturation", "throttled_share")


def build_job(gauges: Gauges) -> GrafanaPage:
    """The histogram of each GPU, unit costs, effective GPU-hours and total cost."""
    ask, low, pressed = gauges.ask, find_limit("job_utilization_low"), find_limit("memory_pressure", "used")
    variable = Variable("job_id", "Job", gauges.select("paid_gpu_hours", JOB))
    where = variable.matcher

    def whole(name: str, title: str) -> Panel:
        return Panel(
            "stat", title, [ask(name, JOB, WHOLE, where)], 4, about="Since the job began, of the largest jobs of now."
        )

    return GrafanaPage(
        "job",
        "Job",
        "What one job did with its GPUs, and what that cost.",
        (
            Row("In all", (
                Panel("stat", "Utilization, 1 h", [ask("utilization", JOB, "", where)], 4, low),
                whole("utilization", "Utilization since it began"),
                whole("effective_gpu_hours", "Effective GPU-hours"),
                whole("cost", "Total cost"),
                whole("cost_per_effective_gpu_hour", "Cost per effective GPU-hour"),
                whole("idle_gpu_hours", "Idle GPU-hours"),
            ), height=5),
            Row("Its GPUs", (
                Panel("barchart", "Histogram of each GPU: GPU-hours by activity, 24 h", [
                    ask("utilization_histogram", ("job", "device"), DAY, where, legend="{{device_id}} {{activity}}"),
                ], 16, is_now=True, matrix=("activity", "device_id")),
                Panel("bargauge", "Utilization of each GPU, 24 h", [
                    ask("utilization", ("job", "device"), DAY, where, legend="{{device_id}}", template="sort({})"),
                ], 8, low, is_now=True),
            ), height=12),
            Row("Unit costs", (
                Panel("stat", "Cost of one unit of work, 24 h", [gauges.unit_costs(JOB, DAY, where)], 12, is_now=True),
                Panel("timeseries", "Cost per hour", [
                    ask("cost", JOB, "", where, legend="cost"), ask("idle_cost", JOB, "", where, legend="of it idle"),
                ], 12),
            )),
            Row("What its GPUs were busy with, mean of the last hour", (
                Panel("timeseries", "Activity", [ask(name, JOB, "", where) for name in SIGNALS], 8, low),
                Panel("timeseries", "Links and throttling", [ask(name, JOB, "", where) for name in TRAFFIC], 8),
                Panel("timeseries", "Memory", [
                    ask("mem_utilization", JOB, "", where), ask("mem_utilization_peak", JOB, "", where),
                ], 8, pressed),
            )),
        ),
        (variable,),
    )  # fmt: skip


COST_PARTS = ("effective", "underused", "idle", "unobserved", "unallocated", "unattributed", "down")
"""Every cost is in one of them."""


def build_money(gauges: Gauges) -> GrafanaPage:
    """Cost rates, where the money goes, unit costs and budgets."""
    ask = gauges.ask
    return GrafanaPage(
        "money",
        "Money",
        "What is paid, for what and by whom.",
        (
            Row("Now", (
                Panel("stat", "Cost per hour", [ask("cost")], 6),
                Panel("stat", "Cost per day", [ask("cost", window=DAY)], 6),
                Panel("stat", "Idle cost per day", [ask("idle_cost", window=DAY)], 6),
                Panel("stat", "Cost per effective GPU-hour, 24 h", [
                    ask("cost_per_effective_gpu_hour", window=DAY),
                ], 6),
            ), height=5),
            Row("Where it goes", (
                Panel("timeseries", "Cost per hour by what it bought", [
                    ask(f"{part}_cost", legend=part) for part in COST_PARTS
                ], 12, is_stacked=True),
                Panel("timeseries", "Cost per effective GPU-hour", [
                    ask("cost_per_effective_gpu_hour", legend="last hour"),
                    ask("cost_per_effective_gpu_hour", window=DAY, legend="last 24 h"),
                ], 12),
            )),
            Row("Who pays, 24 h", (
                Panel("bargauge", "Cost by team", [
                    ask("cost", ("team",), DAY, legend="{{team}}", template="sort_desc({})"),
                ], 8, is_now=True, opens="team:team"),
                Panel("bargauge", "Idle cost by team", [
                    ask("idle_cost", ("team",), DAY, legend="{{team}}", template="sort_desc({} > 0)"),
                ], 8, is_now=True, opens="team:team"),
                Panel("bargauge", "Cost by pool", [
                    ask("cost", ("pool",), DAY, legend="{{pool}}", template="sort_desc({})"),
                ], 8, is_now=True),
            )),
            Row("Unit costs and jobs, 24 h", (
                Panel("stat", "Cost of one unit of work", [gauges.unit_costs((), DAY)], 12, is_now=True),
                Panel("bargauge", "Most expensive jobs", [
                    ask("cost", ("job",), DAY, legend="{{job_id}}", template='topk(15, {})'),
                ], 12, is_now=True, opens="job:job_id"),
            )),
            Row("Budgets", (
                Panel("bargauge", "Budgets: spent and forecast", _list_budgets(gauges), 12, is_now=True),
                Panel("bargauge", "Forecast of the period ÷ budget", [
                    Query("loadfactor_budget_forecast_ratio", "percentunit", "{{budget}}",
                          "What the period will come to ÷ the budget."),
                ], 6, find_limit("budget_burn", "forecast"), is_now=True),
                Panel("bargauge", "Burn rate", [
                    Query("loadfactor_budget_burn_ratio", "percentunit", "{{budget}}",
                          "The part of the budget that is spent ÷ the part of the period that has passed."),
                ], 6, is_now=True),
            )),
        ),
    )  # fmt: skip


def _list_budgets(gauges: Gauges) -> list[Query]:
    currency = gauges.currency.lower()
    parts = (("", "budget"), ("_spent", "spent"), ("_forecast", "forecast"))
    about = "Of each configured budget, in its period."
    return [
        Query(f"loadfactor_budget{part}_{currency}", gauges.money, f"{{{{budget}}}}: {word}", about)
        for part, word in parts
    ]


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
