"""Page of a training plan: time, cost and utilization of the best layout, what it rests on, and what would change it."""

from functools import partial

from loadfactor.base.units import BYTES_PER_GB, S_PER_DAY
from loadfactor.catalog.accelerators import Accelerator, accelerator
from loadfactor.catalog.clusters import cluster
from loadfactor.catalog.models import read_network
from loadfactor.catalog.prices import ChosenPrice, find_price
from loadfactor.interfaces.document import Assumption, Document
from loadfactor.interfaces.formats import about_money, counted, duration, money, number, percent, short
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.plans.assumptions import state_price
from loadfactor.interfaces.plans.train_sections import (
    draw_memory,
    draw_project,
    draw_rivals,
    draw_scaling,
    draw_step,
    draw_summary,
    write_layout,
    write_time,
)
from loadfactor.interfaces.progress import show_progress
from loadfactor.planner.training.request import TrainingRequest
from loadfactor.planner.training.scaling import NO_PRICE, TrainingFacts, TrainingPlans, plan_runs
from loadfactor.planner.training.training_plan import PlannedProject, ProjectNeeds, TrainingPlan

SOFTWARE_WORDS = {
    "modern": "flash attention, overlap, kernels of 2023 and 2024",
    "nemo": "attention and products tuned for the GPU, overlap, gradients in 16 bits",
    "dualpipe": "tuned kernels, overlap, hidden expert exchange",
    "torchtitan": "torch.compile, tuned products, tensor exchange not hidden",
    "torchtune": "torch.compile, weights and optimizer in 16 bits",
    "eager": "no compiler: norms and rotations of many small kernels",
    "megatron-2021": "unfused attention, no overlap",
}
PRICE_STEP = 0.1  # per GPU-hour, for what a change of the price does


def build_document(request: TrainingRequest) -> Document:
    """The page of a request; the last number of GPUs that can run is the one whose step and memory are shown."""
    where = cluster(request.cluster) if request.cluster else None
    card = accelerator(where.accelerator if where else request.accelerator)
    price = find_price(card.id, request.price_per_gpu_hour)
    answer = plan_runs(
        request,
        TrainingFacts(read_network(request.model), card, where, price),
        partial(show_progress, what="searching layouts"),
    )
    plan, project = answer.plans[-1], answer.projects[-1]
    whole = request.adapters is not None or request.needs != ProjectNeeds()
    project_page = (draw_project(project, plan),) if whole else ()
    return Document(
        headline=_write_headline(plan, card) + (_write_project(project, plan) if whole else ""),
        sections=(
            draw_scaling(answer),
            draw_summary(plan),
            *project_page,
            draw_step(plan),
            draw_memory(plan),
            draw_rivals(plan),
        ),
        assumptions=_list_assumptions(request, plan, price),
        notes=(*_name_best_number(answer), *_list_changes(plan), *_compare_software(answer)),
        data=answer,
    )


plan_training = make_function(
    "plan_training", TrainingRequest, build_document, "The answer of `loadfactor plan train` as a page."
)


def _write_headline(p: TrainingPlan, card: Accelerator) -> str:
    paid = f" and {about_money(p.cost, p.currency)}" if p.cost is not None else ""
    what = "Fine-tuning" if p.job.adapters else "Training"
    return (
        f"{what} {p.job.network.name} on {short(p.tokens)} tokens with {p.gpus:,} × {card.name} takes about "
        f"{write_time(p)}{paid}, at {percent(p.mfu_share)} MFU: {write_layout(p.best.layout)}."
    )


def _write_project(project: PlannedProject, p: TrainingPlan) -> str:
    """What the whole project costs, in a sentence; nothing without a price."""
    if project.cost is None or project.cost_range is None:
        return ""
    low, high = (about_money(c, p.currency) for c in project.cost_range)
    runs = counted(project.needs.runs, "run")
    return f" The project of {runs} costs about {about_money(project.cost, p.currency)} ({low} to {high})."


