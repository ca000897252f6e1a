"""Page of a cluster's size where there is a history of jobs."""

from operator import attrgetter

from loadfactor.base.units import S_PER_HOUR
from loadfactor.interfaces.charts import Chart, Mark, Reference, Series
from loadfactor.interfaces.document import Assumption, Cell, Document, Section
from loadfactor.interfaces.formats import counted, duration, money, number, percent
from loadfactor.interfaces.plans.marginal import draw_marginal
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.economics.load_duration import MarginalGpu
from loadfactor.planner.sizing.cluster import SCHEDULERS
from loadfactor.planner.sizing.request import SizeRequest
from loadfactor.planner.sizing.size_plan import SizePlan, SizePoint

ROWS = 7
DRAWN_WAIT_S = 36.0


def build_jobs_document(request: SizeRequest, plan: SizePlan, prices: tuple[Assumption, ...]) -> Document:
    return Document(
        headline=_write_headline(plan),
        sections=(
            _draw_choice(plan),
            *draw_marginal(plan.marginal, plan.currency, " a month", _write_wait_price(plan)),
            _draw_sizes(plan),
            _draw_waits(plan),
            _draw_closed_forms(plan),
            _draw_waste(plan),
            _draw_renting(plan),
        ),
        assumptions=(*prices, *_list_assumptions(request, plan)),
        notes=_list_changes(request, plan),
        data=plan,
    )


def _write_wait_price(plan: SizePlan) -> str:
    return f"That a job waits an hour for one GPU costs {money(plan.delay_cost_per_gpu_hour, plan.currency)}."


def _write_headline(plan: SizePlan) -> str:
    """One recommendation, the cheapest plan of the page: waiting for a full cluster, or renting its peaks."""
    best, today = plan.cheapest, plan.today
    if plan.renting_is_cheaper:
        return _recommend_renting(plan)
    cost = f"{money(best.cost_per_used_gpu_hour, plan.currency)} per used GPU-hour with the waiting"
    facts = f"{percent(best.utilization_share)} full, {_write_waits(best)}, {cost}"
    if today is None:
        return f"{counted(best.gpus, 'GPU')} {'is' if best.gpus == 1 else 'are'} the cheapest size: {facts}."
    if today is best:
        return f"Keep your {counted(best.gpus, 'GPU')}, the cheapest size tried: {facts}."
    now = f"{percent(today.utilization_share)} full, {_write_waits(today)}, {money(today.cost_per_used_gpu_hour, plan.currency)}"
    lead = "Smaller is cheaper" if plan.smaller_is_cheaper else "Larger is cheaper"
    return f"{lead}: {counted(best.gpus, 'GPU')} ({facts}) instead of your {today.gpus} ({now})."


def _recommend_renting(plan: SizePlan) -> str:
    best, today, keep = plan.cheapest, plan.today, counted(plan.base_gpus or 0, "GPU")
    lead = f"Keep {keep}, rent every peak by the hour, and nobody waits"
    if today is not None and today.gpus > (plan.base_gpus or 0):
        lead = f"Smaller is cheaper: keep {keep}, rent every peak by the hour, and nobody waits"
    now = (
        ""
        if today is None
        else f" instead of {money(today.cost_per_used_gpu_hour, plan.currency)} on your {today.gpus}"
    )
    cost = money(best.cost_per_used_gpu_hour, plan.currency)
    sizes = f"{counted(best.gpus, 'GPU')} {'is' if best.gpus == 1 else 'are'} the cheapest size"
    return (
        f"{lead}, {money(plan.base_cost_per_used_gpu_hour, plan.currency)} per used GPU-hour{now}. Where jobs wait instead, "
        f"{sizes}: {percent(best.utilization_share)} full, {_write_waits(best)}, {cost}."
    )


def _write_waits(point: SizePoint) -> str:
    if point.p90_wait_s < 1:
        return "9 jobs in 10 start at once"
    return f"9 jobs in 10 wait at most {duration(point.p90_wait_s)}"


