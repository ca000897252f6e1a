"""Validation of the serving planner: rows that somebody measured on a replica, each predicted, with the errors by group.

Columns: model, system, backend, isl, osl, tp, concurrency, and at least one of tpot_ms, ttft_ms, output_tok_per_s_derived (or
output_tok_per_s). Optional: precision, pp, moe_ep, attention_dp, backend_version, requests, drafted (tokens that the network's own
layers draft a step; where rows do not say it, they are taken for published runs: catalog/engines/published_runs.toml). Where
concurrency is empty, all requests are there from the start (offline), and throughput alone is compared. The published silicon
sample of aiconfigurator (columns model_path, tp_size, …, silicon_tpot_ms) is read too. `concurrency` counts requests per
attention-data-parallel rank, and so does the throughput, as in that sample. Rows of mode disagg have replicas for prompts and
others to decode (prefill_num_workers, prefill_tp_size, decode_…); their concurrency and throughput are of all of them.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import isclose
from pathlib import Path

from loadfactor.base.errors import InputError, SourceError
from loadfactor.base.limits import Limits
from loadfactor.base.units import MS_PER_S
from loadfactor.catalog.accelerators import Accelerator, find_accelerator
from loadfactor.catalog.constants import read_serving_errors
from loadfactor.catalog.engines import EngineConstants, read_engine_constants, read_run_settings
from loadfactor.catalog.models import Network, find_network, from_hf_config
from loadfactor.catalog.serving import SOURCE, published_sweeps
from loadfactor.planner.hardware.distance import Distance, share_inside
from loadfactor.planner.serving.apart import predict_apart
from loadfactor.planner.serving.calibration import Ranges, read_ranges, tell_distance
from loadfactor.planner.serving.latency import predict_latency, predict_offline
from loadfactor.planner.serving.layouts import ReplicaLayout, choose_precision
from loadfactor.planner.serving.simulation.fleet import MOST_DRAFTED, Speculation
from loadfactor.planner.serving.step import Replica, most_sequences
from loadfactor.planner.validation.measurement_files import LIMIT_BYTES, RowRefused, read_number, read_whole
from loadfactor.planner.validation.request import ServingValidationRequest
from loadfactor.sources.files import read_file


@dataclass(frozen=True)
class Half:
    """Replicas that do one half of the work, prompts or decoding: how many, and the layout of each."""

    workers: int
    tp: int
    pp: int
    moe_ep: int
    attention_dp: int

    @property
    def layout(self) -> ReplicaLayout:
        return ReplicaLayout(self.tp * self.attention_dp * self.pp, self.attention_dp, self.moe_ep, self.pp)


@dataclass(frozen=True)
class SweepRow:
    """One measurement, as its row has it."""

    model: str
    system: str
    backend: str
    version: str
    precision: str | None
    prompt_tokens: int
    output_tokens: int
    tp: int
    pp: int
    moe_ep: int
    attention_dp: int
    concurrency: int | None  # per attention rank; None: all requests at once
    requests: int | None  # of the whole run, where the row says it
    drafted: int | None  # tokens drafted a step; None: the row does not say
    ttft_s: float | None
    tpot_s: float | None
    output_tokens_per_s: float | None  # per attention rank
    line: int
    halves: tuple[Half, Half] | None = None  # prompts and decoding on replicas of their own; counts are of all

    @property
    def sweep(self) -> tuple[object, ...]:
        what = (
            self.model,
            self.system,
            self.backend,
            self.version,
            self.precision,
            self.prompt_tokens,
            self.output_tokens,
        )
        return (*what, *self.layout, self.halves)

    @property
    def layout(self) -> tuple[int, int, int, int]:
        return self.tp, self.pp, self.moe_ep, self.attention_dp

    @property
    def source(self) -> str:
        """Who measured, as far as the row says it: accelerator, engine and release stand for laboratory and month."""
        return f"{self.system.replace('_', '-')} {self.backend} {self.version or 'of no named release'}"

    @property
    def test(self) -> tuple[object, ...]:
        """What rows have in common that may be one measurement under several names of network, release or layout."""
        return self.system, self.backend, self.prompt_tokens, self.output_tokens, self.concurrency

    def is_same(self, other: "SweepRow") -> bool:
        """Whether two rows of a test are one measurement, as far as their digits go."""
        if self.tpot_s is None:  # throughput alone, which two layouts may have alike
            return self.layout == other.layout and self.output_tokens_per_s == other.output_tokens_per_s
        pairs = (self.tpot_s, other.tpot_s), (self.ttft_s, other.ttft_s)
        return all(a == b or (a and b and isclose(a, b, rel_tol=SAME_DIGITS)) for a, b in pairs)


SAME = "the same measurement under another name as"
SAME_DIGITS = 6e-4  # published to three or four digits
NAMES = {
    "model": ("model", "model_path"),
    "system": ("system", "accelerator"),
    "backend": ("backend", "engine"),
    "version": ("backend_version", "version"),
    "precision": ("precision",),
    "prompt_tokens": ("isl", "prompt_tokens"),
    "output_tokens": ("osl", "output_tokens"),
    "tp": ("tp", "tp_size"),
    "pp": ("pp", "pp_size"),
    "moe_ep": ("moe_ep", "moe_ep_size"),
    "attention_dp": ("attention_dp", "attention_dp_size"),
    "concurrency": ("concurrency", "batch_size"),
    "requests": ("requests", "num_requests"),
    "drafted": ("drafted", "num_speculative_tokens"),
    "ttft_ms": ("ttft_ms", "silicon_ttft_ms"),
    "tpot_ms": ("tpot_ms", "silicon_tpot_ms"),
    "throughput": ("output_tok_per_s_derived", "output_tok_per_s", "output_tokens_per_s"),
    "mode": ("mode",),
    **{
        f"{half}_{key}": (f"{half}_{key}", f"{half}_{name}")
        for half in ("prefill", "decode")
        for key, name in (
            *(("workers", "num_workers"), ("tp", "tp_size"), ("pp", "pp_size"), ("batch", "batch_size")),
            *(("moe_ep", "moe_ep_size"), ("attention_dp", "attention_dp_size")),
        )
    },
}
NEEDED = ("model", "system", "backend", "prompt_tokens", "output_tokens", "tp")
APART = "disagg"  # the mode of a row of which prompts and decoding are on replicas of their own


def read_sweeps(path: Path) -> Iterator[SweepRow | tuple[int, str]]:
    """Every row of a CSV (gzip allowed), in its order: a `SweepRow`, or (line, why it cannot be used). A measurement counts once.

    Raises SourceError when the file is missing or lacks a column without which no row can be used.
    """
    try:
        text = read_file(path, LIMIT_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not a CSV file ({error}); give a CSV of measurements") from None
    first: dict[tuple[object, ...], list[SweepRow]] = {}
    try:
        for row in _read_rows(csv.DictReader(io.StringIO(text)), path):
            if isinstance(row, tuple):
                yield row
                continue
            alike = first.setdefault(row.test, [])
            before = next((other.line for other in alike if row.is_same(other)), None)
            if before is None:
                alike.append(row)
            yield row if before is None else (row.line, f"{SAME} line {before}")
    except csv.Error as error:
        raise SourceError(f"{path} is not a CSV file ({error}); give a CSV of measurements") from None


def _read_rows(reader: "csv.DictReader[str]", path: Path) -> Iterator[SweepRow | tuple[int, str]]:
    header = reader.fieldnames or []
    column = {key: next((n for n in names if n in header), "") for key, names in NAMES.items()}
    missing = [NAMES[key][0] for key in NEEDED if not column[key]]
    if missing:
        raise SourceError(f"{path}: no column {', '.join(missing)}; it needs {', '.join(NAMES[k][0] for k in NEEDED)}")
    for line, row in enumerate(reader, start=2):
        cells = {key: (row.get(name) or "").strip() for key, name in column.items()}
        try:
            yield _read_row(cells, line)
        except RowRefused as reason:
            yield line, str(reason)


def _read_row(cells: Mapping[str, str], line: int) -> SweepRow:
    halves = None
    if cells["mode"] == APART:
        halves = _read_half(cells, "prefill"), _read_half(cells, "decode")
        decoding = halves[1]
        if not cells["concurrency"]:
            batch = read_whole(cells, "decode_batch") * decoding.workers * decoding.attention_dp
            cells = {**cells, "concurrency": str(batch)}
        cells = {**cells, **{k: str(getattr(decoding, k)) for k in ("tp", "pp", "moe_ep", "attention_dp")}}
    ttft, tpot, throughput = (read_number(cells, k) for k in ("ttft_ms", "tpot_ms", "throughput"))
    if ttft is None and tpot is None and throughput is None:
        raise RowRefused("nothing measured: TTFT, TPOT and throughput are all empty")
    output, concurrency = read_whole(cells, "output_tokens"), read_whole(cells, "concurrency", default=0) or None
    if concurrency is None and throughput is None:
        raise RowRefused("no concurrency, and no throughput of a run with all requests at once")
    if throughput is None and concurrency and ttft is not None and tpot is not None:
        throughput = concurrency * output / (ttft + tpot * (output - 1)) * MS_PER_S
    pp, moe_ep, attention_dp = (
        read_whole(cells, k, default=1, limits=OPTIONAL) or 1 for k in ("pp", "moe_ep", "attention_dp")
    )
    return SweepRow(
        model=cells["model"],
        system=cells["system"],
        backend=cells["backend"],
        version=cells["version"],
        precision=cells["precision"].lower() or None,
        prompt_tokens=read_whole(cells, "prompt_tokens"),
        output_tokens=output,
        tp=read_whole(cells, "tp"),
        pp=pp,
        moe_ep=moe_ep,
        attention_dp=attention_dp,
        concurrency=concurrency,
        requests=read_whole(cells, "requests", default=0) or None,
        drafted=read_whole(cells, "drafted", limits=DRAFTED) if cells["drafted"] else None,
        ttft_s=None if ttft is None else ttft / MS_PER_S,
        tpot_s=None if tpot is None else tpot / MS_PER_S,
        output_tokens_per_s=throughput,
        line=line,
        halves=halves,
    )


def _read_half(cells: Mapping[str, str], half: str) -> Half:
    if not cells[f"{half}_workers"]:
        raise RowRefused(f"disaggregated, and {half}_num_workers does not say how many replicas do the {half}")
    tp, workers = (read_whole(cells, f"{half}_{k}") for k in ("tp", "workers"))
    pp, moe_ep, attention_dp = (
        read_whole(cells, f"{half}_{k}", default=1, limits=OPTIONAL) or 1 for k in ("pp", "moe_ep", "attention_dp")
    )
    return Half(workers, tp, pp, moe_ep, attention_dp)


def plain_model_name(name: str) -> str:
    """A model's name without its organisation, precision and tuning: what two spellings of one shape have in common.

    >>> plain_model_name("meta-llama/Meta-Llama-3.1-8B"), plain_model_name("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8")
    ('llama-3.1-8b', 'qwen3-235b-a22b')
    """
    plain = name.replace("--", "/").rpartition("/")[2].lower().replace("_", "-").removeprefix("meta-")
    while True:
        shorter = re.sub(
            r"-(fp8|fp4|nvfp4|mxfp4|bf16|int4|awq|gptq|w4a16|instruct|chat|it|hf|base|thinking|\d{4}|v\d+\.\d+)$",
            "",
            plain,
        )
        if shorter == plain:
            return plain
        plain = shorter


@dataclass(frozen=True)
class MeasuredLayout:
    """A layout and how many attention ranks the row's concurrency and throughput are counted per."""

    layout: ReplicaLayout
    ranks: int


