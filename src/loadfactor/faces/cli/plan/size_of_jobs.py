"""What does the answer to `plan size` say when there is a history of jobs?"""

from loadfactor.faces.answer import Answer, Assumption, Column, Table
from loadfactor.faces.charts import Chart, Mark, Reference, Series
from loadfactor.faces.formats import duration, money, number, percent
from loadfactor.planner.sizing.cluster.jobs import Jobs
from loadfactor.planner.sizing.cluster_size import SizePoint, Staffing
from loadfactor.planner.sizing.size_plan import SizePlan, SizeQuestion
from loadfactor.sources.demand import JobTrace
from loadfactor.units import S_PER_HOUR

ROWS = 7
DRAWN_WAIT_S = 36.0


def answer_from_jobs(
    trace: JobTrace,
    jobs: Jobs,
    question: SizeQuestion,
    plan: SizePlan,
    scheduler: str,
    delay_typed: bool,
    prices: tuple[Assumption, ...],
) -> Answer:
    """The whole page."""
    return Answer(
        sentence=_sentence(plan),
        tables=(_plans(plan), _sizes(plan), _by_size(plan), _closed_forms(plan), _waste(plan, question), _next(plan)),
        charts=(_cost_chart(plan), _wait_chart(plan), _load_chart(plan)),
        assumptions=(
            *prices,
            Assumption(
                "cost of delay",
                f"{money(question.cost.delay_cost_per_gpu_hour)} per hour waited and GPU asked for",
                "your --delay-cost"
                if delay_typed
                else "assumed: an hour waited costs as much as a GPU-hour; set --delay-cost",
            ),
            Assumption("scheduler", scheduler, "your --scheduler, or the default"),
            Assumption(
                "nodes", f"{question.gpus_per_node} GPUs each; a gang up to that size stays on one", "--gpus-per-node"
            ),
            Assumption(
                "demand",
                f"{len(jobs):,} jobs, {number(jobs.gpu_hours)} GPU-hours over {duration(jobs.span_s)}; the future looks like it",
                trace.name,
                "; ".join(("left out: " + ", ".join(trace.left_out),) if trace.left_out else ()),
            ),
        ),
        would_change=_would_change(plan, question),
        data=_data(trace, jobs, question, plan),
    )


def _sentence(plan: SizePlan) -> str:
    best, have = plan.chosen, plan.have
    cost = f"{money(best.cost_per_used_gpu_hour)} per used GPU-hour with the waiting"
    facts = f"{percent(best.utilization_share)} full, {_starts(best)}, {cost}"
    if have is None:
        return f"{best.gpus} GPUs are the cheapest size: {facts}. {plan.next_gpu.sentence}"
    if have is best:
        return f"Keep your {best.gpus} GPUs, the cheapest size tried: {facts}. {plan.next_gpu.sentence}"
    today = f"{percent(have.utilization_share)} full, {_starts(have)}, {money(have.cost_per_used_gpu_hour)}"
    lead = "Smaller is cheaper" if plan.smaller_is_cheaper else "Larger is cheaper"
    return f"{lead}: {best.gpus} GPUs ({facts}) instead of your {have.gpus} ({today})."


def _starts(point: SizePoint) -> str:
    if point.p90_wait_s < 1:
        return "9 jobs in 10 start at once"
    return f"9 jobs in 10 wait at most {duration(point.p90_wait_s)}"


