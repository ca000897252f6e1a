"""The dashboard of the cluster: how full it is, what stands idle, who waits."""

from loadfactor.interfaces.grafana.panels import DAY, Gauges, GrafanaPage, Panel, Row, find_limit

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