def read_layout(tp: int, moe_ep: int, attention_dp: int, scale_up_gpus: int, stages: int = 1) -> MeasuredLayout:
    """The layout a row means by tp, moe_ep, attention_dp and pp.

    A replica has tp × attention_dp × pp accelerators. Two spellings of the published sample are undone: with expert parallelism
    over all of a TP group some rows multiply tp by moe_ep (a run on 8 GPUs named "tp8_ep8" carries tp 64), and with attention
    data parallelism some count the same accelerators twice (tp 4, attention_dp 4, moe_ep 16 measured the same as tp 4, moe_ep 4).

    >>> str(read_layout(64, 8, 1, 8).layout), str(read_layout(4, 16, 4, 8).layout)
    ('8 GPUs, TP 8, EP 8', '4 GPUs, attention DP 4, EP 4')
    """
    gpus = tp * attention_dp
    if stages == 1 and tp > 1 and tp == attention_dp and moe_ep == gpus:
        return MeasuredLayout(ReplicaLayout(tp, attention_dp, tp), attention_dp)
    if stages == 1 and moe_ep > 1 and gpus == moe_ep * moe_ep and gpus > scale_up_gpus:
        return MeasuredLayout(ReplicaLayout(moe_ep, min(attention_dp, moe_ep), moe_ep), attention_dp)
    return MeasuredLayout(ReplicaLayout(gpus * stages, attention_dp, moe_ep, stages), attention_dp)