def _shown(plan: SizePlan) -> list[SizePoint]:
    """The chosen size, today's, and others evenly between the ends."""
    points = list(plan.curve.points)
    wanted = {0, len(points) - 1, points.index(plan.chosen), *(() if plan.have is None else (points.index(plan.have),))}
    step = max(1, len(points) // ROWS)
    return [p for i, p in enumerate(points) if i in wanted or i % step == 0]


def _plans(plan: SizePlan) -> Table:
    rows: list[tuple[str, float | None, str, float | None]] = [
        (
            "one size, peaks wait",
            float(plan.chosen.gpus),
            f"p90 {duration(plan.chosen.p90_wait_s)}",
            plan.chosen.cost_per_used_gpu_hour,
        )
    ]
    if plan.base_gpus is not None:
        rows.append(("keep the base, rent every peak", float(plan.base_gpus), "none", plan.base_cost_per_used_gpu_hour))
    if plan.have is not None and plan.have is not plan.chosen:
        rows.append(
            (
                "today's",
                float(plan.have.gpus),
                f"p90 {duration(plan.have.p90_wait_s)}",
                plan.have.cost_per_used_gpu_hour,
            )
        )
    columns = (Column("plan"), Column("GPUs kept", "number"), Column("waiting"), Column("$ per used GPU-hour", "money"))
    return Table("Plans", columns, rows, note="Dollars include the cost of waiting.")


def _sizes(plan: SizePlan) -> Table:
    def name(point: SizePoint) -> str:
        tag = " best" if point is plan.chosen else ""
        return f"{point.gpus}{tag}{' now' if point is plan.have else ''}"

    return Table(
        "Sizes, simulated",
        (
            Column("GPUs"),
            Column("full", "percent"),
            Column("mean wait", "duration"),
            Column("p90", "duration"),
            Column("p99", "duration"),
            Column("M/G/k", "duration"),
            Column("$/h GPUs", "money"),
            Column("$/h delay", "money"),
        ),
        [
            (
                name(p),
                p.utilization_share,
                p.mean_wait_s,
                p.p90_wait_s,
                p.p99_wait_s,
                "never" if p.closed_form_wait_s is None else p.closed_form_wait_s,
                p.hardware_cost_per_hour,
                p.delay_cost_per_hour,
            )
            for p in _shown(plan)
        ],
        note="M/G/k: the mean wait by closed form, for jobs of mean size without nodes or bursts; never: it grows without end.",
    )


def _by_size(plan: SizePlan) -> Table:
    return Table(
        f"Waits by job size, {plan.chosen.gpus} GPUs",
        (
            Column("GPUs asked"),
            Column("jobs", "number"),
            Column("p50", "duration"),
            Column("p90", "duration"),
            Column("p99", "duration"),
        ),
        [(c.gpus, c.jobs, c.p50_s, c.p90_s, c.p99_s) for c in plan.outcome.by_size()],
        note=_interval(plan),
    )


def _interval(plan: SizePlan) -> str:
    if plan.mean_wait is None:
        return "Too few jobs to say how far such waits could be chance."
    mean, half = duration(plan.mean_wait.mean), duration(plan.mean_wait.half_width)
    return f"Mean wait after the first tenth of the jobs {mean} ± {half} (95 %, batch means): one history says no more."


def _closed_forms(plan: SizePlan) -> Table:
    found = plan.staffing
    rows = [
        ("offered load: GPUs busy if nobody waits", plan.curve.offered_gpus),
        (f"Erlang C: at most {percent(found.waiting_share)} wait", float(found.erlang_gpus)),
        ("square-root staffing, the same", float(found.square_root_gpus)),
    ]
    if found.teams > 1:
        rows.append((f"{_teams(found)} apart, the same", float(found.apart_gpus)))
    note = f"For steady arrivals; bursts need more. If nobody could wait, {plan.chosen.gpus} GPUs would turn "
    note += f"{percent(plan.lost_share)} of the jobs away (Erlang B)."
    return Table("Closed forms", (Column("rule"), Column("GPUs", "number")), rows, note=note)


def _teams(found: Staffing) -> str:
    return f"{found.teams} equal teams" if found.teams_are_equal else f"the {found.teams} teams of the jobs"


def _waste(plan: SizePlan, question: SizeQuestion) -> Table:
    held, outcome = plan.held, plan.outcome
    freed = plan.chosen.gpus - plan.without_nodes_gpus
    apart = plan.staffing.apart_gpus - plan.staffing.erlang_gpus
    rows: list[tuple[str, str]] = [
        (
            "jobs pending beside idle GPUs",
            f"{percent(outcome.pending_while_idle_share)} of the time: gang size {percent(outcome.gang_share)}, "
            f"fragmentation {percent(outcome.fragmented_share)}, order {percent(outcome.order_share)}",
        ),
        ("perfect packing (no node borders) would free", f"{freed} GPUs at the same wait"),
    ]
    if plan.staffing.teams > 1:
        rows.append((f"pooling {_teams(plan.staffing)} frees", f"{apart} GPUs against a cluster each"))
    if held.whole_gpus > held.as_asked_gpus * 1.0005:
        rows.append(
            (
                "sharing GPUs frees",
                f"{number(held.whole_gpus - held.as_asked_gpus)} GPUs against whole ones, on average",
            )
        )
    rows.append(
        (
            f"smaller instances than {question.gpus_per_node} free",
            f"{number(held.whole_instances_gpus - held.whole_gpus)} GPUs held, if each job now takes whole instances",
        )
    )
    return Table("What stands in the way", (Column("what"), Column("how much")), rows)


def _next(plan: SizePlan) -> Table:
    judged = [plan.last_gpu, plan.next_gpu]
    return Table(
        "The marginal GPU, over its life",
        (
            Column("GPU"),
            Column("used", "percent"),
            Column("must be used", "percent"),
            Column("earns $/h", "money"),
            Column("costs $/h", "money"),
            Column("so"),
        ),
        [
            (
                f"{m.gpu} ({'last' if m is plan.last_gpu else 'next'})",
                m.utilization_share,
                m.break_even_share,
                m.earned_per_hour,
                m.own_cost_per_hour,
                m.verdict if m is plan.next_gpu or m.verdict == "add it" else f"give it back: {m.verdict}",
            )
            for m in judged
        ],
    )


def _cost_chart(plan: SizePlan) -> Chart:
    points = plan.curve.points
    sizes = [float(p.gpus) for p in points]
    best = plan.chosen
    # far-too-small sizes wait without end and would flatten the picture
    ceiling = 3 * best.cost_per_used_gpu_hour
    total = [p.cost_per_used_gpu_hour if p.cost_per_used_gpu_hour <= ceiling else None for p in points]
    return Chart(
        "Cost of a used GPU-hour by size of the cluster",
        "line",
        sizes,
        (Series("with waiting", total), Series("GPUs alone", [p.hardware_cost_per_used_gpu_hour for p in points])),
        "GPUs",
        "$ per used GPU-hour",
        marks=(Mark(float(best.gpus), best.cost_per_used_gpu_hour, ""),),
        references=(Reference(float(best.gpus), f"cheapest {best.gpus}", "x"), *_today(plan)),
    )


def _wait_chart(plan: SizePlan) -> Chart:
    points = plan.curve.points
    kinds = (
        ("p99", [p.p99_wait_s for p in points]),
        ("p90", [p.p90_wait_s for p in points]),
        ("mean", [p.mean_wait_s for p in points]),
    )
    series = [Series(name, [v / S_PER_HOUR if v >= DRAWN_WAIT_S else None for v in values]) for name, values in kinds]
    return Chart(
        "Queue wait by size of the cluster",
        "line",
        [float(p.gpus) for p in points],
        [s for s in series if any(y is not None for y in s.y)] or [Series("p99", [None for _ in points])],
        "GPUs",
        "wait (hours)",
        y_log=True,
        references=(Reference(float(plan.chosen.gpus), "cheapest", "x"),),
        note=f"waits under {duration(DRAWN_WAIT_S)} are not drawn",
    )


def _load_chart(plan: SizePlan) -> Chart:
    shares = plan.demand.marginal_share
    step = max(1, len(shares) // 400)
    gpus = [float(k + 1) for k in range(0, len(shares), step)]
    return Chart(
        "Marginal utilization: how much of the time the k-th GPU is wanted",
        "line",
        gpus,
        (Series("wanted", [float(shares[int(k) - 1]) for k in gpus]),),
        "k-th GPU",
        "share of time",
        references=(Reference(float(plan.chosen.gpus), "cheapest", "x"),),
    )


def _today(plan: SizePlan) -> tuple[Reference, ...]:
    return () if plan.have is None or plan.have is plan.chosen else (Reference(float(plan.have.gpus), "today", "x"),)


def _would_change(plan: SizePlan, question: SizeQuestion) -> tuple[str, ...]:
    lines = [
        "The cost of delay: where waiting costs more, the cheapest size is larger; where nobody minds, it nears the offered load "
        f"of {number(plan.curve.offered_gpus)} GPUs.",
        plan.last_gpu.sentence,
    ]
    if plan.have is not None or plan.next_gpu.verdict != "add it":
        lines.append(plan.next_gpu.sentence)
    if plan.chosen.gpus == plan.curve.points[0].gpus or plan.chosen.gpus == plan.curve.points[-1].gpus:
        lines.append("The cheapest size is at the end of those tried: widen --sizes.")
    if question.yearly_growth_share:
        lines.append(
            f"Demand growing by {percent(question.yearly_growth_share)} a year is assumed for the next GPU, not for the waits."
        )
    return tuple(lines)


def _data(trace: JobTrace, jobs: Jobs, question: SizeQuestion, plan: SizePlan) -> dict[str, object]:
    outcome = plan.outcome

    def point(p: SizePoint) -> dict[str, object]:
        return {**vars(p), "cost_per_hour": p.cost_per_hour, "cost_per_used_gpu_hour": p.cost_per_used_gpu_hour}

    return {
        "trace": trace.name,
        "left_out": trace.left_out,
        "jobs": len(jobs),
        "work_gpu_hours": jobs.gpu_hours,
        "span_s": jobs.span_s,
        "offered_gpus": plan.curve.offered_gpus,
        "price_per_gpu_hour": question.cost.price_per_gpu_hour,
        "delay_cost_per_gpu_hour": question.cost.delay_cost_per_gpu_hour,
        "policy": question.policy,
        "gpus_per_node": question.gpus_per_node,
        "cheapest": point(plan.chosen),
        "today": None if plan.have is None else point(plan.have),
        "smaller_is_cheaper": plan.smaller_is_cheaper,
        "sizes": [point(p) for p in plan.curve.points],
        "waits_by_job_size": outcome.by_size(),
        "pending_while_idle_share": outcome.pending_while_idle_share,
        "gang_share": outcome.gang_share,
        "fragmented_share": outcome.fragmented_share,
        "order_share": outcome.order_share,
        "staffing": plan.staffing,
        "lost_share_if_nobody_waits": plan.lost_share,
        "mean_wait_s_after_warm_up": plan.mean_wait,
        "held_gpus": plan.held,
        "base_gpus": plan.base_gpus,
        "base_cost_per_used_gpu_hour": plan.base_cost_per_used_gpu_hour,
        "without_nodes_gpus": plan.without_nodes_gpus,
        "next_gpu": {**vars(plan.next_gpu), "sentence": plan.next_gpu.sentence},
        "last_gpu": {**vars(plan.last_gpu), "sentence": plan.last_gpu.sentence},
    }
