"""Validation of the serving planner: every row of a file of measurements predicted, with the errors by group."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from loadfactor.base.errors import InputError
from loadfactor.catalog.accelerators import find_accelerator
from loadfactor.catalog.models import Network, find_network, from_hf_config
from loadfactor.catalog.serving import SOURCE, published_sweeps
from loadfactor.planner.serving.step import most_sequences
from loadfactor.planner.validation.request import ServingValidationRequest
from loadfactor.planner.validation.serving_sweeps import (
    SweepRow,
    build_replica,
    plain_model_name,
    predict_offline_row,
    predict_row,
    read_layout,
    read_sweeps,
)


@dataclass(frozen=True)
class ComparedRow:
    """One row: what was measured and what is predicted, or why it was skipped. Seconds; tokens per second per attention rank."""

    line: int
    system: str
    backend: str
    model: str
    precision: str | None = None
    layout: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    concurrency: int = 0  # 0: all requests at once
    measured_ttft_s: float | None = None
    measured_tpot_s: float | None = None
    measured_output_tokens_per_s: float | None = None
    predicted_ttft_s: float | None = None
    predicted_tpot_s: float | None = None
    predicted_output_tokens_per_s: float | None = None
    constants: str = ""
    sweep: tuple[object, ...] = field(default=(), repr=False)
    skipped: str | None = None

    @property
    def ttft_error(self) -> float | None:
        return relative_error(self.predicted_ttft_s, self.measured_ttft_s)

    @property
    def tpot_error(self) -> float | None:
        return relative_error(self.predicted_tpot_s, self.measured_tpot_s)

    @property
    def throughput_error(self) -> float | None:
        return relative_error(self.predicted_output_tokens_per_s, self.measured_output_tokens_per_s)


@dataclass(frozen=True)
class ServingErrors:
    """Mean absolute errors of a group, as fractions of the measured value; None where nothing was measured."""

    system: str
    backend: str
    model: str
    rows: int
    skipped: int
    tpot_mean_abs_error: float | None
    ttft_mean_abs_error: float | None
    throughput_mean_abs_error: float | None
    speedup_mean_abs_error: float | None
    ttft_at_lowest_concurrency_mean_abs_error: float | None


def relative_error(predicted: float | None, measured: float | None) -> float | None:
    """predicted/measured − 1, None when either is unknown.

    >>> relative_error(11.0, 10.0), relative_error(None, 10.0)
    (0.10000000000000009, None)
    """
    if predicted is None or measured is None:
        return None
    return predicted / measured - 1


def group_errors(rows: Sequence[ComparedRow]) -> tuple[ServingErrors, ...]:
    keys = sorted({(r.system, r.backend, r.model) for r in rows})
    return tuple(summarize_errors(*key, [r for r in rows if (r.system, r.backend, r.model) == key]) for key in keys)


def summarize_errors(system: str, backend: str, model: str, rows: Sequence[ComparedRow]) -> ServingErrors:
    used = [r for r in rows if r.skipped is None]
    sweeps: dict[tuple[object, ...], list[ComparedRow]] = {}
    for row in used:
        sweeps.setdefault(row.sweep, []).append(row)
    ordered = [sorted(sweep, key=lambda r: r.concurrency) for sweep in sweeps.values()]
    return ServingErrors(
        system,
        backend,
        model,
        len(used),
        len(rows) - len(used),
        mean_abs(r.tpot_error for r in used),
        mean_abs(r.ttft_error for r in used),
        mean_abs(r.throughput_error for r in used),
        mean_abs(speedup_error(sweep) for sweep in ordered),
        mean_abs(sweep[0].ttft_error for sweep in ordered),
    )


def speedup_error(sweep: Sequence[ComparedRow]) -> float | None:
    """Predicted over measured speed-up from the lowest to the highest concurrency of a sweep, less one; None for a single row."""
    low, high = sweep[0], sweep[-1]
    ends = [
        (low.measured_output_tokens_per_s, high.measured_output_tokens_per_s),
        (low.predicted_output_tokens_per_s, high.predicted_output_tokens_per_s),
    ]
    if low.concurrency == high.concurrency or any(a is None or b is None for a, b in ends):
        return None
    measured, predicted = (b / a for a, b in ends if a and b)
    return relative_error(predicted, measured)


def mean_abs(values: Iterable[float | None]) -> float | None:
    known = [abs(v) for v in values if v is not None]
    return sum(known) / len(known) if known else None


CONFIG_SUFFIX = "_config.json"


@dataclass(frozen=True)
class ServingValidation:
    """Errors of groups and of all rows, and the rows themselves."""

    groups: tuple[ServingErrors, ...]
    overall: ServingErrors
    rows: tuple[ComparedRow, ...]
    source: str = field(repr=False)

    def list_predicted(self) -> tuple[ComparedRow, ...]:
        return tuple(row for row in self.rows if row.skipped is None)


def validate_serving(request: ServingValidationRequest) -> ServingValidation:
    """Predict the rows of the file, or the sweeps that come with the package. Raises InputError when there is no row."""
    path = request.rows or published_sweeps()
    rows = compare_rows(read_sweeps(path), find_configs(request.model_config))
    if not rows:
        raise InputError(f"{path}: no rows; it needs measurements under its header")
    groups = group_errors([row for row in rows if row.model])
    source = SOURCE if request.rows is None else str(path)
    return ServingValidation(groups, summarize_errors("all", "all", "all", rows), rows, source)


def compare_rows(rows: Iterable[SweepRow | tuple[int, str]], configs: Mapping[str, Path]) -> tuple[ComparedRow, ...]:
    """Each row beside its prediction, or with the reason why it was skipped."""
    return tuple(_compare(row, configs) for row in rows)


def find_configs(folder: Path | None) -> Mapping[str, Path]:
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


def _find_network(model: str, configs: Mapping[str, Path]) -> Network | None:
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
    measured = ComparedRow(
        line=row.line,
        system=row.system,
        backend=row.backend,
        model=row.model,
        precision=row.precision,
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.output_tokens,
        concurrency=row.concurrency or 0,
        measured_ttft_s=row.ttft_s,
        measured_tpot_s=row.tpot_s,
        measured_output_tokens_per_s=row.output_tokens_per_s,
        sweep=row.sweep,
    )
    try:
        return _predict(measured, row, configs)
    except InputError as error:
        return replace(measured, skipped=str(error))


def _predict(measured: ComparedRow, row: SweepRow, configs: Mapping[str, Path]) -> ComparedRow:
    chip = find_accelerator(row.system) or find_accelerator(row.system.replace("_", "-"))
    if chip is None:
        raise InputError(
            f"no accelerator called {row.system!r} in the catalog; add catalog/accelerators/{row.system}.toml"
        )
    network = _find_network(row.model, configs)
    if network is None:
        raise InputError(f"unknown model {row.model!r}; give its config.json with --model-config")
    where = read_layout(row.tp, row.moe_ep, row.attention_dp, chip.scale_up_gpus, row.pp)
    replica = build_replica(network, chip, row.backend, row.precision, where.layout)
    if most_sequences(replica, row.prompt_tokens + row.output_tokens) <= 0:
        raise InputError(f"{network.name} in {replica.precision.name} does not fit on {where.layout} of {chip.name}")
    known = replace(
        measured, precision=replica.precision.name, layout=str(where.layout), constants=replica.engine.fitted_on
    )
    if row.concurrency is None:
        return replace(known, predicted_output_tokens_per_s=predict_offline_row(replica, row) / where.ranks)
    p = predict_row(replica, where.ranks, row.concurrency, row.prompt_tokens, row.output_tokens)
    return replace(
        known,
        predicted_ttft_s=float(p.ttft_s),
        predicted_tpot_s=float(p.tpot_s),
        predicted_output_tokens_per_s=float(p.output_tokens_per_s) / where.ranks,
    )
