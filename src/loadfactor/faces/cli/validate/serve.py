"""`loadfactor validate serve`: predicted TTFT, time per token and throughput beside measured ones, row by row."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.catalog.models import Network, find_network, from_hf_config
from loadfactor.catalog.serving import SOURCE, published_sweeps
from loadfactor.errors import InputError
from loadfactor.faces.answer import Answer, Assumption, Column, Table, present
from loadfactor.faces.charts import Chart, Series
from loadfactor.faces.cli.options import Format, Output
from loadfactor.planner.serving.cache_memory import most_sequences
from loadfactor.validation.serving_errors import ComparedRow, ServingErrors, group_errors, summarize_errors
from loadfactor.validation.serving_rows import build_replica, predict_latency, read_layout
from loadfactor.validation.serving_sweeps import SweepRow, plain_model_name, read_sweeps

CONFIG_SUFFIX = "_config.json"


def add_to(app: typer.Typer) -> None:
    """Hang the command under `validate`."""
    app.command("serve", help="Serving: TTFT, time per token and throughput over concurrency, beside measurements.")(
        serve
    )


def serve(
    rows: Annotated[
        Path | None,
        typer.Option(
            help="CSV of measurements: model, system, backend, isl, osl, tp, concurrency, tpot_ms, ttft_ms, …"
        ),
    ] = None,
    model_config: Annotated[
        Path | None, typer.Option(help="Folder of Hugging Face config.json files for models the catalog does not know.")
    ] = None,
    output: Output = None,
    output_format: Format = "terminal",
) -> None:
    """Predict every row of a file of measurements and show the errors by system, engine and model."""
    path = rows or published_sweeps()
    configs = _configs(model_config)
    compared = [_compare(row, configs) for row in read_sweeps(path)]
    if not compared:
        raise InputError(f"{path}: no rows; it needs measurements under its header")
    present(_answer(compared, SOURCE if rows is None else str(path)), output_format, output)


def _configs(folder: Path | None) -> Mapping[str, Path]:
    """Config files by the model they are named after, as written and plain."""
    if folder is None:
        return {}
    if not folder.is_dir():
        raise InputError(
            f"--model-config {folder}: there is no such folder; it holds files like org--model{CONFIG_SUFFIX}"
        )
    found: dict[str, Path] = {}
    for file in sorted(folder.rglob("*.json")):
        if file.name == "config.json":
            name = file.parent.name
        elif file.name.endswith(CONFIG_SUFFIX):
            name = file.name.removesuffix(CONFIG_SUFFIX)
        else:
            name = file.stem
        name = name.replace("--", "/").lower()
        found[name] = file
        found.setdefault(plain_model_name(name), file)
    return found


@cache
def _read_config(path: Path) -> Network:
    return from_hf_config(path)


def _network(model: str, configs: Mapping[str, Path]) -> Network | None:
    """A model by its exact name in the folder, then in the catalog, then by what its name says without precision and tuning."""
    plain = plain_model_name(model)
    if model.lower() in configs:
        return _read_config(configs[model.lower()])
    known = find_network(model) or find_network(plain)
    if known is None and plain in configs:
        return _read_config(configs[plain])
    return known


def _compare(row: SweepRow | tuple[int, str], configs: Mapping[str, Path]) -> ComparedRow:
    if isinstance(row, tuple):
        return ComparedRow(row[0], "", "", "", skipped=row[1])
    about = ComparedRow(
        line=row.line,
        system=row.system,
        backend=row.backend,
        model=row.model,
        precision=row.precision,
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
        concurrency=row.concurrency,
        measured_ttft_s=row.ttft_s,
        measured_tpot_s=row.tpot_s,
        measured_output_tokens_per_s=row.output_tokens_per_s,
    )
    try:
        return _predict(about, row, configs)
    except InputError as error:
        return replace(about, skipped=str(error))


def _predict(about: ComparedRow, row: SweepRow, configs: Mapping[str, Path]) -> ComparedRow:
    chip = find_accelerator(row.system) or find_accelerator(row.system.replace("_", "-"))
    if chip is None:
        raise InputError(
            f"no accelerator called {row.system!r} in the catalog; add catalog/accelerators/{row.system}.toml"
        )
    network = _network(row.model, configs)
    if network is None:
        raise InputError(f"no network called {row.model!r} in the catalog; give its config.json with --model-config")
    measured = read_layout(row.tp, row.moe_ep, row.attention_dp, chip.scale_up_gpus)
    replica = build_replica(network, chip, row.backend, row.precision, measured.layout)
    if most_sequences(replica, row.prompt_tokens + row.output_tokens) <= 0:
        raise InputError(f"{network.name} in {replica.precision.name} does not fit on {measured.layout} of {chip.name}")
    p = predict_latency(replica, measured.ranks, row.concurrency, row.prompt_tokens, row.output_tokens)
    sweep = (row.model, row.system, row.backend, row.version, row.precision, row.prompt_tokens, row.output_tokens)
    return replace(
        about,
        precision=replica.precision.name,
        layout=str(measured.layout),
        predicted_ttft_s=float(p.ttft_s),
        predicted_tpot_s=float(p.tpot_s),
        predicted_output_tokens_per_s=float(p.output_tokens_per_s) / measured.ranks,
        constants=replica.engine.fitted_on,
        sweep=(*sweep, row.tp, row.moe_ep, row.attention_dp),
    )


def _answer(rows: Sequence[ComparedRow], source: str) -> Answer:
    groups = group_errors([r for r in rows if r.model])
    overall = summarize_errors("all", "all", "all", rows)
    used = [r for r in rows if r.skipped is None]
    columns = ("system", "backend", "model", "rows", "skipped", "TPOT", "TTFT", "tok/s", "speed-up")
    styles = ("text", "text", "text", "number", "number", *(["percent"] * 4))
    table = Table(
        "Mean absolute error, as a share of the measured value",
        [Column(title, style) for title, style in zip(columns, styles, strict=True)],  # type: ignore[arg-type]
        [_line(e) for e in (*groups, overall)],
    )
    reasons: dict[str, int] = {}
    for row in rows:
        if row.skipped:
            reasons[row.skipped] = reasons.get(row.skipped, 0) + 1
    skipped = Table(
        "Rows left out", [Column("rows", "number"), Column("why")], [(n, why) for why, n in reasons.items()]
    )
    chart = Chart(
        "Time per token: predicted against measured",
        "scatter",
        tuple(r.measured_tpot_s or 0.0 for r in used),
        (Series("rows", tuple(r.predicted_tpot_s for r in used)),),
        x_label="measured (s)",
        y_label="predicted (s)",
        x_log=True,
        y_log=True,
    )
    sentence = f"No row of {source} could be predicted."
    if overall.rows:
        parts = (("time per token", overall.tpot_mean_abs_error), ("throughput", overall.throughput_mean_abs_error))
        said = " and ".join(f"{name} to {100 * e:.1f} %" for name, e in parts if e is not None)
        said = said or "no such measurement"
        sentence = f"{overall.rows} measured rows are predicted: {said} on average; {overall.skipped} skipped."
    origins = sorted({r.constants for r in used})
    return Answer(
        sentence,
        tables=(table, *((skipped,) if reasons else ())),
        charts=(chart,) if used else (),
        assumptions=(
            Assumption("measurements", source, "the file"),
            *(Assumption("engine constants", text, "catalog/engines/constants.toml") for text in origins),
        ),
        data={"groups": [asdict(g) for g in groups], "overall": asdict(overall), "rows": [_row(r) for r in rows]},
    )


def _line(e: ServingErrors) -> tuple[str | float | None, ...]:
    numbers = (e.tpot_mean_abs_error, e.ttft_mean_abs_error, e.throughput_mean_abs_error, e.speedup_mean_abs_error)
    return (e.system, e.backend, e.model.rpartition("/")[2], float(e.rows), float(e.skipped), *numbers)


def _row(r: ComparedRow) -> dict[str, object]:
    kept = {name: value for name, value in asdict(r).items() if name != "sweep"}
    return {**kept, "tpot_error": r.tpot_error, "ttft_error": r.ttft_error, "throughput_error": r.throughput_error}
