"""What does the answer to `plan size` say when only the cluster's state or an hourly demand is known, not its jobs?"""

from loadfactor.faces.answer import Answer, Assumption, Column, Table
from loadfactor.faces.charts import Chart, Reference, Series
from loadfactor.faces.formats import duration, money, number, percent
from loadfactor.planner.economics.base_and_peak import own_and_rent_cost_per_hour, own_and_rent_gpus
from loadfactor.planner.economics.load_duration import LoadDuration, load_duration
from loadfactor.planner.economics.marginal import marginal_gpu
from loadfactor.planner.sizing.cluster.why_idle import ClusterState, WhyIdle, why_idle
from loadfactor.planner.sizing.size_plan import SizeQuestion
from loadfactor.sources.demand import DemandTrace, StateTrace
from loadfactor.units import S_PER_DAY


def answer_from_state(
    trace: StateTrace | DemandTrace, question: SizeQuestion, prices: tuple[Assumption, ...]
) -> Answer:
    """Base and peak of the demand; and, where the state tells it, why GPUs stood idle while jobs waited."""
    demand = trace.demand_gpus
    curve = load_duration(demand)
    own_cost, rent_price = (
        question.cost.price_per_gpu_hour,
        question.rent_price or question.cost.delay_cost_per_gpu_hour,
    )
    keep = own_and_rent_gpus(curve, own_cost, rent_price)
    have = question.have_gpus or (int(trace.total_gpus[-1]) if isinstance(trace, StateTrace) else None)
    why = _why(trace) if isinstance(trace, StateTrace) else None
    tables = [_plans(curve, keep, have, own_cost, rent_price)]
    sentence = (
        f"Keep {keep} GPUs and rent the peaks: demand averages {number(curve.mean_gpus)}, peaks at {number(curve.peak_gpus)}, "
        f"and the GPU beyond is wanted less than the {percent(own_cost / rent_price)} of the time that would pay for it."
    )
    judged = marginal_gpu(
        curve,
        (have or keep) + 1,
        own_cost,
        rent_price,
        yearly_growth_share=question.yearly_growth_share,
        life_years=question.life_years,
    )
    if have is not None:
        sentence += f" You have {have}. {judged.sentence}"
    if why is not None:
        tables.append(_why_table(why))
    return Answer(
        sentence=sentence,
        tables=tables,
        charts=(_curve_chart(curve, keep, have), _series_chart(trace)),
        assumptions=(
            *prices,
            Assumption(
                "demand",
                f"{len(demand):,} intervals of {duration(trace.step_s)}"
                + (", GPUs held and waited for together" if isinstance(trace, StateTrace) else ""),
                trace.name,
            ),
            Assumption("jobs", "not in this file: no waits can be simulated", "give one row a job for waits"),
        ),
        would_change=(
            f"A rented GPU-hour below {money(own_cost)}: then rent everything.",
            "Peaks that cannot be rented: put what waiting costs into --rent-price.",
        ),
        data={
            "trace": trace.name,
            "mean_gpus": curve.mean_gpus,
            "peak_gpus": curve.peak_gpus,
            "load_factor": curve.load_factor,
            "keep_gpus": keep,
            "have_gpus": have,
            "cost_per_hour": own_and_rent_cost_per_hour(curve, keep, own_cost, rent_price),
            "next_gpu": {**vars(judged), "sentence": judged.sentence},
            "why_idle": None if why is None else {**vars(why), "explained_share": why.explained_share},
        },
    )


def _why(trace: StateTrace) -> WhyIdle:
    return why_idle(
        ClusterState(
            trace.total_gpus,
            trace.running_large_gpus,
            trace.running_small_gpus,
            trace.running_small_jobs,
            trace.pending_large_gpus,
            trace.pending_large_jobs,
            trace.pending_small_gpus,
            trace.pending_small_jobs,
            trace.node_gpus,
        )
    )


def _plans(curve: LoadDuration, keep: int, have: int | None, own_cost: float, rent_price: float) -> Table:
    peak = len(curve.marginal_share)
    rows = [("rent everything", 0), ("keep the base, rent the peaks", keep), ("keep the peak", peak)]
    if have is not None and have not in (keep, peak):
        rows.insert(1, ("keep today's", have))
    return Table(
        "Plans",
        (
            Column("plan"),
            Column("GPUs kept", "number"),
            Column("last one used", "percent"),
            Column("$ per hour", "money"),
        ),
        [
            (
                name,
                gpus,
                curve.utilization_share(gpus) if gpus else None,
                own_and_rent_cost_per_hour(curve, gpus, own_cost, rent_price),
            )
            for name, gpus in rows
        ],
    )


def _why_table(why: WhyIdle) -> Table:
    return Table(
        "GPUs pending and idle at once",
        (Column("reason"), Column("of all intervals", "percent")),
        [
            ("somebody waited", why.pending_share),
            ("…while GPUs were idle", why.pending_while_idle_share),
            (
                f"gang size: {number(why.mean_idle_gpus)} idle, {number(why.mean_gang_gpus)} asked for on average",
                why.gang_share,
            ),
            ("fragmentation: enough idle, perhaps not on whole nodes", why.fragmentation_share),
            ("order: they fit; the queue's order or something not counted", why.order_share),
        ],
        note=""
        if why.explained_share is None
        else f"Gang size and fragmentation explain {percent(why.explained_share)} of it.",
    )


def _curve_chart(curve: LoadDuration, keep: int, have: int | None) -> Chart:
    step = max(1, len(curve.demand_gpus) // 500)
    reached, hours = 0.0, []
    for share in curve.time_share:
        hours.append(reached)
        reached += float(share)
    references = [Reference(float(keep), f"keep {keep}")]
    if have is not None and have != keep:
        references.append(Reference(float(have), f"have {have}"))
    return Chart(
        "Load-duration curve: GPUs wanted for at least this share of the time",
        "step",
        [*hours[::step], 1.0],
        (Series("GPUs wanted", [*(float(d) for d in curve.demand_gpus[::step]), float(curve.demand_gpus[-1])]),),
        "share of time",
        "GPUs",
        references=references,
    )


def _series_chart(trace: StateTrace | DemandTrace) -> Chart:
    demand = trace.demand_gpus
    per_point = max(1, len(demand) // 300)
    days = [i * trace.step_s / S_PER_DAY for i in range(0, len(demand), per_point)]
    return Chart(
        "Demand over time", "line", days, (Series("GPUs", [float(d) for d in demand[::per_point]]),), "days", "GPUs"
    )
