"""Rows of TTFT, TPOT and throughput over concurrency that somebody measured on a serving replica, read from a CSV.

Columns: model, system, backend, isl, osl, tp, concurrency, and at least one of tpot_ms, ttft_ms, output_tok_per_s_derived (or
output_tok_per_s). Optional: precision, pp, moe_ep, attention_dp, backend_version, requests. Where concurrency is empty, all
requests are there from the start (offline), and throughput alone is compared. The published silicon sample of aiconfigurator
(columns model_path, tp_size, …, silicon_tpot_ms) is read too. `concurrency` counts requests per attention-data-parallel rank,
and so does the throughput, as in that sample.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from loadfactor.base.errors import SourceError
from loadfactor.base.limits import Limits
from loadfactor.base.units import MS_PER_S
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import Network
from loadfactor.planner.serving.latency import Latency, predict_latency, predict_offline
from loadfactor.planner.serving.layouts import ReplicaLayout, choose_precision
from loadfactor.planner.serving.step import Replica
from loadfactor.planner.validation.measurement_files import LIMIT_BYTES, RowRefused, read_number, read_whole
from loadfactor.sources.files import read_file


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
    ttft_s: float | None
    tpot_s: float | None
    output_tokens_per_s: float | None  # per attention rank
    line: int

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
        return (*what, self.tp, self.pp, self.moe_ep, self.attention_dp)


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
    "ttft_ms": ("ttft_ms", "silicon_ttft_ms"),
    "tpot_ms": ("tpot_ms", "silicon_tpot_ms"),
    "throughput": ("output_tok_per_s_derived", "output_tok_per_s", "output_tokens_per_s"),
    "mode": ("mode",),
}
NEEDED = ("model", "system", "backend", "prompt_tokens", "output_tokens", "tp")


def read_sweeps(path: Path) -> Iterator[SweepRow | tuple[int, str]]:
    """Every row of a CSV (gzip allowed), in its order: a `SweepRow`, or (line, why it cannot be used).

    Raises SourceError when the file is missing or lacks a column without which no row can be used.
    """
    try:
        text = read_file(path, LIMIT_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not a CSV file ({error}); give a CSV of measurements") from None
    try:
        yield from _read_rows(csv.DictReader(io.StringIO(text)), path)
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
        if cells["mode"] == "disagg":
            yield line, "disaggregated: prefill and decode on different replicas are not one row of this kind"
            continue
        try:
            yield _read_row(cells, line)
        except RowRefused as reason:
            yield line, str(reason)


def _read_row(cells: Mapping[str, str], line: int) -> SweepRow:
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
        ttft_s=None if ttft is None else ttft / MS_PER_S,
        tpot_s=None if tpot is None else tpot / MS_PER_S,
        output_tokens_per_s=throughput,
        line=line,
    )


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


def build_replica(
    network: Network, chip: Accelerator, engine: str, weights: str | None, layout: ReplicaLayout
) -> Replica:
    """The replica of a row: the engine's constants, and how wide it keeps the cache."""
    constants = read_engine_constants(chip, engine)
    if not constants.windows_all_layers and len(network.sliding_layers) == network.layers:
        network = replace(network, sliding_window=None, sliding_layers=())
    kept = choose_precision(network, weights)
    if not constants.narrow_cache:
        kept = choose_precision(network, weights, kv_bytes_per_value=2.0)
    return Replica(network, chip, layout, kept, constants)


def predict_offline_row(r: Replica, row: SweepRow) -> float:
    """Output tokens per second of the whole replica where all requests of a row are there from the start."""
    return predict_offline(r, row.requests, float(row.prompt_tokens), float(row.output_tokens))


def predict_row(r: Replica, ranks: int, concurrency: int, prompt_tokens: int, output_tokens: int) -> Latency:
    """TTFT, time per token and throughput of the whole replica at `concurrency` requests per attention rank."""
    return predict_latency(r, float(concurrency * ranks), float(prompt_tokens), float(output_tokens))


OPTIONAL = Limits(at_least=0, at_most=10_000_000)
