"""What does a row of somebody's measurements say? A job, its layout and the measured number, whatever the columns are called.

The layout of a file is recognised by its columns; unknown ones are ignored. A row that lacks something is refused with the
reason. A knob the row does not give ("not given") is left free, and the planner sets it as a user would: to what is fastest.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite

from loadfactor.catalog.accelerators import Accelerator, find_accelerator
from loadfactor.catalog.clusters import PublishedCluster, recognize_cluster
from loadfactor.catalog.constants import TrainingConstants, read_training_constants
from loadfactor.catalog.models import Network, find_network
from loadfactor.errors import CatalogError
from loadfactor.planner.training.flops import HARDWARE, MODEL, palm_flops_per_token, training_flops_per_token
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import FULL, NONE, SELECTIVE, TrainingLayout
from loadfactor.planner.training.machine import (
    MEGATRON_2021,
    MEGATRON_2022,
    MODERN,
    Software,
    build_machine,
    choose_datatype,
)
from loadfactor.planner.training.search import SearchSpace, enumerate_layouts
from loadfactor.planner.training.utilization import Utilization, compute_utilization
from loadfactor.units import BITS_PER_BYTE, FLOPS_PER_TFLOPS, MS_PER_S, PERCENT

Row = Mapping[str, str | None]
GPT2_VOCABULARY = 51_200  # GPT-2's 50,257 padded, what Megatron trains with
FUSED_SINCE = 2205  # arXiv numbers from May 2022 on: Megatron sums weight gradients inside the product (2205.05198)
FLASH_SINCE = 2206  # arXiv numbers from June 2022 on: FlashAttention (2205.14135) is in use
OLD = ("Ampere", "Volta", "Pascal", "Turing")


@dataclass(frozen=True)
class MeasuredRun:
    """One usable row: the job and layout, the number measured with its unit, and how a step time becomes that number."""

    label: str
    job: TrainingJob
    layout: TrainingLayout
    free: tuple[str, ...]  # knobs the row leaves open
    quantity: str
    value: float
    per_step: float  # value = per_step / step_s, or step_s · per_step for a time

    @property
    def is_time(self) -> bool:
        """True where the measured number grows with the step's time."""
        return self.quantity.startswith("iteration")

    @property
    def space(self) -> SearchSpace:
        """The knobs of the row: fixed where it gives them, free where it does not."""
        x = self.layout

        def knob(name: str) -> tuple[int, ...]:
            return () if name in self.free else (int(getattr(x, name)),)

        return SearchSpace(
            tensor=knob("tensor"),
            pipeline=knob("pipeline"),
            context=(x.context,),
            expert=(x.expert,),
            micro_batch=knob("micro_batch"),
            interleave=knob("interleave"),
            recompute=knob("recompute"),
            zero=knob("zero") or (0, 1, 2, 3),
        )

    def predicted(self, step_s: float) -> float:
        """The predicted step in the quantity that was measured."""
        return step_s * self.per_step if self.is_time else self.per_step / step_s

    def seconds(self, value: float) -> float:
        """A number in the measured quantity as seconds of a step."""
        return value / self.per_step if self.is_time else self.per_step / value

    @property
    def step_s(self) -> float:
        """The measured number as seconds of a step."""
        return self.seconds(self.value)

    def utilization(self, layout: TrainingLayout, value: float) -> Utilization:
        """HFU and MFU at this value, attention counted in full, as the papers of these tables do."""
        return compute_utilization(self.job, layout, self.seconds(value))


class RowRefused(Exception):  # noqa: N818  # not an error: the row is skipped with this reason
    """Why a row cannot be used."""


