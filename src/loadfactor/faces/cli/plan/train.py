"""`loadfactor plan train`: how fast, how full and how dear a training run will be, and which layout is best."""

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.clusters import cluster
from loadfactor.catalog.constants import read_training_constants
from loadfactor.catalog.models import read_network
from loadfactor.catalog.prices import GpuHourPrice, gpu_hour_price
from loadfactor.errors import CatalogError, InputError, PlanError
from loadfactor.faces.answer import present
from loadfactor.faces.cli.options import Format, Output
from loadfactor.faces.cli.plan.train_answer import Asked, answer
from loadfactor.planner.training.batch import choose_batch, choose_seq
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import RECOMPUTE
from loadfactor.planner.training.machine import DUALPIPE, MEGATRON_2021, MODERN, build_machine, choose_datatype
from loadfactor.planner.training.search import SearchSpace
from loadfactor.planner.training.training_plan import Reliability, TrainingPlan, plan_training
from loadfactor.units import BYTES_PER_GB

SOFTWARE = {"modern": MODERN, "dualpipe": DUALPIPE, "megatron-2021": MEGATRON_2021}
FREE = "The search turns it where it is not given."
Degrees = list[int] | None


def add_to(app: typer.Typer) -> None:
    """Hang the command under `plan`."""
    app.command("train", help=__doc__)(run)