def _choose_rows(plan: SizePlan) -> list[SizePoint]:
    """The chosen size, today's, and others evenly between the ends."""
    points = list(plan.sizes)
    shown = {0, len(points) - 1, points.index(plan.cheapest)}
    shown |= set() if plan.today is None else {points.index(plan.today)}
    step = max(1, len(points) // ROWS)
    return [p for i, p in enumerate(points) if i in shown or i % step == 0]


def _draw_choice(plan: SizePlan) -> Section:
    named = [("the cheapest size", plan.cheapest)]
    if plan.today is not None and plan.today is not plan.cheapest:
        named.append(("today's", plan.today))
    rows: list[tuple[Cell, ...]] = [
        (name, p.gpus, p.utilization_share, p.p90_wait_s, p.cost_per_used_gpu_hour) for name, p in named
    ]
    if plan.base_gpus is not None:
        rows.append(("keep the base, rent the peaks", plan.base_gpus, None, 0.0, plan.base_cost_per_used_gpu_hour))
    rows.sort(key=lambda row: float(row[4] or 0))
    sizes = table(
        rows,
        "plan",
        col("GPUs", style="number"),
        col("full", style="percent"),
        col("p90 wait", style="duration"),
        col("cost per used GPU-hour", style="money"),
        currency=plan.currency,
        note="Costs include the cost of waiting.",
    )
    return Section("The size", charts=(_chart_cost(plan),), tables=(sizes,))


def _draw_sizes(plan: SizePlan) -> Section:
    def name(point: SizePoint) -> str:
        tag = " best" if point is plan.cheapest else ""
        return f"{point.gpus}{tag}{' now' if point is plan.today else ''}"

    sizes = table(
        _choose_rows(plan),
        col("GPUs", name),
        col("full", "utilization_share", "percent"),
        col("mean wait", "mean_wait_s", "duration"),
        col("p90", "p90_wait_s", "duration"),
        col("p99", "p99_wait_s", "duration"),
        col("M/G/k", lambda p: "never" if p.closed_form_wait_s is None else p.closed_form_wait_s, "duration"),
        col("hardware/h", "hardware_cost_per_hour", "money"),
        col("delay/h", "delay_cost_per_hour", "money"),
        currency=plan.currency,
        note="M/G/k: the mean wait by closed form, for jobs of mean size without nodes or bursts; never: it grows without end.",
    )
    return Section("Sizes, simulated", charts=(_chart_waits(plan),), tables=(sizes,))


def _draw_waits(plan: SizePlan) -> Section:
    note, mean = "Too few jobs to say how far such waits could be chance.", plan.mean_wait_s_after_warm_up
    if mean is not None:
        note = (
            f"Mean wait after the first tenth of the jobs {duration(mean.mean)} ± {duration(mean.half_width)} (95 %, batch "
            "means): one history says no more."
        )
    waits = table(
        plan.waits_by_job_size,
        col("GPUs asked", "gpus"),
        col("jobs", "jobs", "number"),
        col("p50", "p50_s", "duration"),
        col("p90", "p90_s", "duration"),
        col("p99", "p99_s", "duration"),
        note=note,
    )
    return Section(f"Waits by job size, {counted(plan.cheapest.gpus, 'GPU')}", tables=(waits,))


def _draw_closed_forms(plan: SizePlan) -> Section:
    staffing, pooling, gpus = plan.staffing, plan.pooling, counted(plan.cheapest.gpus, "GPU")
    rows: list[tuple[str, float]] = [
        ("offered load: GPUs busy if nobody waits", plan.offered_gpus),
        (f"Erlang C: at most {percent(staffing.waiting_share)} wait", staffing.erlang_gpus),
        ("square-root staffing, the same", staffing.square_root_gpus),
    ]
    note = (
        f"For steady arrivals; bursts need more. If nobody could wait, {gpus} would turn "
        f"{percent(plan.lost_share_if_nobody_waits)} of the jobs away by Erlang B, "
        f"{percent(plan.turned_away_share_if_nobody_waits)} as simulated."
    )
    if plan.closed_form_wait is not None:
        wait = plan.closed_form_wait
        note += (
            f" With {gpus} M/G/k promises that {percent(wait.longer_share(S_PER_HOUR))} of the jobs wait "
            f"longer than an hour and 99 % at most {duration(wait.quantile_s(0.99))}; the simulation has the last word."
        )
    if staffing.teams > 1:
        rows.append((f"{_name_teams(plan)} apart, the same", staffing.apart_gpus))
        note += (
            f" Bought for {percent(pooling.quantile)} of a normal demand, one cluster is {percent(pooling.together_share)} full, "
            f"{staffing.teams} equal ones {percent(pooling.apart_share)}."
        )
    return Section("Closed forms", tables=(table(rows, "rule", col("GPUs", style="number"), note=note),))


def _name_teams(plan: SizePlan) -> str:
    teams = plan.staffing.teams
    return f"{teams} equal teams" if plan.staffing.teams_are_equal else f"the {teams} teams of the jobs"


def _draw_waste(plan: SizePlan) -> Section:
    held, staffing = plan.held_gpus, plan.staffing
    shares = (plan.pending_while_idle_share, plan.gang_share, plan.fragmented_share, plan.order_share)
    idle, gang, fragmented, order = (percent(share) for share in shares)
    packed = counted(plan.cheapest.gpus - plan.without_nodes_gpus, "GPU")
    why = f"{idle} of the time: gang size {gang}, fragmentation {fragmented}, order {order}"
    rows = [
        ("jobs pending beside idle GPUs", why),
        ("perfect packing (no node borders) would free", f"{packed} at the same wait"),
    ]
    if plan.stranded_share > 0:
        stranded = f"{percent(plan.stranded_share)} of their GPUs to nobody"
        rows.append(("nodes full of jobs of one size would leave", stranded))
    if staffing.teams > 1:
        apart = staffing.apart_gpus - staffing.erlang_gpus
        rows.append((f"pooling {_name_teams(plan)} frees", f"{apart} GPUs against a cluster each"))
    if held.whole_gpus > held.as_asked_gpus * 1.0005:
        freed = number(held.whole_gpus - held.as_asked_gpus)
        rows.append(("sharing GPUs frees", f"{freed} GPUs against whole ones, on average"))
    freed = number(held.whole_instances_gpus - held.whole_gpus)
    smaller = f"{freed} GPUs held, if each job now takes whole instances"
    rows.append((f"smaller instances than {plan.gpus_per_node} free", smaller))
    return Section("What stands in the way", tables=(table(rows, "what", "how much"),))


def _draw_renting(plan: SizePlan) -> Section:
    """What renting the peaks instead of waiting changes, and what one GPU more or less is worth."""

    def advise(gpu: MarginalGpu) -> str:
        return gpu.verdict if gpu is plan.next_gpu or gpu.verdict == "add it" else f"give it back: {gpu.verdict}"

    judged = table(
        (plan.last_gpu, plan.next_gpu),
        col("GPU", lambda gpu: f"{gpu.gpu} ({'last' if gpu is plan.last_gpu else 'next'})"),
        col("used", "utilization_share", "percent"),
        col("must be used", "break_even_share", "percent"),
        col("earns per hour", "earned_per_hour", "money"),
        col("costs per hour", "own_cost_per_hour", "money"),
        col("so", advise),
        currency=plan.currency,
        note="One GPU more or less, over its life, where the others do not wait for it.",
    )
    lead = ""
    if plan.base_gpus is not None:
        lead = (
            f"Renting every peak by the hour, nobody would wait: keep {counted(plan.base_gpus, 'GPU')}, "
            f"{money(plan.base_cost_per_used_gpu_hour, plan.currency)} per used GPU-hour in all."
        )
    shares = plan.demand.marginal_share
    gpus = [float(k + 1) for k in range(0, len(shares), max(1, len(shares) // 400))]
    load = Chart(
        "Marginal utilization: how much of the time the k-th GPU is wanted",
        "line",
        gpus,
        (Series("wanted", [float(shares[int(k) - 1]) for k in gpus]),),
        "k-th GPU",
        "share of time",
        references=() if plan.base_gpus is None else (Reference(float(plan.base_gpus), f"base {plan.base_gpus}", "x"),),
    )
    return Section("Renting the peaks instead of waiting", lead, charts=(load,), tables=(judged,))


def _chart_cost(plan: SizePlan) -> Chart:
    sizes = [float(p.gpus) for p in plan.sizes]
    best = plan.cheapest
    # far-too-small sizes wait without end and would flatten the picture
    ceiling = 3 * best.cost_per_used_gpu_hour
    total = [p.cost_per_used_gpu_hour if p.cost_per_used_gpu_hour <= ceiling else None for p in plan.sizes]
    today = () if plan.today in (None, best) else (Reference(float(plan.today.gpus), "today", "x"),)
    return Chart(
        "Cost of a used GPU-hour by size of the cluster",
        "line",
        sizes,
        (Series("with waiting", total), Series("GPUs alone", [p.hardware_cost_per_used_gpu_hour for p in plan.sizes])),
        "GPUs",
        f"{plan.currency} per used GPU-hour",
        marks=(Mark(float(best.gpus), best.cost_per_used_gpu_hour, ""),),
        references=(Reference(float(best.gpus), f"cheapest {best.gpus}", "x"), *today),
    )


def _chart_waits(plan: SizePlan) -> Chart:
    series = [
        Series(name, [w / S_PER_HOUR if w >= DRAWN_WAIT_S else None for w in map(attrgetter(wait), plan.sizes)])
        for name, wait in (("p99", "p99_wait_s"), ("p90", "p90_wait_s"), ("mean", "mean_wait_s"))
    ]
    return Chart(
        "Queue wait by size of the cluster",
        "line",
        [float(p.gpus) for p in plan.sizes],
        [s for s in series if any(y is not None for y in s.y)] or series[:1],
        "GPUs",
        "wait (hours)",
        y_log=True,
        references=(Reference(float(plan.cheapest.gpus), "cheapest", "x"),),
        note=f"waits under {duration(DRAWN_WAIT_S)} are not drawn",
    )


def _list_assumptions(request: SizeRequest, plan: SizePlan) -> tuple[Assumption, ...]:
    delay = f"{money(plan.delay_cost_per_gpu_hour, plan.currency)} per hour waited and GPU asked for"
    assumed = "assumed: an hour waited costs as much as a GPU-hour; set --delay-cost"
    nodes = f"{counted(plan.gpus_per_node, 'GPU')} each; a gang up to that size stays on one"
    demand = f"{plan.jobs:,} jobs, {number(plan.work_gpu_hours)} GPU-hours over {duration(plan.span_s)}; the future looks like it"
    left_out = f"left out: {', '.join(plan.left_out)}" if plan.left_out else ""
    return (
        Assumption("cost of delay", delay, assumed if request.delay_cost is None else "your --delay-cost"),
        Assumption("scheduler", SCHEDULERS[request.scheduler][1], "--scheduler"),
        Assumption("nodes", nodes, "--gpus-per-node"),
        Assumption("demand", demand, plan.trace, left_out),
    )


def _list_changes(request: SizeRequest, plan: SizePlan) -> tuple[str, ...]:
    lines = [
        "The cost of delay: where waiting costs more, the cheapest size is larger; where nobody minds, it nears the offered load "
        f"of {number(plan.offered_gpus)} GPUs.",
    ]
    if plan.cheapest.gpus in (plan.sizes[0].gpus, plan.sizes[-1].gpus):
        lines.append("The cheapest size is at the end of those tried: widen --sizes.")
    if request.growth_percent:
        lines.append(
            f"Demand growing by {request.growth_percent:g} % a year is assumed for the next GPU, not for the waits."
        )
    return tuple(lines)
