"""Page of a real run beside the plan for the same network, layout and GPUs: how fast, and where the time went."""

from typing import Any, Final

from loadfactor.base.errors import InputError
from loadfactor.base.request import make_request
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.models import read_network
from loadfactor.catalog.prices import find_price
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Document, Section
from loadfactor.interfaces.formats import counted, duration, number, percent
from loadfactor.interfaces.plans.train import draw_step, write_layout
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.training.request import TrainingRequest
from loadfactor.planner.training.scaling import TrainingFacts, TrainingPlans, plan_runs
from loadfactor.planner.training.training_plan import JobRun, PlannedRun
from loadfactor.planner.validation.request import TrainingValidationRequest

WHOLE: Final = 0.001
"""A batch that is this share of itself away from a whole number of sequences is one."""


def build_document(request: TrainingValidationRequest) -> Document:
    """The page of a job. Raises InputError where the books or the configuration do not give what a plan needs."""
    from loadfactor.books.job_run import find_job_run, find_reported_network
    from loadfactor.interfaces.requests import StoreRequest

    assert request.job is not None
    with StoreRequest(store=request.store).books.snapshot() as books:
        run, configured = find_job_run(books, request.job), find_reported_network(books, request.job)
    found = PlannedRun(run, plan_like(run, request, configured).plans[0])
    plan = found.plan
    network = f"{plan.job.network.name}, {plan.seq:,} tokens a sequence, {plan.global_batch:,} a step"
    layout = "what is not given with --tp, --pp … is the fastest that fits"
    return Document(
        headline=_write_headline(found),
        sections=(_draw_speed(found), _draw_time(found), draw_step(plan)),
        assumptions=(
            Assumption("network", network, "--model, --seq, else [[network]]"),
            Assumption("layout", write_layout(plan.best.layout), layout),
            Assumption("planned steps", "constants fitted on published runs", "loadfactor validate train"),
        ),
        data=found,
    )


def plan_like(run: JobRun, request: TrainingValidationRequest, configured: dict[str, str | None]) -> TrainingPlans:
    """The plan for a run: what the request gives, else what is configured for the job; the batch is the run's own."""
    length = configured["sequence_length"]
    model = request.model or configured["model"]
    seq = request.seq or (int(length) if length is not None and length.isdecimal() else None)
    datatype = request.datatype or configured["datatype"]
    for value, option, name in (
        (model, "--model", "model"),
        (seq, "--seq", "sequence_length"),
        (datatype, "--datatype", "datatype"),
    ):
        if value is None:
            raise InputError(
                f"nobody says the {name} of job {run.job!r}: give {option}, or a table [[network]] in loadfactor.toml"
            )
    batch = run.tokens / run.steps / float(seq or 1)
    if abs(batch - round(batch)) > WHOLE * batch or batch < 0.5:
        raise InputError(
            f"{number(run.tokens / run.steps)} tokens a step are no whole number of sequences of {seq}; give the length with --seq"
        )
    card = accelerator(run.accelerator)
    given: dict[str, Any] = {name: getattr(request, name) for name in ("tp", "pp", "cp", "ep", "micro_batch", "zero")}
    if configured["recompute"] is not None:
        given["recompute"] = (configured["recompute"],)
    given |= {"model": model, "gpus": (run.gpus,), "accelerator": card.id, "tokens": max(run.tokens, 1.0)}
    given |= {"seq": seq, "global_batch": round(batch), "datatype": datatype}
    facts = TrainingFacts(read_network(str(model)), card, None, find_price(card.id, None))
    return plan_runs(make_request(TrainingRequest, given), facts)


def _write_headline(found: PlannedRun) -> str:
    run, plan = found.run, found.plan
    worst = max(found.time[1:], key=lambda part: part.seconds)
    return (
        f"A step of job {run.job} takes {duration(run.step_s)}, by plan {duration(plan.step_s)} ({found.error:+.1%}). "
        f"Most of the rest of its {duration(run.wall_s)}: {worst.name}, {percent(worst.share)}."
    )


def _draw_speed(found: PlannedRun) -> Section:
    run, plan = found.run, found.plan
    held, paid = percent(found.held_mfu_share), percent(plan.paid_mfu_share)
    rows = [
        ("step", duration(run.step_s), duration(plan.step_s), "measured: what steps covered ÷ steps"),
        ("tokens/s", number(run.tokens_per_s), number(plan.tokens_per_s), "while it stepped"),
        ("MFU", percent(found.mfu_share), percent(plan.mfu_share), "while it stepped, attention in full"),
        ("MFU of held time", held, paid, "all that was held; by plan with failures and checkpoints"),
    ]
    speed = table(rows, "what", "measured", "planned", "meaning")
    return Section(f"Job {run.job} on {counted(run.gpus, 'GPU')} and the plan for it", tables=(speed,))


def _draw_time(found: PlannedRun) -> Section:
    shown = [part for part in found.time if part.seconds]
    title = "Where the time went"
    seconds = Series("seconds", [part.seconds for part in shown])
    chart = Chart(title, "waterfall", [part.name for part in shown], (seconds,), y_label="seconds", total="held")
    parts = table(
        [*((part.name, part.seconds, part.share) for part in shown), ("held", found.run.wall_s, 1.0)],
        "where the time went",
        col("time", style="duration"),
        col("share", style="percent"),
        note="the parts add up to held",
    )
    return Section(title, charts=(chart,), tables=(parts,))