def run(
    model: Annotated[
        str, typer.Option("--model", "-m", help="A network of the catalog, or a Hugging Face config.json.")
    ],
    gpus: Annotated[
        str, typer.Option("--gpus", "-g", help="How many GPUs; several (8,64,512) draw the scaling curve.")
    ],
    accelerator_name: Annotated[
        str, typer.Option("--accelerator", "-a", help="An accelerator of the catalog.")
    ] = "h100-sxm",
    cluster_name: Annotated[
        str | None, typer.Option("--cluster", help="A cluster of the catalog: its GPU and network.")
    ] = None,
    tokens: Annotated[float, typer.Option(help="Tokens to train on, as 15e12.")] = 1e12,
    seq: Annotated[int | None, typer.Option(help="Tokens in a sequence.")] = None,
    global_batch: Annotated[
        int | None, typer.Option(help="Sequences in a step; about 4 M tokens if not given.")
    ] = None,
    scaling: Annotated[str, typer.Option(help="strong: the batch stays; weak: it grows with the GPUs.")] = "strong",
    datatype: Annotated[str, typer.Option(help="Datatype of the matrix products: bf16, fp16 or fp8.")] = "bf16",
    tp: Annotated[Degrees, typer.Option("--tp", help=f"Tensor ranks. {FREE} Repeatable.")] = None,
    pp: Annotated[Degrees, typer.Option("--pp", help=f"Pipeline stages. {FREE}")] = None,
    cp: Annotated[Degrees, typer.Option("--cp", help=f"Context ranks. {FREE}")] = None,
    ep: Annotated[Degrees, typer.Option("--ep", help=f"Expert ranks. {FREE}")] = None,
    micro_batch: Annotated[Degrees, typer.Option("--micro-batch", help=f"Sequences in a micro-batch. {FREE}")] = None,
    interleave: Annotated[Degrees, typer.Option("--interleave", help=f"Chunks a pipeline stage holds. {FREE}")] = None,
    recompute: Annotated[list[str] | None, typer.Option("--recompute", help=f"{', '.join(RECOMPUTE)}. {FREE}")] = None,
    zero: Annotated[Degrees, typer.Option("--zero", help=f"ZeRO stage, 0 to 3 (3: FSDP). {FREE}")] = None,
    software: Annotated[
        str,
        typer.Option(
            help="modern: flash attention and overlap; dualpipe: hides expert exchange too; megatron-2021: none."
        ),
    ] = "modern",
    network_gb_per_s: Annotated[float | None, typer.Option(help="Network between nodes, GB/s per GPU.")] = None,
    price_per_gpu_hour: Annotated[
        float | None, typer.Option(help="Price; the catalog's dated one if not given.")
    ] = None,
    gpu_mtbf_h: Annotated[float, typer.Option(help="Hours between failures of one GPU.")] = 50_677,
    checkpoint_s: Annotated[float, typer.Option(help="Seconds a checkpoint stops the run.")] = 60,
    restart_s: Annotated[float, typer.Option(help="Seconds from a failure to training again.")] = 600,
    output_format: Format = "terminal",
    output: Output = None,
) -> None:
    """How fast, how full and how dear a training run will be, and which layout is best."""
    counts = _counts(gpus)
    where = cluster(cluster_name) if cluster_name else None
    card, network = accelerator(where.accelerator if where else accelerator_name), read_network(model)
    if software not in SOFTWARE:
        raise InputError(f"no software called {software!r}; there are {', '.join(SOFTWARE)}")
    if scaling not in ("strong", "weak"):
        raise InputError(f"no scaling called {scaling!r}; there are strong and weak")
    if tokens <= 0:
        raise InputError(f"--tokens must be positive, got {tokens:g}")
    out = network_gb_per_s * BYTES_PER_GB if network_gb_per_s else where.scale_out_bytes_per_s.value if where else None
    try:
        on = build_machine(card, choose_datatype(card, datatype), out)
    except CatalogError:
        known = [n.removeprefix("peak_").removesuffix("_flops") for n in card.facts if n.startswith("peak_")]
        raise InputError(f"{card.id} has no known {datatype} peak; it has {', '.join(known)}") from None
    length = seq or choose_seq(network)
    most = max(counts)
    usual = choose_batch(length, most)  # one that the most GPUs asked for divide
    first = global_batch or (max(usual * counts[0] // most, 1) if scaling == "weak" else usual)
    price = gpu_hour_price(card.id)
    paid = price_per_gpu_hour if price_per_gpu_hour is not None else (price.typical if price else None)
    knobs = SearchSpace(
        tensor=tuple(tp or ()),
        pipeline=tuple(pp or ()),
        context=tuple(cp or ()),
        expert=tuple(ep or ()),
        micro_batch=tuple(micro_batch or ()),
        interleave=tuple(interleave or ()),
        recompute=_recompute(recompute),
        zero=_zero(zero),
    )
    plans: list[TrainingPlan] = []
    refused: list[tuple[int, str]] = []
    screen = Console(stderr=True)
    for count in track(counts, "searching layouts", console=screen, transient=True, disable=not screen.is_terminal):
        batch = max(first * count // counts[0], 1) if scaling == "weak" else first
        job = TrainingJob(network, length, batch, on, SOFTWARE[software], read_training_constants())
        try:
            plans.append(
                plan_training(job, count, tokens, Reliability(gpu_mtbf_h, checkpoint_s, restart_s), knobs, paid)
            )
        except PlanError as reason:
            if len(counts) == 1:
                raise
            refused.append((count, str(reason)))
    if not plans:
        raise PlanError(refused[0][1])
    asked = Asked(
        card.name,
        scaling,
        price_per_gpu_hour is not None,
        _priced(price),
        gpu_mtbf_h,
        global_batch is not None,
        software,
    )
    present(answer(plans, refused, asked), output_format, output)


def _counts(written: str) -> list[int]:
    try:
        counts = [int(float(piece)) for piece in written.split(",") if piece.strip()]
    except ValueError:
        raise InputError(f"--gpus takes numbers like 512 or 8,64,512, got {written!r}") from None
    if not counts or min(counts) < 1:
        raise InputError(f"--gpus takes numbers from 1 on, got {written!r}")
    return counts


def _recompute(names: list[str] | None) -> tuple[int, ...]:
    for name in names or ():
        if name not in RECOMPUTE:
            raise InputError(f"no recomputation called {name!r}; there are {', '.join(RECOMPUTE)}")
    return tuple(RECOMPUTE.index(name) for name in names or ())


def _zero(stages: Degrees) -> tuple[int, ...]:
    for stage in stages or ():
        if stage not in (0, 1, 2, 3):
            raise InputError(f"ZeRO has stages 0, 1, 2 and 3, got {stage}")
    return tuple(stages or (0, 1, 2, 3))


def _priced(price: GpuHourPrice | None) -> tuple[str, str]:
    """Where the catalog's price comes from and how old it is."""
    if price is None:
        return "no price in the catalog; give --price-per-gpu-hour", ""
    span = f"${price.low:.2f}–{price.high:.2f}" if price.low and price.high else ""
    return f"catalog, {price.kind.replace('_', ' ')} {span}: {price.source}", f"{price.as_of}, {price.status}"
