"""Page of a training plan: time, cost and utilization of the best layout, what it rests on, and what would change it."""

from functools import partial

from loadfactor.base.units import BYTES_PER_GB, BYTES_PER_GIB, FLOPS_PER_TFLOPS, S_PER_DAY
from loadfactor.catalog.accelerators import Accelerator, accelerator
from loadfactor.catalog.clusters import cluster
from loadfactor.catalog.models import read_network
from loadfactor.catalog.prices import ChosenPrice, find_price
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import about_money, counted, duration, money, number, percent, short
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.plans.inputs import state_price
from loadfactor.interfaces.progress import show_progress
from loadfactor.planner.training.explanations import EvaluatedLayout
from loadfactor.planner.training.layout import NONE, RECOMPUTE, TrainingLayout
from loadfactor.planner.training.request import TrainingRequest
from loadfactor.planner.training.scaling import NO_PRICE, TrainingFacts, TrainingPlans, plan_runs
from loadfactor.planner.training.training_plan import PlannedProject, ProjectNeeds, TrainingPlan

TERM_NAMES = {
    "matmul_s": "matrix products",
    "attention_s": "attention",
    "elementwise_s": "norms, activations, copies",
    "recompute_s": "recomputation",
    "dequantize_s": "weights from 4 to 16 bits",
    "head_s": "logits and loss",
    "launch_s": "kernel launches",
    "tensor_s": "tensor exchange",
    "context_s": "context ring",
    "expert_s": "expert all-to-all",
    "pipeline_send_s": "sends between stages",
    "bubble_s": "pipeline bubble",
    "data_s": "data-parallel exchange",
    "optimizer_s": "optimizer",
    "overhead_s": "other",
}
SMALL = 0.002  # of the step: terms below are drawn together as "other"
MOST_PARETO = 8


def write_layout(x: TrainingLayout) -> str:
    """A layout short enough for a table: only what is cut, and the settings that matter."""
    parts = [f"TP{x.tensor}"] if x.tensor > 1 else []
    parts += [f"PP{x.pipeline}" + (f"×{x.interleave}" if x.interleave > 1 else "")] if x.pipeline > 1 else []
    parts += [f"CP{x.context}"] if x.context > 1 else []
    parts += [f"DP{x.data}"] + ([f"EP{x.expert}"] if x.expert > 1 else [])
    parts += [f"mb{x.micro_batch}"] + ([_write_recompute(x)] if x.recompute else [])
    return " ".join([*parts, "FSDP" if x.zero == 3 else f"ZeRO-{x.zero}"])


def _write_recompute(x: TrainingLayout) -> str:
    share = f" {percent(x.recompute_share)}" if x.recompute_share < 1 else ""
    return f"{RECOMPUTE[x.recompute]}{share}"


def write_time(p: TrainingPlan) -> str:
    """How long the run takes, in days, or in hours where it is short."""
    return f"{number(p.days)} days" if p.wall_s >= 2 * S_PER_DAY else duration(p.wall_s)


def draw_scaling(answer: TrainingPlans) -> Section:
    """One row for each number of GPUs, with the reason where the run cannot be; the curve where there are several."""
    first = answer.plans[0].tokens_per_s / answer.plans[0].gpus
    rows: list[tuple[Cell, ...]] = [
        (p.gpus, p.global_batch, p.days, p.cost, p.mfu_share, p.tokens_per_s / p.gpus / first, write_layout(p.best.layout))
        for p in answer.plans
    ]  # fmt: skip
    rows += [(r.gpus, None, None, None, None, None, r.reason) for r in answer.refused]
    rows.sort(key=lambda row: float(row[0] or 0))
    columns = (
        TableColumn("GPUs", "number"), TableColumn("batch (sequences)", "number"), TableColumn("days", "number"),
        TableColumn("cost", "about money", answer.currency), TableColumn("MFU", "percent"), TableColumn("efficiency", "percent"),
        TableColumn("layout"),
    )  # fmt: skip
    several = len(rows) > 1
    note = f"{answer.scaling} scaling; efficiency: tokens per second and GPU against the smallest" if several else ""
    chart = Chart(
        f"{answer.model}: tokens per second, {answer.scaling} scaling",
        "line",
        [float(p.gpus) for p in answer.plans],
        (
            Series("predicted", [p.tokens_per_s for p in answer.plans]),
            Series("ideal", [first * p.gpus for p in answer.plans], dashed=True),
        ),
        x_label="GPUs",
        y_label="tokens/s",
        x_log=True,
        y_log=True,
    )
    title = "Scaling" if several else ""
    return Section(
        title, charts=(chart,) if len(answer.plans) > 1 else (), tables=(DataTable(columns, rows, note=note),)
    )