@dataclass(frozen=True)
class MeasuredRun:
    """What a row was measured on: the replica, how many tokens it drafted a step, whether requests were all of one length."""

    replica: Replica
    drafted: int
    alike: bool

    def speculate(self, engine: EngineConstants) -> Speculation:
        """The drafts of the run, accepted as often as the engine's constants say."""
        return Speculation(self.drafted, engine.draft_acceptance if self.drafted else 0.0)


def build_run(network: Network, chip: Accelerator, row: SweepRow, layout: ReplicaLayout) -> MeasuredRun:
    """The run of a row, with the constants of its engine and what published runs set for themselves."""
    constants = read_engine_constants(chip, row.backend, row.version)
    own = dict(
        read_run_settings(
            chip,
            row.model,
            row.version,
            row.concurrency or 0,
            engine=constants.engine,
            precision=row.precision or "",
            tp=layout.attention_tp,
            ep=layout.expert_parallel,
            prompt=row.prompt_tokens,
            output=row.output_tokens,
        )
    )
    published = own.pop("drafted", 0)
    drafted = published if row.drafted is None else row.drafted
    alike = own.pop("alike", False)
    if prompts := own.pop("chunk_prompts", 0):
        own["chunk_tokens"] = max(prompts * row.prompt_tokens, own.get("chunk_tokens", 0))
    constants = replace(constants, **own)
    if not constants.windows_all_layers and len(network.sliding_layers) == network.layers:
        network = replace(network, sliding_window=None, sliding_layers=())
    kept = choose_precision(network, row.precision)
    if not constants.narrow_cache:
        kept = choose_precision(network, row.precision, kv_bytes_per_value=2.0)
    return MeasuredRun(Replica(network, chip, layout, kept, constants), drafted, alike)


