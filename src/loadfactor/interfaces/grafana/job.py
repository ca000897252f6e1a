"""The dashboard of a job: its GPUs by activity, what it made and cost, what its GPUs were busy with."""

from loadfactor.interfaces.gauges.measured import WHOLE
from loadfactor.interfaces.grafana.panels import DAY, Gauges, GrafanaPage, Panel, Row, Variable, find_limit

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