def draw_summary(p: TrainingPlan) -> Section:
    """The numbers of the run, each with what it means."""
    c = p.checkpoints
    first_order = percent(c.first_order_efficiency_share)
    model, hardware = (
        number(flops / FLOPS_PER_TFLOPS) for flops in (p.model_flops_per_gpu_per_s, p.hardware_flops_per_gpu_per_s)
    )
    recomputed = "nothing is recomputed"
    if p.best.layout.recompute != NONE:
        recomputed = f"{p.best.layout.recomputed} counted"
    paid = "no price known" if p.cost is None else f"{about_money(p.cost_per_mtok, p.currency)} per million tokens"
    rows = [
        ("step", duration(p.step_s), f"{p.global_batch:,} sequences of {p.seq:,} tokens"),
        ("tokens/s", short(p.tokens_per_s), f"{number(p.tokens_per_s / p.gpus)} per GPU"),
        ("TFLOP/s per GPU", model, f"model FLOPs; {hardware} with recomputed work"),
        ("MFU", percent(p.mfu_share), "model FLOPs, attention in full, logits counted, embedding look-up not"),
        ("MFU, causal", percent(p.causal_mfu_share), "half of the attention scores, as Megatron-LM counts since 2025"),
        ("HFU", percent(p.hfu_share), recomputed),
        ("paid MFU", percent(p.paid_mfu_share), "over every hour paid for: failures, restarts, checkpoints"),
        ("goodput", percent(p.goodput_share), f"a failure every {duration(c.mtbf_s)}; {first_order} to first order"),
        ("checkpoint every", duration(c.interval_s), f"Daly's optimum at {duration(c.checkpoint_s)} each"),
        ("run", write_time(p), f"{number(p.steady_s / S_PER_DAY)} days without failures"),
        (
            "four of five times",
            _write_range(p),
            "what runs took that the equations were not fitted to (validate train --about)",
        ),
        ("GPU-hours", short(p.gpu_hours), ""),
        ("cost", about_money(p.cost, p.currency), paid),
    ]
    columns = (TableColumn("what"), TableColumn("value", "number"), TableColumn("meaning"))
    return Section(f"The run on {counted(p.gpus, 'GPU')}", tables=(DataTable(columns, rows),))


def draw_project(project: PlannedProject, p: TrainingPlan) -> Section:
    """What the whole project costs, part by part; the parts sum to the project."""
    n = project.needs
    said = {
        "runs": f"{counted(n.runs, 'run')} that succeed, their real tokens (--runs)",
        "padding": f"{n.padding_percent:g} % of the tokens of a run (--padding-percent); packing saves it",
        "retries": f"runs that fail: {n.retry_percent:g} % of the GPU-hours of those that succeed (--retry-percent)",
        "evaluation": "--evaluation-gpu-hours",
        "storage": "--storage-cost",
        "staff": "--staff-cost",
    }
    costs = project.costs or {}
    rows: list[tuple[Cell, ...]] = [
        (name, project.gpu_hours.get(name), costs.get(name), of) for name, of in said.items()
    ]
    rows.append(("project", sum(project.gpu_hours.values()), project.cost, "the parts above; 0 is what was not given"))
    columns = (
        TableColumn("part"), TableColumn("GPU-hours", "number"), TableColumn("cost", "about money", p.currency),
        TableColumn("meaning"),
    )  # fmt: skip
    return Section("The project", tables=(DataTable(columns, rows),))


