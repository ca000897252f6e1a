"""Page of `plan size`: the size of a cluster that can be kept full, from jobs, or from counts where no jobs are known."""

from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from loadfactor.base.errors import InputError
from loadfactor.base.units import S_PER_DAY
from loadfactor.catalog.prices import choose_price
from loadfactor.interfaces.charts import Chart, Reference, Series
from loadfactor.interfaces.document import Assumption, Document, Section
from loadfactor.interfaces.formats import counted, duration, money, number, percent
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.plans.inputs import (
    ask_hours,
    draw_load_duration,
    find_demand,
    read_jobs,
    state_hours,
    state_price,
)
from loadfactor.interfaces.plans.marginal import draw_marginal
from loadfactor.interfaces.plans.size_from_jobs import build_jobs_document
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.economics.marginal_gpus import keep_more
from loadfactor.planner.economics.ownership import choose_kept_price
from loadfactor.planner.sizing.request import SizeRequest
from loadfactor.planner.sizing.size_plan import SizePlan, SizeQuestion, add_gpus, make_question, plan_size_from_jobs
from loadfactor.planner.sizing.state_plan import IdleReasons, StateCounts, StatePlan, plan_size_from_state
from loadfactor.sources.demand import DemandTrace, JobTrace, StateTrace


def build_state_document(trace: StateTrace | DemandTrace, plan: StatePlan, prices: tuple[Assumption, ...]) -> Document:
    """The page where only counts or an hourly demand are known; where the counts tell it, also why GPUs stood idle."""
    have = "" if plan.have_gpus is None else f" You have {plan.have_gpus}."
    demand = trace.demand_gpus
    held = ", GPUs held and waited for together" if isinstance(trace, StateTrace) else ""
    per_point = max(1, len(demand) // 300)
    days = [i * trace.step_s / S_PER_DAY for i in range(0, len(demand), per_point)]
    series = (Series("GPUs", [float(d) for d in demand[::per_point]]),)
    return Document(
        headline=(
            f"Keep {counted(plan.keep_gpus, 'GPU')} and rent the peaks: demand averages {number(plan.mean_gpus)}, peaks at "
            f"{number(plan.peak_gpus)}, and the GPU beyond is wanted less than the {percent(plan.break_even_share)} of the time "
            f"that would pay for it.{have}"
        ),
        sections=(
            _draw_plans(plan),
            *draw_marginal(plan.marginal, plan.currency, " a month", _write_rent(plan)),
            Section(charts=(Chart("Demand over time", "line", days, series, "days", "GPUs"),)),
            *(() if plan.why_idle is None else (_draw_reasons(plan.why_idle),)),
        ),
        assumptions=(
            *prices,
            Assumption("demand", f"{len(demand):,} intervals of {duration(trace.step_s)}{held}", trace.name),
            Assumption("jobs", "not known: no waits can be simulated", "give one row a job for waits"),
        ),
        notes=(
            plan.next_gpu.sentence,
            f"A rented GPU-hour below {money(plan.price_per_gpu_hour, plan.currency)}: then rent everything.",
            "Peaks that cannot be rented: put what waiting costs into --rent-price.",
        ),
        data=plan,
    )


def _write_rent(plan: StatePlan) -> str:
    return f"A rented GPU-hour costs {money(plan.rent_price_per_gpu_hour, plan.currency)}."


def _draw_plans(plan: StatePlan) -> Section:
    references = [Reference(float(plan.keep_gpus), f"keep {plan.keep_gpus}")]
    if plan.have_gpus is not None and plan.have_gpus != plan.keep_gpus:
        references.append(Reference(float(plan.have_gpus), f"have {plan.have_gpus}"))
    plans = table(
        plan.plans,
        col("plan", "name"),
        col("GPUs kept", "gpus", "number"),
        col("last one used", "last_used_share", "percent"),
        col("cost per hour", "cost_per_hour", "money"),
        currency=plan.currency,
    )
    return Section("Plans", charts=(draw_load_duration(plan.demand, references),), tables=(plans,))


def _draw_reasons(why: IdleReasons) -> Section:
    gang = f"gang size: {number(why.mean_idle_gpus)} idle, {number(why.mean_gang_gpus)} asked for on average"
    rows = [
        ("somebody waited", why.pending_share),
        ("…while GPUs were idle", why.pending_while_idle_share),
        (gang, why.gang_share),
        ("fragmentation: enough idle, perhaps not on whole nodes", why.fragmentation_share),
        ("order: they fit; the queue's order or something not counted", why.order_share),
    ]
    explained = why.explained_share
    note = "" if explained is None else f"Gang size and fragmentation explain {percent(explained)} of it."
    reasons = table(rows, "reason", col("of all intervals", style="percent"), note=note)
    return Section("GPUs pending and idle at once", tables=(reasons,))


def build_document(request: SizeRequest) -> Document:
    price = choose_kept_price(request.accelerator, request.price_per_gpu_hour)
    rent = choose_price(request.accelerator, request.rent_price, "--rent-price")
    prices: tuple[Assumption, ...] = (
        state_price("GPU of this cluster", price),
        state_price("GPU rented at peaks", rent),
    )
    if request.users is None:
        trace = find_demand(request.trace, request.store)
    elif request.trace is None and request.store is None:
        trace = ask_hours(request, request.users, rent)
        prices = (*prices, state_hours(trace, rent))
    else:
        raise InputError("give the demand once: a CSV file of jobs or hours, --store or --users")
    if isinstance(trace, JobTrace):
        question = make_question(request, price.per_gpu_hour, rent.per_gpu_hour, trace.have_gpus, _name_teams(trace))
        sized = _simulate(trace, question)
        if request.marginal:
            sized = replace(sized, marginal=add_gpus(read_jobs(trace), sized, request.gpus_per_node))
        return build_jobs_document(request, sized, prices)
    question = make_question(request, price.per_gpu_hour, rent.per_gpu_hour)
    counts = read_counts(trace) if isinstance(trace, StateTrace) else None
    plan = plan_size_from_state(trace.name, trace.demand_gpus, question, counts)
    if request.marginal:
        kept = plan.keep_gpus if plan.have_gpus is None else plan.have_gpus
        hour, rented = plan.price_per_gpu_hour, plan.rent_price_per_gpu_hour
        more = keep_more(plan.demand, kept, hour, rented, request.gpus_per_node, plan.currency)
        plan = replace(plan, marginal=more)
    return build_state_document(trace, plan, prices)


plan_size = make_function("plan_size", SizeRequest, build_document, "The answer of `loadfactor plan size` as a page.")


def _simulate(trace: JobTrace, question: SizeQuestion) -> SizePlan:
    jobs = read_jobs(trace)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"simulating {len(jobs):,} jobs, a size at a time (first run compiles)", total=None)
        return plan_size_from_jobs(
            jobs,
            question,
            trace.name,
            trace.left_out,
            on_sizes=lambda count: progress.update(task, total=count),
            on_point=lambda _: progress.advance(task),
        )


def _name_teams(trace: JobTrace) -> list[str] | None:
    """The team of each job in the order of submission, where the trace knows more than one."""
    if trace.team is None or len(set(trace.team)) < 2:
        return None
    return [str(trace.team[place]) for place in trace.submit_s.argsort(kind="stable")]


def read_counts(trace: StateTrace) -> StateCounts:
    """The counts of a state trace as the planner takes them."""
    return StateCounts(
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
