"""The dashboard of a team: how full its GPUs are, what it holds idle, what it pays and how long it waits."""

from loadfactor.interfaces.grafana.panels import DAY, Gauges, GrafanaPage, Panel, Row, Variable, find_limit

TEAM = ("team",)
JOBS = ("job", "team", "user")
GPUS = "suffix: GPUs"


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