def draw_step(p: TrainingPlan) -> Section:
    """Where the time of a step goes: terms worth a line in the order of the step, small ones together."""
    shown = [(TERM_NAMES[n], s) for n, s in p.best.terms.items() if s >= SMALL * p.step_s and n != "overhead_s"]
    shown.append(("other", p.step_s - sum(s for _, s in shown)))
    names, seconds = zip(*shown, strict=True)
    title = f"Where {duration(p.step_s)} of a step go on {counted(p.gpus, 'GPU')} (s)"
    chart = Chart(title, "waterfall", names, (Series("seconds", seconds),), x_label="seconds", total="step")
    rows = [(n, s, s / p.step_s) for n, s in [*shown, ("step", p.step_s)]]
    columns = (TableColumn("where the time goes"), TableColumn("per step", "duration"), TableColumn("share", "percent"))
    note = "on the slowest GPU; what is hidden behind compute costs nothing here"
    return Section("One step", charts=(chart,), tables=(DataTable(columns, rows, note=note),))


def draw_memory(p: TrainingPlan) -> Section:
    """What fills the memory of the fullest GPU."""
    parts = [(n.removesuffix("_bytes"), b / BYTES_PER_GIB) for n, b in p.best.memory_parts.items() if b > 0]
    names, gib = zip(*parts, strict=True)
    usable = p.best.usable_bytes / BYTES_PER_GIB
    title = f"Memory of the fullest GPU, {usable:.0f} GiB usable (GiB)"
    chart = Chart(title, "waterfall", names, (Series("GiB", gib),), x_label="GiB", total="all")
    rows = [*parts, ("all", p.best.memory_bytes / BYTES_PER_GIB), ("usable", usable)]
    table = DataTable((TableColumn("part"), TableColumn("memory (GiB)", "number")), rows)
    return Section("Memory", charts=(chart,), tables=(table,))


def draw_rivals(p: TrainingPlan) -> Section:
    """The best layouts of other kinds with why they lose, and the front of time and memory."""
    best = (write_layout(p.best.layout), p.step_s, _gib(p.best), "the best of those that fit")
    rows = [best, *((write_layout(c.layout), c.step_s, _gib(c), c.why_it_loses) for c in (*p.rivals, *p.too_large))]
    columns = [TableColumn("layout"), TableColumn("step", "duration"), TableColumn("GiB", "number")]
    note = (
        f"{p.layouts_scored:,} legal layouts scored, {p.layouts_fitting:,} fit; the best of each way to cut. "
        f"Tensor ranks belong inside the domain of {p.job.machine.fabric.domain_gpus} GPUs, "
        "pipeline stages across nodes, data ranks outermost."
    )
    tables = [DataTable([*columns, TableColumn("why not")], rows, note=note)]
    if len(p.pareto) > 1:
        front: list[tuple[Cell, ...]] = []
        for c in p.pareto[:MOST_PARETO]:
            ratio = c.step_s / p.step_s
            cost = None if p.cost is None else p.cost * ratio
            front.append((write_layout(c.layout), c.step_s, _gib(c), p.days * ratio, cost))
        columns += [TableColumn("days", "number"), TableColumn("cost", "about money", p.currency)]
        tables.append(DataTable(columns, front, "Time, memory and cost: no layout beats these in all"))
    return Section("Why not another layout", tables=tables)


def _write_range(p: TrainingPlan) -> str:
    """The range of the run's time."""
    low, high = p.days_range
    if p.wall_s >= 2 * S_PER_DAY:
        return f"{number(low)} to {number(high)} days"
    return f"{duration(low * S_PER_DAY)} to {duration(high * S_PER_DAY)}"


def _gib(one: EvaluatedLayout) -> float:
    return one.memory_bytes / BYTES_PER_GIB


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
