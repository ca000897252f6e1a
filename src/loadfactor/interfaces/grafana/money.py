"""The dashboard of money: what is paid, for what, by whom, and where budgets stand."""

from loadfactor.interfaces.grafana.panels import DAY, Gauges, GrafanaPage, Panel, Query, Row, find_limit

PARTS = ("effective", "underused", "idle", "unobserved", "unallocated", "unattributed", "down")
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
                    ask(f"{part}_cost", legend=part) for part in PARTS
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