def read_row(row: Row, known: TrainingConstants | None = None) -> MeasuredRun:
    """The measurement a row describes. Raises RowRefused with the reason when it lacks something."""
    text = " ".join(v for v in row.values() if isinstance(v, str))
    accelerator = _accelerator(row)
    cluster = recognize_cluster(text, accelerator.id)
    if cluster:
        accelerator = find_accelerator(cluster.accelerator) or accelerator
    network, seq = _network(row)
    gpus, batch = _whole(row, "gpus", "chips", "num_gpus"), _whole(row, "global_batch", "global_batch_size", "batch")
    sharded = "FULL_SHARD" in text or "ZeRO-3" in text or "fsdp" in text.lower()
    software = _software(row, text, accelerator)
    layout, free = _layout(row, gpus, sharded, software)
    if layout.pipeline > network.layers:
        raise RowRefused(f"{layout.pipeline} pipeline stages for {network.layers} layers")
    if layout.gpus != gpus:
        raise RowRefused(f"tp × pp × cp × dp = {layout.gpus} is not the {gpus} GPUs of the row")
    if "micro_batch" not in free and batch % (layout.data * layout.micro_batch):
        raise RowRefused(
            f"global batch {batch} is no multiple of data ranks {layout.data} × micro-batch {layout.micro_batch}"
        )
    try:
        on = build_machine(
            accelerator, choose_datatype(accelerator, _datatype(row)), _scale_out(row, text, cluster), known
        )
    except CatalogError as error:
        raise RowRefused(str(error)) from None
    job = TrainingJob(network, seq, batch, on, software, known or read_training_constants())
    quantity, value, per_step = _measure(row, job, gpus)
    label = (
        row.get("model") or row.get("scheme") or f"{float(row.get('params_b') or 0) or network.parameters / 1e9:.3g}B"
    )
    one = MeasuredRun(str(label), job, layout, free, quantity, value, per_step)
    if free and not any(len(x) for x in enumerate_layouts(job, gpus, one.space)):
        raise RowRefused(f"no layout divides a global batch of {batch} over {gpus} GPUs")
    return one


def _text(row: Row, *names: str) -> str | None:
    for name in names:
        value = (row.get(name) or "").strip()
        if value and value.lower() not in ("not given", "not in table", "n/a", "na", "none", "-", "unknown", "nan"):
            return value
    return None


def _number(row: Row, *names: str) -> float | None:
    """The first of these columns that holds a positive, finite number."""
    value = _text(row, *names)
    try:
        number = float((value or "").replace(",", ""))
    except ValueError:
        return None
    return number if isfinite(number) and number > 0 else None


def _whole(row: Row, *names: str, default: int | None = None) -> int:
    """The first of these columns as a whole number; refused where it is none, or missing without a default."""
    said, value = _text(row, *names), _number(row, *names)
    if said is None and default is not None:
        return default
    if value is None or value != int(value):
        raise RowRefused(
            f"no {names[0]} in the row" if said is None else f"{names[0]} is {said}, not a whole number from 1 on"
        )
    return int(value)


def _accelerator(row: Row) -> Accelerator:
    name = _text(row, "gpu", "accelerator", "chip")
    found = find_accelerator(name) if name else None
    if found is None:
        raise RowRefused(f"no accelerator called {name!r} in the catalog" if name else "no gpu in the row")
    return found


def _network(row: Row) -> tuple[Network, int]:
    seq = _whole(row, "seq", "seq_len", "sequence_length", "max_seq_len")
    known = find_network(_text(row, "network", "model") or "")
    layers, hidden, heads = (_whole(row, n, default=0) for n in ("layers", "hidden", "heads"))
    if known is not None and not layers:
        return known, seq
    if not layers or not hidden or not heads:
        missing = [n for n, v in (("layers", layers), ("hidden", hidden), ("heads", heads)) if not v]
        raise RowRefused(f"no {', '.join(missing)} in the row and its model is not in the catalog")
    ffn, kv = _number(row, "ffn_hidden", "intermediate_size"), _number(row, "kv_heads")
    shape = Network(
        name=_text(row, "model") or "row",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=int(kv or heads),
        head_dim=int(_number(row, "head_dim") or hidden / heads),
        ffn_hidden=int(ffn or 4 * hidden),
        vocabulary=int(_number(row, "vocab", "vocabulary") or GPT2_VOCABULARY),
        max_context=seq,
        gated_mlp=(_text(row, "gated_mlp") or "").lower() in ("1", "true", "yes"),
        tied_embeddings=True,
        positional="learned",
        norm="layer",
        linear_bias=True,
    )
    return shape, seq


def _software(row: Row, text: str, accelerator: Accelerator) -> Software:
    """FlashAttention and overlap where the row says so, on Hopper and newer, with FSDP, or from a paper after June 2022."""
    said = (_text(row, "attention", "attention_kernel") or "").lower()
    papers = [int(n) for n in re.findall(r"arXiv:(\d{4})\.\d", text)]
    modern = accelerator.architecture not in OLD or "FULL_SHARD" in text or "fsdp" in text.lower()
    modern = modern or bool(papers and max(papers) >= FLASH_SINCE)
    old = MEGATRON_2022 if papers and max(papers) >= FUSED_SINCE else MEGATRON_2021
    software = MODERN if modern else old
    if said:
        software = replace(software, flash_attention="flash" in said)
    return software


def _datatype(row: Row) -> str:
    said = (_text(row, "precision", "dtype", "datatype") or "bf16").lower()
    return next((d for d in ("fp8", "fp16", "bf16") if d in said), "bf16")