OPTIONAL = Limits(at_least=0, at_most=10_000_000)
DRAFTED = Limits(at_least=0, at_most=MOST_DRAFTED)


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
    source: str = ""
    distance: Distance | None = None
    ranges: Ranges = field(default_factory=dict, repr=False)
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


@dataclass(frozen=True)
class SourceErrors:
    """Mean error of one quantity on the rows of one source, as `TrainingErrors` has them: fitted to, and left out of the fit.

    A source that was never fitted has the latter alone, as measured here. `range_coverage`: the share of its rows inside the range
    stated for rows as far from what was fitted.
    """

    source: str
    quantity: str
    rows: int
    in_fit: float | None
    left_out: float | None
    range_coverage: float | None


QUANTITIES = {"tpot": "tpot_s", "tokens_per_s": "output_tokens_per_s", "ttft": "ttft_s"}


def list_source_errors(rows: Sequence[ComparedRow]) -> tuple[SourceErrors, ...]:
    """The errors of every source among the rows, quantity by quantity; what was not measured has none."""
    known, found = {one.source: one for one in read_serving_errors().sources}, []
    for source in dict.fromkeys(r.source for r in rows):
        mine = [r for r in rows if r.source == source]
        for quantity, name in QUANTITIES.items():
            factors = [
                (measured / predicted, r.ranges[quantity])
                for r in mine
                if (measured := getattr(r, f"measured_{name}")) and (predicted := getattr(r, f"predicted_{name}"))
            ]
            if not factors:
                continue
            one = known.get(source)
            found.append(
                SourceErrors(
                    source,
                    quantity,
                    len(factors),
                    one.in_fit.get(quantity) if one else None,
                    one.left_out.get(quantity) if one else mean_abs(1 / factor - 1 for factor, _ in factors),
                    one.range_coverage.get(quantity) if one else share_inside(factors),
                )
            )
    return tuple(found)


