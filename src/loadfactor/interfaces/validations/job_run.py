"""Page of a real run beside the plan for the same network, layout and GPUs: how fast, and where the time went."""

from typing import Any, Final

from loadfactor.base.errors import InputError
from loadfactor.base.request import make_request
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.models import read_network
from loadfactor.catalog.prices import find_price
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Cell, DataTable, Document, Section, TableColumn
from loadfactor.interfaces.formats import counted, duration, number, percent
from loadfactor.interfaces.plans.train import draw_step, write_layout
from loadfactor.planner.training.job_run import JobRun, PlannedRun
from loadfactor.planner.training.request import TrainingRequest
from loadfactor.planner.training.scaling import TrainingFacts, plan_runs
from loadfactor.planner.validation.request import TrainingValidationRequest

WHOLE: Final = 0.001
"""A batch that is this share of itself away from a whole number of sequences is one."""


def build_document(request: TrainingValidationRequest) -> Document:
    """The page of a job. Raises InputError where the books or the configuration do not say what a plan needs."""
    from loadfactor.books.job_run import find_job_run, find_said_network
    from loadfactor.interfaces.requests import StoreRequest

    assert request.job is not None
    with StoreRequest(store=request.store).books.snapshot() as books:
        run, said = find_job_run(books, request.job), find_said_network(books, request.job)
    found = PlannedRun(run, plan_like(run, request, said).plans[0])
    return Document(
        headline=_write_headline(found),
        sections=(_draw_speed(found), _draw_time(found), draw_step(found.plan)),
        assumptions=_list_assumptions(found),
        data=found,
    )


def plan_like(run: JobRun, request: TrainingValidationRequest, said: dict[str, str | None]) -> Any:
    """The plan for a run: what the request gives, else what the configuration says of the job; the batch is the run's own."""
    model, seq = request.model or said["model"], request.seq or _read_length(said["sequence_length"])
    datatype = request.datatype or said["datatype"]
    for value, option, name in (
        (model, "--model", "model"),
        (seq, "--seq", "sequence_length"),
        (datatype, "--datatype", "datatype"),
    ):
        if value is None:
            raise InputError(
                f"nobody says the {name} of job {run.job!r}: give {option}, or a table [[network]] in loadfactor.toml"
            )
    given: dict[str, Any] = {name: getattr(request, name) for name in ("tp", "pp", "cp", "ep", "micro_batch", "zero")}
    if said["recompute"] is not None:
        given["recompute"] = (said["recompute"],)
    batch = run.tokens / run.steps / float(seq or 1)
    if abs(batch - round(batch)) > WHOLE * batch or batch < 0.5:
        raise InputError(
            f"{number(run.tokens / run.steps)} tokens a step are no whole number of sequences of {seq}; give the length with --seq"
        )
    card = accelerator(run.accelerator)
    planned = make_request(
        TrainingRequest,
        {
            **given,
            "model": model,
            "gpus": (run.gpus,),
            "accelerator": card.id,
            "tokens": max(run.tokens, 1.0),
            "seq": seq,
            "global_batch": round(batch),
            "datatype": datatype,
        },
    )
    return plan_runs(planned, TrainingFacts(read_network(str(model)), card, None, find_price(card.id, None)))


def _read_length(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _write_headline(found: PlannedRun) -> str:
    run, plan = found.run, found.plan
    worst = max(found.time[1:], key=lambda part: part.seconds)
    said = (
        f"A step of job {run.job} takes {duration(run.step_s)}, by plan {duration(plan.step_s)} ({found.error:+.1%})."
    )
    return f"{said} Most of the rest of its {duration(run.wall_s)}: {worst.name}, {percent(worst.share)}."


def _draw_speed(found: PlannedRun) -> Section:
    run, plan = found.run, found.plan
    rows: list[tuple[Cell, ...]] = [
        ("step", duration(run.step_s), duration(plan.step_s), "measured: what steps covered ÷ steps"),
        ("tokens/s", number(run.tokens_per_s), number(plan.tokens_per_s), "while it stepped"),
        ("MFU", percent(found.mfu_share), percent(plan.mfu_share), "while it stepped, attention in full"),
        (
            "MFU of held time",
            percent(found.held_mfu_share),
            percent(plan.paid_mfu_share),
            "all that was held; by plan with failures and checkpoints",
        ),
    ]
    columns = (TableColumn("what"), TableColumn("measured"), TableColumn("planned"), TableColumn("meaning"))
    return Section(
        f"Job {run.job} on {counted(run.gpus, 'GPU')} and the plan for it", tables=(DataTable(columns, rows),)
    )


def _draw_time(found: PlannedRun) -> Section:
    shown = [part for part in found.time if part.seconds]
    rows: list[tuple[Cell, ...]] = [(part.name, part.seconds, part.share) for part in shown]
    rows.append(("held", found.run.wall_s, 1.0))
    columns = (TableColumn("where the time went"), TableColumn("time", "duration"), TableColumn("share", "percent"))
    chart = Chart(
        "Where the time went",
        "waterfall",
        [part.name for part in shown],
        (Series("seconds", [part.seconds for part in shown]),),
        y_label="seconds",
        total="held",
    )
    return Section(
        "Where the time went", charts=(chart,), tables=(DataTable(columns, rows, note="the parts add up to held"),)
    )


def _list_assumptions(found: PlannedRun) -> tuple[Assumption, ...]:
    plan = found.plan
    return (
        Assumption(
            "network",
            f"{plan.job.network.name}, {plan.seq:,} tokens a sequence, {plan.global_batch:,} a step",
            "--model, --seq, else [[network]]",
        ),
        Assumption(
            "layout", write_layout(plan.best.layout), "what is not given with --tp, --pp … is the fastest that fits"
        ),
        Assumption("planned steps", "constants fitted on published runs", "loadfactor validate train"),
    )