def _scale_out(row: Row, text: str, cluster: PublishedCluster | None) -> float | None:
    """Bytes/s per GPU between nodes: the row's own column, "1600 Gbps node-node" in its words, or a cluster known by name."""
    own = _number(row, "scale_out_gb_per_s", "ib_gb_per_s_per_gpu")
    if own:
        return own * 1e9
    said = re.search(r"(\d{3,4}) ?Gbps", text)
    if said:
        return float(said.group(1)) * 1e9 / BITS_PER_BYTE / 8
    return cluster.scale_out_bytes_per_s.value if cluster else None


def _recompute(row: Row, software: Software) -> int | None:
    said = (_text(row, "recompute", "act_ckpt", "activation_checkpointing") or "").lower()
    if said.startswith(("full", "true", "1", "yes")):
        return FULL
    if said.startswith("selective"):
        return SELECTIVE
    if (row.get("recompute") or row.get("act_ckpt") or "").strip().lower() in ("none", "false", "0", "no"):
        return NONE
    return None if software.flash_attention else FULL  # what was trained before it was always recomputed


def _layout(row: Row, gpus: int, sharded: bool, software: Software) -> tuple[TrainingLayout, tuple[str, ...]]:
    free = []
    stage = _text(row, "zero", "zero_stage")
    if stage is not None and stage not in ("0", "1", "2", "3"):
        raise RowRefused(f"zero is {stage}, not a stage from 0 to 3")
    if not sharded and not any(_text(row, n) for n in ("tp", "pp", "dp")):
        free += ["tensor", "pipeline"] + ([] if stage is not None else ["zero"])
    tp, pp, cp, ep = (_whole(row, n, default=1) for n in ("tp", "pp", "cp", "ep"))
    dp = _whole(row, "dp", default=gpus // (tp * pp * cp) or 1)
    micro = _whole(row, "micro_batch", "micro_batch_size", "mbs", default=0) or None
    chunks = _whole(row, "interleave_v", "interleave", default=0) or None
    if micro is None:
        free.append("micro_batch")
    if "pipeline" in free or (chunks is None and pp > 1 and software.overlaps):
        free.append("interleave")
    recompute = _recompute(row, software)
    if recompute is None:
        free.append("recompute")
    zero = int(stage) if stage is not None else 3 if sharded else 1 if software.overlaps else 0
    parallel = "sequence parallel" in (row.get("recompute") or "") and "no sequence" not in (row.get("recompute") or "")
    parallel = parallel or (software.overlaps and tp > 1)
    return (
        TrainingLayout(tp, pp, dp, cp, ep, micro or 1, chunks or 1, recompute or NONE, zero, parallel),
        tuple(free),
    )


def _measure(row: Row, job: TrainingJob, gpus: int) -> tuple[str, float, float]:
    """The measured number, and what it is per step. Times first, then tokens, then FLOP/s by the row's convention."""
    for name, factor in (
        ("iteration_s", 1.0),
        ("step_time_s", 1.0),
        ("step_s", 1.0),
        ("iteration_ms", float(MS_PER_S)),
    ):
        value = _number(row, name)
        if value:
            return ("iteration_s" if factor == 1 else "iteration_ms"), value, factor
    tokens = float(job.global_batch * job.seq)
    for name, share in (("tokens_per_s", 1.0), ("tokens_per_s_per_gpu", 1.0 / gpus)):
        value = _number(row, name)
        if value:
            return name, value, tokens * share
    n = job.network
    hardware = "hardware" in (row.get("flops_convention") or "").lower()
    for name in ("model_tflops_per_gpu", "tflops_per_gpu", "tflops_per_gpu_published"):
        value = _number(row, name)
        if value:
            convention = HARDWARE if hardware and not name.startswith("model") else MODEL
            return name, value, training_flops_per_token(n, job.seq, convention) * tokens / gpus / FLOPS_PER_TFLOPS
    used = _number(row, "mfu_pct")
    if used:
        per_token = palm_flops_per_token(
            _number(row, "params") or n.parameters, n.layers, n.heads * n.head_dim, job.seq
        )
        return "mfu_pct", used, per_token * tokens / (gpus * job.machine.matmul.peak_flops) * PERCENT
    raise RowRefused("no iteration time, tokens/s, TFLOP/s or MFU in the row")


def explain_not_a_measurement(row: Row) -> str | None:
    """Why a whole file is not one of training measurements, or None."""
    if not any(k in row for k in ("gpus", "chips", "layers")):
        return "no gpus, chips or layers column"
    return None
