"""Page of `plan size`: the size of a cluster that can be kept full, from jobs, or from counts where no jobs are known."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from loadfactor.catalog.prices import choose_price
from loadfactor.interfaces.document import Document
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.plans.assumptions import state_price
from loadfactor.interfaces.plans.demand import find_demand, read_jobs
from loadfactor.interfaces.plans.size_from_jobs import build_jobs_document
from loadfactor.interfaces.plans.size_from_state import build_state_document
from loadfactor.planner.economics.ownership import choose_kept_price
from loadfactor.planner.sizing.request import SizeRequest
from loadfactor.planner.sizing.size_plan import SizePlan, SizeQuestion, make_question, plan_size_from_jobs
from loadfactor.planner.sizing.state_plan import StateCounts, plan_size_from_state
from loadfactor.sources.demand import JobTrace, StateTrace


def build_document(request: SizeRequest) -> Document:
    """The page of a request."""
    price = choose_kept_price(request.accelerator, request.price_per_gpu_hour)
    rent = choose_price(request.accelerator, request.rent_price, "--rent-price")
    prices = (state_price("GPU of this cluster", price), state_price("GPU rented at peaks", rent))
    trace = find_demand(request.trace, request.store)
    if isinstance(trace, JobTrace):
        question = make_question(request, price.per_gpu_hour, rent.per_gpu_hour, trace.have_gpus, _name_teams(trace))
        return build_jobs_document(request, _simulate(trace, question), prices)
    question = make_question(request, price.per_gpu_hour, rent.per_gpu_hour)
    counts = read_counts(trace) if isinstance(trace, StateTrace) else None
    return build_state_document(trace, plan_size_from_state(trace.name, trace.demand_gpus, question, counts), prices)


plan_size = make_function("plan_size", SizeRequest, build_document, "The answer of `loadfactor plan size` as a page.")


def _simulate(trace: JobTrace, question: SizeQuestion) -> SizePlan:
    """The plan, with a bar on standard error where a person looks at it."""
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
