"""Page of a training plan: time, cost and utilization of the best layout, what it rests on, and what would change it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from loadfactor.base.quantities import write_share
from loadfactor.base.units import BYTES_PER_GB, BYTES_PER_GIB, FLOPS_PER_TFLOPS, S_PER_DAY
from loadfactor.catalog.accelerators import Accelerator, accelerator
from loadfactor.catalog.clusters import cluster
from loadfactor.catalog.models import read_network
from loadfactor.catalog.prices import ChosenPrice, find_price
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Cell, Document, Section
from loadfactor.interfaces.formats import about_money, counted, duration, money, number, percent, short
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.plans.inputs import list_moved, state_price
from loadfactor.interfaces.plans.marginal import count_node_gpus, draw_marginal
from loadfactor.interfaces.progress import show_progress
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.hardware.checkpoint import CheckpointPlan
from loadfactor.planner.training.calibration import CalibrationReport
from loadfactor.planner.training.distance import MEANINGS
from loadfactor.planner.training.explanations import EvaluatedLayout
from loadfactor.planner.training.layout import FULL, NONE, RECOMPUTE, SELECTIVE, TrainingLayout
from loadfactor.planner.training.marginal_runs import plan_more
from loadfactor.planner.training.request import TrainingRequest
from loadfactor.planner.training.scaling import (
    USUAL_BATCH_TOKENS,
    USUAL_SEQ,
    TrainingFacts,
    TrainingPlans,
    plan_runs,
)
from loadfactor.planner.training.search import MOST_RISK
from loadfactor.planner.training.software import TRAITS, Software, describe_framework
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
MOST_ROUNDED = 0.5  # of the usual batch: beyond that a batch is another one
PRICE_STEP = 0.1  # per GPU-hour, for what a change of the price does


def build_document(request: TrainingRequest) -> Document:
    """The page of a request; the last number of GPUs that can run is the one whose step and memory are shown."""
    where = cluster(request.cluster) if request.cluster else None
    card = accelerator(where.accelerator if where else request.accelerator)
    price = find_price(card.id, request.price_per_gpu_hour)
    facts = TrainingFacts(read_network(request.model), card, where, price)
    answer = plan_runs(request, facts, partial(show_progress, what="searching layouts"))
    plan, project = answer.plans[-1], answer.projects[-1]
    if request.marginal:
        answer = replace(answer, marginal=plan_more(request, facts, plan, count_node_gpus(card.id)))
    whole = request.adapters is not None or request.needs != ProjectNeeds()
    project_page = (_draw_project(project, plan),) if whole else ()
    return Document(
        headline=_write_headline(plan, card) + (_write_project(project, plan) if whole else ""),
        sections=(
            _draw_scaling(answer),
            _draw_summary(plan),
            *draw_marginal(answer.marginal, plan.currency, ""),
            *((_draw_calibration(answer.calibration),) if answer.calibration else ()),
            *project_page,
            draw_step(plan),
            _draw_memory(plan),
            _draw_rivals(plan),
        ),
        assumptions=tuple(_list_assumptions(request, plan, price)),
        notes=tuple(_list_notes(answer)),
        data=answer,
    )


def _draw_calibration(report: CalibrationReport) -> Section:
    """The measured run beside what was predicted of it before and after, and the constants that it moved."""
    rows = []
    if report.measured_step_s is not None:
        rows.append(("step (s)", report.measured_step_s, report.step_s_before, report.step_s_after))
    if report.measured_peak_bytes is not None:
        peaks = (report.measured_peak_bytes, report.peak_bytes_before, report.peak_bytes_after)
        measured, before, after = (size / BYTES_PER_GIB for size in peaks)
        rows.append(("fullest GPU (GiB)", measured, before, after))
    low, high = report.time_range_after
    run = table(
        rows,
        "",
        col("measured", style="number"),
        col("predicted before", style="number"),
        col("after", style="number"),
        title=f"The measured run, as {write_layout(report.layout)}",
        note=f"Four of five layouts of this job lie between {percent(low)} and {percent(high)} of what is predicted now."
        if report.measured_step_s is not None
        else "",
    )
    moved = list_moved(
        report.constants,
        f"All else that is slower or faster than predicted: {percent(report.stack_factor)} of the predicted time.",
    )
    return Section("Calibrated", tables=(run, moved) if report.constants else (run,))


plan_training = make_function(
    "plan_training", TrainingRequest, build_document, "The answer of `loadfactor plan train` as a page."
)


def _write_headline(p: TrainingPlan, card: Accelerator) -> str:
    paid = f" and {about_money(p.cost, p.currency)}" if p.cost is not None else ""
    what = "Fine-tuning" if p.job.adapters else "Training"
    risk = f"a risk of {write_risk(p.best)} of running out of memory"
    if p.best.out_of_memory_share > MOST_RISK:
        risk += f" ({write_risk(p.safer)} as {write_layout(p.safer.layout)})" if p.safer else ", the least of all"
    return (
        f"{what} {p.job.network.name} on {short(p.tokens)} tokens with {p.gpus:,} × {card.name} takes about "
        f"{write_time(p)} ({p.distance}){paid}, at {percent(p.mfu_share)} MFU: {say_layout(p.best.layout)}; "
        f"with {risk}."
    )


def write_risk(layout: EvaluatedLayout) -> str:
    """The risk of running out of memory in whole percent, as exact as it is known."""
    return write_share(max(layout.out_of_memory_share, 0.01))


def _write_project(project: PlannedProject, p: TrainingPlan) -> str:
    if project.cost is None or project.cost_range is None:
        return ""
    low, high = (about_money(c, p.currency) for c in project.cost_range)
    runs = counted(project.needs.runs, "run")
    return f" The project of {runs} costs about {about_money(project.cost, p.currency)} ({low} to {high})."


def _list_assumptions(r: TrainingRequest, p: TrainingPlan, price: ChosenPrice | None) -> Iterator[Assumption]:
    yield state_price("price", price)
    yield _state_batch(r, p)
    source = "--seq" if r.seq else f"{USUAL_SEQ:,}, or all the network can see"
    yield Assumption("sequence", f"{p.seq:,} tokens", source)
    if r.adapters is not None:
        trained = short(r.adapters.parameters(p.job.network))
        where = "attention" if r.adapter_targets == "attention" else "all products of a layer"
        words = f"{trained} weights: adapters of rank {r.adapter_rank} on {where}"
        yield Assumption("trained", words, "--method, --adapter-rank, --adapter-targets")
    if r.padding_percent:
        words = f"{r.padding_percent:g} % of the {short(p.tokens)} tokens of a run"
        yield Assumption("padding", words, "--padding-percent")
    bandwidth = f"{p.job.machine.fabric.scale_out_bytes_per_s / BYTES_PER_GB:g} GB/s per GPU"
    yield Assumption("network", bandwidth, "catalog, --cluster or --network-gb-per-s")
    yield from _state_framework(r, p.job.software)
    failures = f"one per {r.gpu_mtbf_h:,.0f} GPU-hours"
    yield Assumption("failures", failures, "Llama 3: 419 in 54 days on 16,384 H100")
    yield Assumption("speed of kernels and links", "fitted once on published runs", "loadfactor validate train --about")


def _state_framework(r: TrainingRequest, software: Software) -> Iterator[Assumption]:
    """The framework, and the traits of it that differ from what all have learned since."""
    name = software.framework
    since = f" of {r.release}" if r.release else ""
    yield Assumption("framework", f"{name}{since}: {describe_framework(name)}", "--framework, --release")
    usual = Software()
    traits = {n: getattr(software, n) for n in TRAITS if getattr(software, n) != getattr(usual, n)}
    words = ", ".join(f"{n}={'yes' if v is True else 'no' if v is False else v}" for n, v in traits.items())
    yield Assumption("its traits", words or "as all have learned: fused, overlapped, sharded", "--traits")


def _state_batch(r: TrainingRequest, p: TrainingPlan) -> Assumption:
    """Sequences in a step, and where the default of tokens gave way to what GPUs divide."""
    words = f"{counted(p.global_batch, 'sequence')}, {short(p.global_batch * p.seq)} tokens"
    if r.global_batch is not None:
        return Assumption("batch", words, "--global-batch")
    usual = f"about {short(USUAL_BATCH_TOKENS)} tokens"
    if abs(p.global_batch * p.seq / USUAL_BATCH_TOKENS - 1) <= MOST_ROUNDED:
        return Assumption("batch", words, usual)
    why = "it grows with the GPUs" if r.scaling == "weak" else f"so that ranks of {p.gpus:,} GPUs divide it"
    return Assumption("batch", words, f"in place of {usual}: {why}; set --global-batch")


def _list_notes(answer: TrainingPlans) -> Iterator[str]:
    """The cheapest and the fastest of several numbers of GPUs, what would change the last plan, and other software."""
    paid = [(p.cost, p) for p in answer.plans if p.cost is not None]
    if len(paid) > 1:
        (_, cheapest), fastest = min(paid, key=lambda pair: pair[0]), min(answer.plans, key=lambda p: p.days)
        if cheapest is fastest:
            yield f"{fastest.gpus:,} GPUs are both fastest and cheapest of those asked for."
        else:
            yield (
                f"{cheapest.gpus:,} GPUs are cheapest ({about_money(cheapest.cost, cheapest.currency)} in "
                f"{write_time(cheapest)}), {fastest.gpus:,} fastest ({write_time(fastest)} for "
                f"{about_money(fastest.cost, fastest.currency)})."
            )
    p = answer.plans[-1]
    yield from (f"As {say_layout(c.layout)}, the run {c.why_it_loses}." for c in p.too_large[:1])
    if p.safer is not None:
        yield f"Safer: {say_layout(p.safer.layout)}; {p.safer.why_it_loses}; with a risk of {write_risk(p.safer)}."
    yield from (f"Next: {say_layout(c.layout)}; {c.why_it_loses}." for c in p.rivals[:1])
    if p.open_rivals:
        ways = counted(len(p.open_rivals), "other way")
        yield f"{ways} to cut the run {'is' if len(p.open_rivals) == 1 else 'are'} too close to call: measure them."
    if p.cost_range is not None:
        low, high = (about_money(c, p.currency) for c in p.cost_range)
        at = " at the prices listed" if p.price_range != (1.0, 1.0) else ""
        yield f"The cost lies between {low} and {high} in four of five cases{at}."
    if p.price_per_gpu_hour is not None:
        step, change = money(PRICE_STEP, p.currency), about_money(p.gpu_hours * PRICE_STEP, p.currency)
        yield f"Each {step} per GPU-hour is {change} of the run."
    least_s = p.step_s - sum(p.best.terms[name] for name in ("bubble_s", "data_s", "tensor_s"))
    shortest = f"{duration(least_s)} instead of {number(p.step_s)} s"
    yield f"Without bubble and exposed exchange the step would take {shortest}: no layout beats that."
    if answer.days_by_framework:
        days = ", ".join(f"{duration(days * S_PER_DAY)} with {name}" for name, days in answer.days_by_framework.items())
        lead = (
            "No framework is named, which makes the range wide: by --framework"
            if p.framework_range != (1.0, 1.0)
            else "By the framework"
        )
        yield f"{lead} this layout takes {days}."


def write_layout(x: TrainingLayout) -> str:
    """A layout short enough for a table: only what is cut, and the settings that matter (`say_layout` has it in words)."""
    parts = [f"TP{x.tensor}"] if x.tensor > 1 else []
    parts += [f"PP{x.pipeline}" + (f"×{x.interleave}" if x.interleave > 1 else "")] if x.pipeline > 1 else []
    parts += [f"CP{x.context}"] if x.context > 1 else []
    parts += [f"DP{x.data}"] + ([f"EP{x.expert}"] if x.expert > 1 else [])
    parts.append(f"mb{x.micro_batch}")
    if x.recompute:
        share = f" {percent(x.recompute_share)}" if x.recompute_share < 1 else ""
        parts.append(f"{RECOMPUTE[x.recompute]}{share}")
    return " ".join([*parts, "FSDP" if x.zero == 3 else f"ZeRO-{x.zero}"])


def say_layout(x: TrainingLayout) -> str:
    """The same in words.

    >>> say_layout(TrainingLayout(tensor=4, data=128, recompute=FULL, recompute_share=0.0625))
    '128 copies of the model, each layer cut over 4 GPUs; micro-batches of 1; 6.25 % of layers recomputed; optimizer sharded'
    """
    model = [f"each layer cut over {x.tensor} GPUs"] if x.tensor > 1 else []
    model += [f"layers in {x.pipeline} stages"] if x.pipeline > 1 else []
    model += [f"sequences cut over {x.context} GPUs"] if x.context > 1 else []
    model += [f"experts spread over {x.expert} GPUs"] if x.expert > 1 else []
    copies = "one copy of the model" if x.data == 1 else f"{x.data} copies of the model"
    recomputed = {SELECTIVE: "attention recomputed", FULL: f"{percent(x.recompute_share)} of layers recomputed"}
    parts = [", ".join([copies, *model]), f"micro-batches of {x.micro_batch}"]
    parts += [recomputed[x.recompute]] if x.recompute else []
    sharded = {0: "nothing sharded", 1: "optimizer sharded", 2: "optimizer and gradients sharded"}
    return "; ".join([*parts, sharded.get(x.zero, "optimizer, gradients and weights sharded")])


def write_time(p: TrainingPlan) -> str:
    return f"{number(p.days)} days" if p.wall_s >= 2 * S_PER_DAY else duration(p.wall_s)


def _draw_scaling(answer: TrainingPlans) -> Section:
    """One row for each number of GPUs, with the reason where the run cannot be; the curve where there are several."""
    first = answer.plans[0].tokens_per_s / answer.plans[0].gpus
    rows: list[tuple[Cell, ...]] = [(r.gpus, None, None, None, None, None, r.reason) for r in answer.refused]
    for p in answer.plans:
        efficiency = p.tokens_per_s / p.gpus / first
        rows.append((p.gpus, p.global_batch, p.days, p.cost, p.mfu_share, efficiency, write_layout(p.best.layout)))
    rows.sort(key=lambda row: float(row[0] or 0))
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
    runs = table(
        rows,
        col("GPUs", style="number"),
        col("batch (sequences)", style="number"),
        col("days", style="number"),
        col("cost", style="about money"),
        col("MFU", style="percent"),
        col("efficiency", style="percent"),
        "layout",
        currency=answer.currency,
        note=note,
    )
    charts = (chart,) if len(answer.plans) > 1 else ()
    return Section("Scaling" if several else "", charts=charts, tables=(runs,))


def _draw_summary(p: TrainingPlan) -> Section:
    flops = (p.model_flops_per_gpu_per_s, p.hardware_flops_per_gpu_per_s)
    model, hardware = (number(f / FLOPS_PER_TFLOPS) for f in flops)
    recomputed = "nothing is recomputed"
    if p.best.layout.recompute != NONE:
        recomputed = f"{p.best.layout.recomputed} counted"
    paid = "no price known" if p.cost is None else f"{about_money(p.cost_per_mtok, p.currency)} per million tokens"
    low, high = p.days_range
    if p.wall_s >= 2 * S_PER_DAY:
        days = f"{number(low)} to {number(high)} days"
    else:
        days = f"{duration(low * S_PER_DAY)} to {duration(high * S_PER_DAY)}"
    unfitted = f"{p.distance}: {MEANINGS[p.distance]} (validate train --about)"
    rows = [
        ("layout", write_layout(p.best.layout), say_layout(p.best.layout)),
        ("step", duration(p.step_s), f"{p.global_batch:,} sequences of {p.seq:,} tokens"),
        ("tokens/s", short(p.tokens_per_s), f"{number(p.tokens_per_s / p.gpus)} per GPU"),
        ("TFLOP/s per GPU", model, f"model FLOPs; {hardware} with recomputed work"),
        ("MFU", percent(p.mfu_share), "model FLOPs, attention in full, logits counted, embedding look-up not"),
        ("MFU, causal", percent(p.causal_mfu_share), "half of the attention scores, as Megatron-LM counts since 2025"),
        ("HFU", percent(p.hfu_share), recomputed),
        ("paid MFU", percent(p.paid_mfu_share), "over every hour paid for: failures, restarts, checkpoints"),
        *list_survival(p.checkpoints, p.spare_nodes),
        ("run", write_time(p), f"{number(p.steady_s / S_PER_DAY)} days without failures"),
        ("four of five times", days, unfitted),
        ("GPU-hours", short(p.gpu_hours), ""),
        ("cost", about_money(p.cost, p.currency), paid),
    ]
    summary = table(rows, "what", col("value", style="number"), "meaning")
    return Section(f"The run on {counted(p.gpus, 'GPU')}", tables=(summary,))


def list_survival(c: CheckpointPlan, spare_nodes: int) -> Sequence[tuple[str, str, str]]:
    """Rows of how a run survives failures: goodput, the interval of checkpoints, spares."""
    first_order = percent(c.first_order_efficiency_share)
    return (
        ("goodput", percent(c.efficiency_share), f"a failure every {duration(c.mtbf_s)}; {first_order} to first order"),
        ("checkpoint every", duration(c.interval_s), f"Daly's optimum at {duration(c.checkpoint_s)} each"),
        ("spare nodes", f"{spare_nodes:,}", "whole in 99 of 100 hours while nodes are repaired (--repair-h)"),
    )


def _draw_project(project: PlannedProject, p: TrainingPlan) -> Section:
    n = project.needs
    meanings = {
        "runs": f"{counted(n.runs, 'run')} that succeed, their real tokens (--runs)",
        "padding": f"{n.padding_percent:g} % of the tokens of a run (--padding-percent); packing saves it",
        "retries": f"runs that fail: {n.retry_percent:g} % of the GPU-hours of those that succeed (--retry-percent)",
        "evaluation": "--evaluation-gpu-hours",
        "storage": "--storage-cost",
        "staff": "--staff-cost",
    }
    costs = project.costs or {}
    rows = [(name, project.gpu_hours.get(name), costs.get(name), meaning) for name, meaning in meanings.items()]
    rows.append(("project", sum(project.gpu_hours.values()), project.cost, "the parts above; 0 is what was not given"))
    parts = table(
        rows,
        "part",
        col("GPU-hours", style="number"),
        col("cost", style="about money"),
        "meaning",
        currency=p.currency,
    )
    return Section("The project", tables=(parts,))


def draw_step(p: TrainingPlan) -> Section:
    """Where the time of a step goes: terms worth a line in the order of the step, small ones together."""
    shown = [(TERM_NAMES[n], s) for n, s in p.best.terms.items() if s >= SMALL * p.step_s and n != "overhead_s"]
    shown.append(("other", p.step_s - sum(s for _, s in shown)))
    names, seconds = zip(*shown, strict=True)
    title = f"Where {duration(p.step_s)} of a step go on {counted(p.gpus, 'GPU')} (s)"
    chart = Chart(title, "waterfall", names, (Series("seconds", seconds),), x_label="seconds", total="step")
    terms = table(
        [*shown, ("step", p.step_s)],
        "where the time goes",
        col("per step", style="duration"),
        col("share", lambda row: row[1] / p.step_s, "percent"),
        note="on the slowest GPU; what is hidden behind compute costs nothing here",
    )
    return Section("One step", charts=(chart,), tables=(terms,))


def _draw_memory(p: TrainingPlan) -> Section:
    parts = [(n.removesuffix("_bytes"), b / BYTES_PER_GIB) for n, b in p.best.memory_parts.items() if b > 0]
    names, gib = zip(*parts, strict=True)
    usable = p.best.usable_bytes / BYTES_PER_GIB
    title = f"Memory of the fullest GPU, {usable:.0f} GiB usable (GiB)"
    chart = Chart(title, "waterfall", names, (Series("GiB", gib),), x_label="GiB", total="all")
    rows = [*parts, ("all", p.best.memory_bytes / BYTES_PER_GIB), ("usable", usable)]
    return Section("Memory", charts=(chart,), tables=(table(rows, "part", col("memory (GiB)", style="number")),))


def _draw_rivals(p: TrainingPlan) -> Section:
    """The best layouts of other kinds with why they lose, and the front of time and memory."""
    columns = (
        col("layout", lambda c: write_layout(c.layout)),
        col("step", "step_s", "duration"),
        col("GiB", lambda c: c.memory_bytes / BYTES_PER_GIB, "number"),
        col("out of memory", write_risk),
    )
    safer = [p.safer] if p.safer and all(p.safer.layout != one.layout for one in p.rivals) else []
    rivals = table(
        (p.best, *safer, *p.rivals, *p.too_large),
        *columns,
        col("why not", lambda c: "the least time with the risk of memory" if c is p.best else c.why_it_loses),
        note=f"{p.layouts_scored:,} legal layouts scored, {p.layouts_fitting:,} fit; the best of each way to cut. "
        f"Tensor ranks belong inside the domain of {p.job.machine.fabric.domain_gpus} GPUs, "
        "pipeline stages across nodes, data ranks outermost.",
    )
    if len(p.pareto) < 2:
        return Section("Why not another layout", tables=(rivals,))
    front = table(
        p.pareto[:MOST_PARETO],
        *columns,
        col("days", lambda c: p.days * (c.step_s / p.step_s), "number"),
        col("cost", lambda c: None if p.cost is None else p.cost * (c.step_s / p.step_s), "about money"),
        title="Time, memory and cost: no layout beats these in all",
        currency=p.currency,
    )
    return Section("Why not another layout", tables=(rivals, front))