def _list_assumptions(r: TrainingRequest, p: TrainingPlan, price: ChosenPrice | None) -> tuple[Assumption, ...]:
    bandwidth = f"{p.job.machine.fabric.scale_out_bytes_per_s / BYTES_PER_GB:g} GB/s per GPU"
    return (
        state_price("price", price) if price else Assumption("price", "none", NO_PRICE),
        Assumption("batch", counted(p.global_batch, "sequence"), "--global-batch" if r.global_batch else "about 4 M tokens"),
        *_name_adapters(r, p),
        *_name_padding(r, p),
        Assumption("network", bandwidth, "catalog, --cluster or --network-gb-per-s"),
        Assumption("software", SOFTWARE_WORDS[r.software], "--software"),
        Assumption("failures", f"one per {r.gpu_mtbf_h:,.0f} GPU-hours", "Llama 3: 419 in 54 days on 16,384 H100"),
        Assumption("speed of kernels and links", "fitted once on published runs", "loadfactor validate train --about"),
    )  # fmt: skip


def _name_adapters(r: TrainingRequest, p: TrainingPlan) -> tuple[Assumption, ...]:
    if r.adapters is None:
        return ()
    trained = short(r.adapters.parameters(p.job.network))
    return (
        Assumption(
            "trained", f"{trained} weights: adapters of rank {r.adapter_rank} on attention", "--method, --adapter-rank"
        ),
    )


def _name_padding(r: TrainingRequest, p: TrainingPlan) -> tuple[Assumption, ...]:
    if not r.padding_percent:
        return ()
    return (
        Assumption("padding", f"{r.padding_percent:g} % of the {short(p.tokens)} tokens of a run", "--padding-percent"),
    )


def _name_best_number(answer: TrainingPlans) -> list[str]:
    """Of several numbers of GPUs, the cheapest and the fastest."""
    paid = [(p.cost, p) for p in answer.plans if p.cost is not None]
    if len(paid) < 2:
        return []
    (_, cheapest), fastest = min(paid, key=lambda pair: pair[0]), min(answer.plans, key=lambda p: p.days)
    if cheapest is fastest:
        return [f"{fastest.gpus:,} GPUs are both fastest and cheapest of those asked for."]
    return [
        f"{cheapest.gpus:,} GPUs are cheapest ({about_money(cheapest.cost, cheapest.currency)} in {write_time(cheapest)}), "
        f"{fastest.gpus:,} fastest ({write_time(fastest)} for {about_money(fastest.cost, fastest.currency)})."
    ]


def _compare_software(answer: TrainingPlans) -> list[str]:
    """What the age of the software does to the run in this layout."""
    if not answer.days_by_software:
        return []
    said = ", ".join(f"{duration(days * S_PER_DAY)} with {name}" for name, days in answer.days_by_software.items())
    return [f"By the age of the software (--software) this layout takes {said}."]


def _list_changes(p: TrainingPlan) -> list[str]:
    notes = [f"{write_layout(c.layout)} {c.why_it_loses}." for c in p.too_large[:1]]
    notes += [f"{write_layout(c.layout)} is next: {c.why_it_loses}." for c in p.rivals[:1]]
    if p.open_rivals:
        ways = counted(len(p.open_rivals), "other way")
        notes.append(
            f"{ways} to cut the run {'is' if len(p.open_rivals) == 1 else 'are'} too close to call: measure them."
        )
    if p.open_recomputation:
        ways = "; ".join(f"{c.layout.recomputed}: {c.why_it_loses}" for c in p.open_recomputation)
        notes.append(f"Recomputation is open ({p.best.layout.recomputed} is planned): {ways}. Measure the peak.")
    if p.cost_range is not None:
        low, high = (about_money(c, p.currency) for c in p.cost_range)
        notes.append(f"The cost lies between {low} and {high} in four of five cases.")
    if p.price_per_gpu_hour is not None:
        step, change = money(PRICE_STEP, p.currency), about_money(p.gpu_hours * PRICE_STEP, p.currency)
        notes.append(f"Each {step} per GPU-hour is {change} of the run.")
    least_s = p.step_s - sum(p.best.terms[name] for name in ("bubble_s", "data_s", "tensor_s"))
    shortest = f"{duration(least_s)} instead of {number(p.step_s)} s"
    notes.append(f"Without bubble and exposed exchange the step would take {shortest}: no layout beats that.")
    return notes