CONFIG_SUFFIX = "_config.json"


@dataclass(frozen=True)
class ServingValidation:
    """Errors of groups, of sources and of all rows, and the rows themselves."""

    groups: tuple[ServingErrors, ...]
    sources: tuple[SourceErrors, ...]
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
    used = [row for row in rows if row.skipped is None]
    return ServingValidation(
        groups, list_source_errors(used), summarize_errors("all", "all", "all", rows), rows, source
    )


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
        source=row.source,
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
    if row.halves is not None:
        return _predict_apart(measured, row, network, chip)
    where = read_layout(row.tp, row.moe_ep, row.attention_dp, chip.scale_up_gpus, row.pp)
    run = build_run(network, chip, row, where.layout)
    replica = run.replica
    if most_sequences(replica, row.prompt_tokens + row.output_tokens) <= 0:
        raise InputError(f"{network.name} in {replica.precision.name} does not fit on {where.layout} of {chip.name}")
    known = replace(
        measured,
        precision=replica.precision.name,
        layout=str(where.layout),
        constants=replica.engine.fitted_on,
        distance=tell_distance(replica.engine, network),
        ranges=read_ranges(replica.engine, network),
    )
    lengths = float(row.prompt_tokens), float(row.output_tokens)
    if row.concurrency is None:
        tokens_per_s = predict_offline(replica, row.requests, *lengths)
        return replace(known, predicted_output_tokens_per_s=tokens_per_s / where.ranks)
    concurrency, drafts = float(row.concurrency * where.ranks), run.speculate(replica.engine)
    p = predict_latency(replica, concurrency, *lengths, speculation=drafts, alike=run.alike)
    return replace(
        known,
        predicted_ttft_s=float(p.ttft_s),
        predicted_tpot_s=float(p.tpot_s),
        predicted_output_tokens_per_s=float(p.output_tokens_per_s) / where.ranks,
    )


def _predict_apart(measured: ComparedRow, row: SweepRow, network: Network, chip: Accelerator) -> ComparedRow:
    assert row.halves is not None
    before, after = row.halves
    (prefill, _), (decode, run) = (
        ((built := build_run(network, chip, row, half.layout)).replica, built) for half in row.halves
    )
    for what, half, replica in (("prompts", before, prefill), ("decoding", after, decode)):
        if most_sequences(replica, row.prompt_tokens + row.output_tokens) <= 0:
            raise InputError(f"{network.name} in {replica.precision.name} does not fit on {half.layout} for {what}")
    p = predict_apart(
        prefill,
        before.workers,
        decode,
        after.workers,
        float(row.concurrency or 1),
        float(row.prompt_tokens),
        float(row.output_tokens),
        run.speculate(decode.engine),
    )
    return replace(
        measured,
        precision=decode.precision.name,
        layout=f"{before.workers} × {before.layout} for prompts, {after.workers} × {after.layout} to decode",
        constants=decode.engine.fitted_on,
        distance=tell_distance(decode.engine, network),
        ranges=read_ranges(decode.engine, network),
        predicted_ttft_s=p.ttft_s,
        predicted_tpot_s=p.tpot_s,
        predicted_output_tokens_per_s=p.output_tokens_per_s,
    )
