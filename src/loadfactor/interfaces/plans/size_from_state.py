"""Page of a cluster's size where only its counts or an hourly demand are known, not its jobs."""

from loadfactor.base.units import S_PER_DAY
from loadfactor.interfaces.charts import Chart, Reference, Series
from loadfactor.interfaces.document import Assumption, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import counted, duration, money, number, percent
from loadfactor.interfaces.plans.load_duration import draw_load_duration
from loadfactor.planner.sizing.state_plan import IdleReasons, StatePlan
from loadfactor.sources.demand import DemandTrace, StateTrace


def build_state_document(trace: StateTrace | DemandTrace, plan: StatePlan, prices: tuple[Assumption, ...]) -> Document:
    """The page of a plan; where the counts tell it, also why GPUs stood idle while jobs waited."""
    sections = [_draw_plans(plan), Section(charts=(_chart_series(trace),))]
    if plan.why_idle is not None:
        sections.append(_draw_reasons(plan.why_idle))
    held = ", GPUs held and waited for together" if isinstance(trace, StateTrace) else ""
    demand = f"{len(trace.demand_gpus):,} intervals of {duration(trace.step_s)}{held}"
    return Document(
        headline=_write_headline(plan),
        sections=sections,
        assumptions=(
            *prices,
            Assumption("demand", demand, trace.name),
            Assumption("jobs", "not in this file: no waits can be simulated", "give one row a job for waits"),
        ),
        notes=(
            plan.next_gpu.sentence,
            f"A rented GPU-hour below {money(plan.price_per_gpu_hour, plan.currency)}: then rent everything.",
            "Peaks that cannot be rented: put what waiting costs into --rent-price.",
        ),
        data=plan,
    )


def _write_headline(plan: StatePlan) -> str:
    have = "" if plan.have_gpus is None else f" You have {plan.have_gpus}."
    return (
        f"Keep {counted(plan.keep_gpus, 'GPU')} and rent the peaks: demand averages {number(plan.mean_gpus)}, peaks at "
        f"{number(plan.peak_gpus)}, and the GPU beyond is wanted less than the {percent(plan.break_even_share)} of the time that "
        f"would pay for it.{have}"
    )


def _draw_plans(plan: StatePlan) -> Section:
    columns = (
        TableColumn("plan"),
        TableColumn("GPUs kept", "number"),
        TableColumn("last one used", "percent"),
        TableColumn("cost per hour", "money", plan.currency),
    )
    rows = [(row.name, row.gpus, row.last_used_share, row.cost_per_hour) for row in plan.plans]
    references = [Reference(float(plan.keep_gpus), f"keep {plan.keep_gpus}")]
    if plan.have_gpus is not None and plan.have_gpus != plan.keep_gpus:
        references.append(Reference(float(plan.have_gpus), f"have {plan.have_gpus}"))
    chart = draw_load_duration(plan.demand, references)
    return Section("Plans", charts=(chart,), tables=(DataTable(columns, rows),))


def _draw_reasons(why: IdleReasons) -> Section:
    rows = [
        ("somebody waited", why.pending_share),
        ("…while GPUs were idle", why.pending_while_idle_share),
        (
            f"gang size: {number(why.mean_idle_gpus)} idle, {number(why.mean_gang_gpus)} asked for on average",
            why.gang_share,
        ),
        ("fragmentation: enough idle, perhaps not on whole nodes", why.fragmentation_share),
        ("order: they fit; the queue's order or something not counted", why.order_share),
    ]
    explained = why.explained_share
    note = "" if explained is None else f"Gang size and fragmentation explain {percent(explained)} of it."
    columns = (TableColumn("reason"), TableColumn("of all intervals", "percent"))
    return Section("GPUs pending and idle at once", tables=(DataTable(columns, rows, note=note),))


def _chart_series(trace: StateTrace | DemandTrace) -> Chart:
    demand = trace.demand_gpus
    per_point = max(1, len(demand) // 300)
    days = [i * trace.step_s / S_PER_DAY for i in range(0, len(demand), per_point)]
    return Chart(
        "Demand over time", "line", days, (Series("GPUs", [float(d) for d in demand[::per_point]]),), "days", "GPUs"
    )
