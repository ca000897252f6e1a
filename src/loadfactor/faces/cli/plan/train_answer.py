"""What does a person read about a training run? The sentence, the step taken apart, memory, rivals, scaling, assumptions."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadfactor.faces.answer import Answer, Assumption, Column, Table
from loadfactor.faces.charts import Chart, Series
from loadfactor.faces.formats import duration, money, number, percent, short
from loadfactor.planner.training.evaluation import EvaluatedLayout
from loadfactor.planner.training.layout import NONE, RECOMPUTE, TrainingLayout
from loadfactor.planner.training.training_plan import TrainingPlan
from loadfactor.units import BYTES_PER_GIB, FLOPS_PER_TFLOPS, H_PER_DAY, S_PER_HOUR

TERM_NAMES = {
    "matmul_s": "matrix products",
    "attention_s": "attention",
    "elementwise_s": "norms, activations, copies",
    "recompute_s": "recomputation",
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
SOFTWARE_MEANS = {
    "modern": "flash attention, overlap",
    "dualpipe": "flash attention, overlap, hidden experts",
    "megatron-2021": "unfused attention, no overlap",
}
SMALL = 0.002  # of the step: terms below are drawn together as "other"


@dataclass(frozen=True)
class Asked:
    """What the assumptions table needs to know about the question."""

    accelerator: str
    scaling: str
    price_given: bool
    price_source: tuple[str, str]
    gpu_mtbf_h: float
    batch_given: bool
    software: str


def answer(plans: Sequence[TrainingPlan], refused: Sequence[tuple[int, str]], asked: Asked) -> Answer:
    """The whole page; the last number of GPUs asked for is the one taken apart."""
    plan = plans[-1]
    several = len(plans) + len(refused) > 1
    tables = [_scaling(plans, refused, asked)] if several else []
    tables += [_run(plan), _where_time_goes(plan), _memory(plan), _rivals(plan)]
    if len(plan.pareto) > 1:
        tables.append(_pareto(plan))
    charts = [_scaling_chart(plans, asked)] if len(plans) > 1 else []
    return Answer(
        sentence=_sentence(plan, asked),
        tables=tables,
        charts=(*charts, _step_chart(plan), _memory_chart(plan)),
        assumptions=_assumptions(plan, asked),
        would_change=[*_best_number(plans), *_would_change(plan)],
        data=_data(plans, refused, asked),
    )


def _sentence(p: TrainingPlan, asked: Asked) -> str:
    paid = f" and {money(p.cost)}" if p.cost is not None else ""
    return (
        f"Training {p.job.network.name} on {short(p.tokens)} tokens with {p.gpus:,} × {asked.accelerator} takes "
        f"{p.days:,.1f} days{paid}, at {percent(p.use.mfu_share)} MFU: {_cut(p.best.layout)}."
    )


def _cut(x: TrainingLayout) -> str:
    """A layout short enough for a table: only what is cut, and the knobs that matter."""
    parts = [f"TP{x.tensor}"] if x.tensor > 1 else []
    parts += [f"PP{x.pipeline}" + (f"×{x.interleave}" if x.interleave > 1 else "")] if x.pipeline > 1 else []
    parts += [f"CP{x.context}"] if x.context > 1 else []
    parts += [f"DP{x.data}"] + ([f"EP{x.expert}"] if x.expert > 1 else [])
    parts += [f"mb{x.micro_batch}"] + ([RECOMPUTE[x.recompute]] if x.recompute else [])
    return " ".join([*parts, "FSDP" if x.zero == 3 else f"ZeRO-{x.zero}"])


def _run(p: TrainingPlan) -> Table:
    u, c = p.use, p.checkpoints
    rows = [
        ("step", duration(p.best.step_s), f"{p.job.global_batch:,} sequences of {p.job.seq:,} tokens"),
        ("tokens/s", f"{u.tokens_per_s:,.0f}", f"{u.tokens_per_s / p.gpus:,.0f} per GPU"),
        (
            "TFLOP/s per GPU",
            number(u.model_flops_per_gpu_per_s / FLOPS_PER_TFLOPS),
            f"model FLOPs; {number(u.hardware_flops_per_gpu_per_s / FLOPS_PER_TFLOPS)} with recomputed work",
        ),
        ("MFU", percent(u.mfu_share), "model FLOPs, attention in full, logits counted, embedding look-up not"),
        ("MFU, causal", percent(u.causal_mfu_share), "half of the attention scores, as Megatron-LM counts since 2025"),
        ("HFU", percent(u.hfu_share), _again(p.best.layout)),
        ("paid MFU", percent(p.paid_mfu_share), "over every hour paid for: failures, restarts, checkpoints"),
        ("goodput", percent(c.efficiency_share), f"a failure every {duration(c.mtbf_s)}"),
        ("checkpoint every", duration(c.interval_s), f"Daly's optimum at {duration(c.checkpoint_s)} each"),
        ("run", f"{p.days:,.1f} days", f"{p.steady_s / S_PER_HOUR / H_PER_DAY:,.1f} without failures"),
        ("GPU-hours", f"{p.gpu_hours:,.0f}", ""),
        (
            "cost",
            money(p.cost),
            f"{money(p.cost_per_mtok)} per million tokens" if p.cost is not None else "no price known",
        ),
    ]
    return Table("The run", (Column("what"), Column("value", "number"), Column("meaning")), rows)


def _again(x: TrainingLayout) -> str:
    return "nothing is recomputed" if x.recompute == NONE else f"{RECOMPUTE[x.recompute]} recomputation counted"


def _shown(p: EvaluatedLayout) -> list[tuple[str, float]]:
    """Terms worth a line, the small ones together, in the order of the step."""
    large = [(TERM_NAMES[n], s) for n, s in p.terms.items() if s >= SMALL * p.step_s and n != "overhead_s"]
    rest = p.step_s - sum(s for _, s in large)
    return [*large, ("other", rest)]


def _where_time_goes(p: TrainingPlan) -> Table:
    rows: list[tuple[str, float, float]] = [(n, s, s / p.best.step_s) for n, s in _shown(p.best)]
    rows.append(("step", p.best.step_s, 1.0))
    columns = (Column("where the time goes"), Column("per step", "duration"), Column("share", "percent"))
    return Table("One step", columns, rows, "on the slowest GPU; what is hidden behind compute costs nothing here")


def _memory(p: TrainingPlan) -> Table:
    parts = [(n.removesuffix("_bytes"), b / BYTES_PER_GIB) for n, b in p.best.memory_parts.items() if b > 0]
    parts += [("all", p.best.memory_bytes / BYTES_PER_GIB), ("usable", p.best.usable_bytes / BYTES_PER_GIB)]
    return Table("TrainingMemory of the fullest GPU", (Column("part"), Column("GiB", "number")), parts)


def _rivals(p: TrainingPlan) -> Table:
    rows: list[tuple[str, float, float, str | None]] = [
        (_cut(p.best.layout), p.best.step_s, p.best.memory_bytes / BYTES_PER_GIB, "the best of those that fit")
    ]
    rows += [
        (_cut(c.layout), c.step_s, c.memory_bytes / BYTES_PER_GIB, c.why_it_loses) for c in (*p.rivals, *p.too_large)
    ]
    columns = (Column("layout"), Column("step", "duration"), Column("GiB", "number"), Column("why not"))
    note = (
        f"{p.layouts_scored:,} legal layouts scored, {p.layouts_fitting:,} fit; the best of each way to cut. "
        f"Tensor ranks belong inside the domain of {p.job.machine.fabric.domain_gpus} GPUs, "
        "pipeline stages across nodes, data ranks outermost."
    )
    return Table("Why not another layout", columns, rows, note)


def _pareto(p: TrainingPlan) -> Table:
    columns = [Column("layout"), Column("step", "duration"), Column("GiB", "number"), Column("days", "number")]
    columns.append(Column("cost", "money"))
    rows = []
    for c in p.pareto[:8]:
        ratio = c.step_s / p.best.step_s
        paid = None if p.cost is None else p.cost * ratio
        rows.append((_cut(c.layout), c.step_s, c.memory_bytes / BYTES_PER_GIB, p.days * ratio, paid))
    return Table("Time, memory and money: no layout beats these in all", columns, rows)


def _scaling(plans: Sequence[TrainingPlan], refused: Sequence[tuple[int, str]], asked: Asked) -> Table:
    columns = (
        Column("GPUs", "number"), Column("batch", "number"), Column("days", "number"), Column("cost", "money"),
        Column("MFU", "percent"), Column("efficiency", "percent"), Column("layout"),
    )  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    for p in plans:
        ideal = p.use.tokens_per_s / p.gpus / (plans[0].use.tokens_per_s / plans[0].gpus)
        rows.append((p.gpus, p.job.global_batch, round(p.days, 1), p.cost, p.use.mfu_share, ideal, _cut(p.best.layout)))
    rows += [(gpus, None, None, None, None, None, reason) for gpus, reason in refused]
    rows.sort(key=lambda r: r[0])
    note = f"{asked.scaling} scaling; efficiency: tokens per second and GPU against the smallest"
    return Table("Scaling", columns, rows, note)


def _scaling_chart(plans: Sequence[TrainingPlan], asked: Asked) -> Chart:
    x = [float(p.gpus) for p in plans]
    first = plans[0].use.tokens_per_s / plans[0].gpus
    series = (
        Series("predicted", [p.use.tokens_per_s for p in plans]),
        Series("ideal", [first * g for g in x], dashed=True),
    )
    title = f"{plans[0].job.network.name}: tokens per second, {asked.scaling} scaling"
    return Chart(title, "line", x, series, x_label="GPUs", y_label="tokens/s", x_log=True, y_log=True)


def _step_chart(p: TrainingPlan) -> Chart:
    names, seconds = zip(*_shown(p.best), strict=True)
    title = f"Where {duration(p.best.step_s)} of a step go on {p.gpus:,} GPUs (s)"
    return Chart(title, "waterfall", names, (Series("seconds", seconds),), x_label="seconds", total="step")


def _memory_chart(p: TrainingPlan) -> Chart:
    parts = [(n.removesuffix("_bytes"), b / BYTES_PER_GIB) for n, b in p.best.memory_parts.items() if b > 0]
    names, gib = zip(*parts, strict=True)
    title = f"TrainingMemory of the fullest GPU, {p.best.usable_bytes / BYTES_PER_GIB:.0f} GiB usable (GiB)"
    return Chart(title, "waterfall", names, (Series("GiB", gib),), x_label="GiB", total="all")


def _assumptions(p: TrainingPlan, asked: Asked) -> tuple[Assumption, ...]:
    source, as_of = asked.price_source
    price = Assumption(
        "price", "none" if p.price_per_gpu_hour is None else f"{money(p.price_per_gpu_hour)} per GPU-hour",
        "your --price-per-gpu-hour" if asked.price_given else source, "" if asked.price_given else as_of,
    )  # fmt: skip
    fabric = p.job.machine.fabric
    return (
        price,
        Assumption("batch", f"{p.job.global_batch:,} sequences", "--global-batch" if asked.batch_given else "about 4 M tokens"),
        Assumption("network", f"{fabric.scale_out_bytes_per_s / 1e9:g} GB/s per GPU", "catalog, --cluster or --network-gb-per-s"),
        Assumption("software", SOFTWARE_MEANS[asked.software], "--software"),
        Assumption("failures", f"one per {asked.gpu_mtbf_h:,.0f} GPU-hours", "Llama 3: 419 in 54 days on 16,384 H100"),
        Assumption("speed of kernels and links", "fitted once on published runs", "loadfactor validate train"),
    )  # fmt: skip


def _best_number(plans: Sequence[TrainingPlan]) -> list[str]:
    """Of several numbers of GPUs, the cheapest and the fastest."""
    paid = [(p.cost, p) for p in plans if p.cost is not None]
    if len(paid) < 2:
        return []
    cheapest, fastest = min(paid, key=lambda pair: pair[0])[1], min(plans, key=lambda p: p.days)
    if cheapest is fastest:
        return [f"{fastest.gpus:,} GPUs are both fastest and cheapest of those asked for."]
    return [
        f"{cheapest.gpus:,} GPUs are cheapest ({money(cheapest.cost)} in {cheapest.days:,.1f} days), "
        f"{fastest.gpus:,} fastest ({fastest.days:,.1f} days for {money(fastest.cost)})."
    ]


def _would_change(p: TrainingPlan) -> list[str]:
    said = [f"{_cut(c.layout)} {c.why_it_loses}." for c in p.too_large[:1]]
    if p.rivals:
        said.append(f"{_cut(p.rivals[0].layout)} is next: {p.rivals[0].why_it_loses}.")
    if p.cost is not None and p.price_per_gpu_hour:
        said.append(f"Each $0.10 per GPU-hour is {money(p.cost * 0.1 / p.price_per_gpu_hour)} of the run.")
    half = p.best.step_s - p.best.terms["bubble_s"] - p.best.terms["data_s"] - p.best.terms["tensor_s"]
    said.append(f"Without bubble and exposed exchange the step would take {duration(half)}: no layout beats that.")
    return said


def _candidate(c: EvaluatedLayout) -> dict[str, Any]:
    return {
        "layout": asdict(c.layout) | {"recompute": RECOMPUTE[c.layout.recompute]},
        "step_s": c.step_s,
        "terms": dict(c.terms),
        "memory_bytes": c.memory_bytes,
        "memory_parts": dict(c.memory_parts),
        "usable_bytes": c.usable_bytes,
        "fits": c.fits,
        "why_it_loses": c.why_it_loses,
    }


def _plan(p: TrainingPlan) -> dict[str, Any]:
    return {
        "gpus": p.gpus,
        "global_batch": p.job.global_batch,
        "seq": p.job.seq,
        "best": _candidate(p.best),
        "step_s": p.best.step_s,
        "tokens_per_s": p.use.tokens_per_s,
        "mfu_share": p.use.mfu_share,
        "hfu_share": p.use.hfu_share,
        "causal_mfu_share": p.use.causal_mfu_share,
        "paid_mfu_share": p.paid_mfu_share,
        "model_flops_per_gpu_per_s": p.use.model_flops_per_gpu_per_s,
        "hardware_flops_per_gpu_per_s": p.use.hardware_flops_per_gpu_per_s,
        "goodput_share": p.checkpoints.efficiency_share,
        "checkpoint_interval_s": p.checkpoints.interval_s,
        "days": p.days,
        "gpu_hours": p.gpu_hours,
        "cost": p.cost,
        "price_per_gpu_hour": p.price_per_gpu_hour,
        "layouts_scored": p.layouts_scored,
        "layouts_fitting": p.layouts_fitting,
        "rivals": [_candidate(c) for c in p.rivals],
        "too_large": [_candidate(c) for c in p.too_large],
        "pareto": [_candidate(c) for c in p.pareto],
    }


def _data(plans: Sequence[TrainingPlan], refused: Sequence[tuple[int, str]], asked: Asked) -> dict[str, Any]:
    return {
        "model": plans[0].job.network.name,
        "parameters": plans[0].job.network.parameters,
        "accelerator": plans[0].job.machine.name,
        "tokens": plans[0].tokens,
        "scaling": asked.scaling,
        "price_source": None if asked.price_given else " ".join(asked.price_source),
        "plans": [_plan(p) for p in plans],
        "refused": [{"gpus": gpus, "reason": reason} for gpus, reason in refused],
    }
