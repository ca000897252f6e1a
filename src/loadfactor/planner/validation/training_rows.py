"""One measured training run, read from a row of a table whatever its columns are called: job, layout, software, number.

Unknown columns are ignored. A row that lacks something is refused with the reason. A field of the layout that the row does not
give ("not given") is left free, and the planner sets it as a user would: to what is fastest. The words that name frameworks,
techniques, precisions and recomputation are data: catalog/measurements/words.toml.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import nan
from typing import Any, Final, get_args

from loadfactor.base.errors import CatalogError
from loadfactor.base.limits import Limits
from loadfactor.base.units import (
    BITS_PER_BYTE,
    BYTES_PER_GB,
    FLOPS_PER_TFLOPS,
    MS_PER_S,
    PARAMETERS_PER_BILLION,
    PERCENT,
)
from loadfactor.catalog.accelerators import Accelerator, find_accelerator
from loadfactor.catalog.clusters import PublishedCluster, recognize_cluster
from loadfactor.catalog.facts import read_toml
from loadfactor.catalog.models import Network, find_network
from loadfactor.planner.training.flops import (
    HARDWARE,
    MODEL,
    Utilization,
    compute_utilization,
    palm_flops_per_token,
    training_flops_per_token,
)
from loadfactor.planner.training.job import DEFAULT_RANK, Adapters, AdapterTargets, TrainingJob
from loadfactor.planner.training.layout import RECOMPUTE, TrainingLayout
from loadfactor.planner.training.machine import NARROW, build_machine, choose_datatype
from loadfactor.planner.training.search import MISSING_LAYERS, SearchSpace, enumerate_layouts
from loadfactor.planner.training.software import Software, choose_software
from loadfactor.planner.validation.measurement_files import COUNTED, Row, RowRefused, read_number, read_text, read_whole

OLDEST = "2021-01"  # of what was measured on accelerators before Hopper, and says no month
OLD = ("Ampere", "Volta", "Pascal", "Turing")
UNKNOWN: Final = ("", "not given", "not in table", "n/a", "na", "-", "unknown", "nan")


@cache
def read_words(topic: str) -> Mapping[str, Any]:
    words: Mapping[str, Any] = read_toml("loadfactor.catalog.measurements", "words.toml")[topic]
    return words


def recognize_software(row: Row, text: str, accelerator: Accelerator) -> Software:
    """FlashAttention and overlap where the row says so, on Hopper and newer, with FSDP, or from a paper after June 2022.

    Then what its precision and its techniques change. `text` is all of the row.
    """
    software = _recognize_framework(row, text, accelerator)
    attention = (read_text(row, "attention", "attention_kernel") or "").lower()
    if attention and "flash" not in attention:
        software = software.having({"attention": "unfused"})
    elif attention and not software.flash_attention:
        software = software.having({"attention": "second"})
    techniques = _techniques(row)
    for pattern, traits in read_words("techniques").items():
        if re.search(pattern, techniques) and (software.flash_attention or "attention" not in traits):
            software = software.having(traits)
    return software


def _recognize_framework(row: Row, text: str, accelerator: Accelerator) -> Software:
    """The framework that a row names, by the month of its release or of its newest paper; else what is usual by then."""
    lower = text.lower()
    name = next((found for pattern, found in read_words("frameworks").items() if re.search(pattern, lower)), None)
    software = choose_software(accelerator, name, find_release(row, text, accelerator))
    return software.having(read_words("named_where_used").get(name or "", {}))


def find_release(row: Row, text: str, accelerator: Accelerator) -> str | None:
    """The month (YYYY-MM) of a row's release (v24.11.1, container 25.11), else of its newest arXiv number on older accelerators.

    What papers of newer ones describe is taken as the newest there is: None.

    >>> from loadfactor.catalog.accelerators import accelerator
    >>> find_release({"release": "NeMo 24.07"}, "", accelerator("h100-sxm"))
    '2024-07'
    """
    release = re.search(r"\b[vr]?(\d\d)\.(\d\d)\b", row.get("release") or "")
    if release:
        return f"20{release[1]}-{release[2]}"
    if accelerator.architecture not in OLD:
        return None
    papers = re.findall(r"arXiv:(\d\d)(\d\d)\.\d", text)
    return max((f"20{year}-{month}" for year, month in papers), default=OLDEST)


def _techniques(row: Row) -> str:
    return " ; ".join(row.get(name) or "" for name in ("techniques", "precision", "routing", "note")).lower()


def read_datatype(row: Row, accelerator: Accelerator) -> str:
    """The datatype of the layers' products, as precisions are written: bf16-mixed, fp8-cs, float8 rowwise, NVFP4.

    What an accelerator has no units for is computed in 16 bits. Raises RowRefused for a precision that is none.
    """
    precision = (read_text(row, "precision", "dtype", "datatype") or "bf16").lower()
    for pattern, datatype in read_words("precisions").items():
        if re.search(pattern, precision):
            lacking = datatype in NARROW and accelerator.get(f"peak_{datatype}_flops") is None
            return "bf16" if lacking else str(datatype)
    if re.search(r"\d", precision):
        raise RowRefused(f"the precision {precision!r} is not one of bf16, fp16, fp8, fp4, int8, tf32, fp32")
    return "bf16"


def count_slices(row: Row) -> int:
    """Slices of accelerators that only a data-center network joins; 1 where the row names none.

    >>> count_slices({"techniques": "4 slice(s)"}), count_slices({"techniques": "two slices of 256"})
    (4, 2)
    """
    slices = re.search(r"(\d+|two) slice", _techniques(row))
    return 1 if slices is None else 2 if slices[1] == "two" else int(slices[1])


def read_recompute(row: Row) -> tuple[str | None, str]:
    """(none, selective or full, or None where no pattern matches; the row's words)."""
    cells = (row.get(n) or "" for n in ("recompute", "act_ckpt", "activation_checkpointing"))
    words = next((cell for cell in cells if cell.strip()), "").strip().lower()
    return next((mode for p, mode in read_words("recomputation").items() if re.match(p, words)), None), words


def list_unread(row: Row) -> tuple[str, ...]:
    """The techniques of a row, and what it says of recomputation, that nothing is made of.

    >>> list_unread({"techniques": "FSDP + torch.compile + Float8, NUMA binding", "recompute": "every third MLP"})
    ('numa binding', 'recompute: every third mlp')
    """
    left = _techniques({"techniques": row.get("techniques")})
    for pattern in (*read_words("techniques"), "|".join(read_words("read_elsewhere")["words"])):
        left = re.sub(pattern, "", left)
    pieces = (re.sub(r"^(and|with)\b", "", p.strip(" ()")).strip() for p in re.split(r"[+,;/]|\band\b", left))
    mode, words = read_recompute(row)
    return (*filter(None, pieces), *(() if mode or words in UNKNOWN else (f"recompute: {words}",)))


GPT2_VOCABULARY = 51_200  # GPT-2's 50,257 padded, what Megatron trains with
FINE_TUNING = ("sft", "lora", "qlora")
FINE_TUNING_DOCUMENT = (
    512  # tokens of an example, with what stands around it; the public sets of instructions have 100 to 1,000
)
METHODS = ("full", "pretrain", "pretraining", "sft", "lora", "qlora")
LAYERS = Limits(at_least=1, at_most=10_000)
GPUS_PER_NODE = 8  # of the nodes whose network papers give per node


@dataclass(frozen=True)
class MeasuredRun:
    """One usable row: the job and layout, the number measured with its unit, and how a step time becomes that number."""

    label: str
    job: TrainingJob
    layout: TrainingLayout
    free: tuple[str, ...]  # fields of the layout that the row leaves open
    quantity: str
    value: float
    per_step: float  # value = per_step / step_s, or step_s · per_step for a time
    unread: tuple[str, ...] = ()  # techniques that the row names and the prediction knows nothing of

    @property
    def is_time(self) -> bool:
        return self.quantity.startswith("iteration")

    @property
    def space(self) -> SearchSpace:
        """The layouts that the row allows: fields that it gives are fixed, others are free."""
        x = self.layout

        def allow(name: str) -> tuple[int, ...]:
            return () if name in self.free else (int(getattr(x, name)),)

        return SearchSpace(
            tensor=allow("tensor"),
            pipeline=allow("pipeline"),
            context=(x.context,),
            expert=(x.expert,),
            micro_batch=allow("micro_batch"),
            interleave=allow("interleave"),
            recompute=allow("recompute"),
            zero=allow("zero") or (0, 1, 2, 3),
        )

    def value_at(self, step_s: float) -> float:
        return step_s * self.per_step if self.is_time else self.per_step / step_s

    def step_s_at(self, value: float) -> float:
        """A number in the measured quantity as seconds of a step."""
        return value / self.per_step if self.is_time else self.per_step / value

    @property
    def step_s(self) -> float:
        return self.step_s_at(self.value)

    def compute_utilization(self, layout: TrainingLayout, value: float) -> Utilization:
        """HFU and MFU at this value, attention counted in full, as the papers of these tables do."""
        return compute_utilization(self.job, layout, self.step_s_at(value))


def read_row(row: Row) -> MeasuredRun:
    """The measurement a row describes; its number is NaN where the run ran out of memory.

    Raises RowRefused with the reason when it lacks something.
    """
    text = " ".join(v for v in row.values() if isinstance(v, str))
    accelerator = _accelerator(row)
    cluster = recognize_cluster(text, accelerator.id)
    if cluster:
        accelerator = find_accelerator(cluster.accelerator) or accelerator
    network, seq = _network(row)
    gpus, batch = (
        read_whole(row, "gpus", "chips", "num_gpus"),
        read_whole(row, "global_batch", "global_batch_size", "batch"),
    )
    sharded = "FULL_SHARD" in text or "ZeRO-3" in text or re.search("fsdp|hsdp", text.lower()) is not None
    software = recognize_software(row, text, accelerator)
    layout, free = read_layout(row, gpus, sharded, software)
    if layout.pipeline > network.layers:
        raise RowRefused(f"{layout.pipeline} pipeline stages for {network.layers} layers")
    if layout.gpus != gpus:
        raise RowRefused(f"tp × pp × cp × dp = {layout.gpus} is not the {gpus} GPUs of the row")
    if "micro_batch" not in free and batch % (layout.data * layout.micro_batch):
        raise RowRefused(
            f"global batch {batch} is no multiple of data ranks {layout.data} × micro-batch {layout.micro_batch}"
        )
    try:
        datatype = choose_datatype(accelerator, read_datatype(row, accelerator))
        on = build_machine(accelerator, datatype, _scale_out(row, text, cluster), software=software)
    except CatalogError as error:
        raise RowRefused(str(error)) from None
    slices = count_slices(row)
    if slices > 1:
        on = replace(on, fabric=replace(on.fabric, domain_gpus=max(gpus // slices, 1)))
    job = TrainingJob(network, seq, batch, on, software, adapters=_adapters(row), document_tokens=_document_tokens(row))
    quantity, value, per_step = ("iteration_s", nan, 1.0) if ran_out_of_memory(row) else _measure(row, job, gpus)
    billions = read_number(row, "params_b") or network.parameters / PARAMETERS_PER_BILLION
    label = row.get("model") or row.get("scheme") or f"{billions:.3g}B"
    one = MeasuredRun(str(label), job, layout, free, quantity, value, per_step, list_unread(row))
    if free and not any(len(x) for x in enumerate_layouts(job, gpus, one.space)):
        raise RowRefused(_explain_no_layout(network, batch, layout, free))
    return one


def ran_out_of_memory(row: Row) -> bool:
    """True where the row says that the run ended for want of memory.

    >>> ran_out_of_memory({"result": "OOM Error"}), ran_out_of_memory({"result": "ok"}), ran_out_of_memory({})
    (True, False, False)
    """
    return re.search(r"\boom\b|out[ _-]of[ _-]memory", (row.get("result") or "").lower()) is not None


def _explain_no_layout(network: Network, batch: int, x: TrainingLayout, free: Sequence[str]) -> str:
    if "tensor" not in free and batch % x.data:
        return f"a global batch of {batch} is no multiple of the {x.data} data ranks that tp, pp and cp leave"
    if network.experts and network.experts.count % x.expert:
        return f"{network.experts.count} experts do not divide over {x.expert} ranks"
    if x.tensor * x.context * x.data % x.expert:
        return f"{x.expert} expert ranks do not divide the {x.tensor * x.context * x.data} ranks of a pipeline stage"
    if x.pipeline * x.interleave > network.layers + MISSING_LAYERS:
        return f"{network.layers} layers are fewer than {x.pipeline} stages of {x.interleave} chunks"
    if x.interleave > 1 and "interleave" not in free:
        return f"the micro-batches of {batch} sequences are no multiple of {x.pipeline} interleaved stages"
    return f"no layout divides a global batch of {batch} over {x.gpus} GPUs and {network.layers} layers"


def _accelerator(row: Row) -> Accelerator:
    name = read_text(row, "gpu", "accelerator", "chip")
    found = find_accelerator(name) if name else None
    if found is None:
        raise RowRefused(f"no accelerator called {name!r} in the catalog" if name else "no gpu in the row")
    return found


SHAPE = (
    ("layers", ("layers",)),
    ("hidden", ("hidden",)),
    ("heads", ("heads",)),
    ("kv_heads", ("kv_heads",)),
    ("ffn_hidden", ("ffn_hidden", "ffn", "intermediate_size")),
)
"""Fields of a network's shape, and the columns that tables have them in."""


def _network(row: Row) -> tuple[Network, int]:
    """The network of a row and its tokens in a sequence: of the catalog, or by the shape that the row gives.

    Raises RowRefused where the shape is another one than that of the network it names.
    """
    seq = read_whole(row, "seq", "seq_len", "sequence_length", "max_seq_len")
    given = {
        field: read_whole(row, *columns, default=0, limits=LAYERS if field == "layers" else COUNTED)
        for field, columns in SHAPE
    }
    name = read_text(row, "network", "model") or ""
    known = find_network(name)
    if known is not None:
        for field, value in given.items():
            if value and value != getattr(known, field) and not (known.experts and field == "ffn_hidden"):
                raise RowRefused(f"{name} has {getattr(known, field):,} {field}, and the row says {value:,}")
        return known, seq
    missing = [field for field in ("layers", "hidden", "heads") if not given[field]]
    if missing:
        raise RowRefused(f"no {', '.join(missing)} in the row and its model is not in the catalog")
    hidden, heads = given["hidden"], given["heads"]
    shape = Network(
        name=read_text(row, "model") or "row",
        layers=given["layers"],
        hidden=hidden,
        heads=heads,
        kv_heads=given["kv_heads"] or heads,
        head_dim=read_whole(row, "head_dim", default=max(hidden // heads, 1)),
        ffn_hidden=given["ffn_hidden"] or 4 * hidden,
        vocabulary=read_whole(row, "vocab", "vocabulary", default=GPT2_VOCABULARY),
        max_context=seq,
        gated_mlp=False,
        tied_embeddings=True,
        positional="learned",
        norm="layer",
        linear_bias=True,
    )
    return (replace(shape, **LIKE_LLAMA) if _is_gated(row, shape) else shape), seq


LIKE_LLAMA: Final[Mapping[str, Any]] = {
    "gated_mlp": True,
    "tied_embeddings": False,
    "positional": "rope",
    "norm": "rms",
    "linear_bias": False,
}


def _is_gated(row: Row, plain: Network) -> bool:
    """True where the row says so; else where its count of parameters is nearer to it, or the MLP is not four times as wide."""
    written = (read_text(row, "gated_mlp") or "").lower()
    if written:
        return written in ("1", "true", "yes")
    billions = read_number(row, "params_b")
    if billions is None:
        return plain.ffn_hidden != 4 * plain.hidden
    gated = replace(plain, **LIKE_LLAMA)
    return abs(gated.parameters - billions * PARAMETERS_PER_BILLION) < abs(
        plain.parameters - billions * PARAMETERS_PER_BILLION
    )


def _adapters(row: Row) -> Adapters | None:
    method = (read_text(row, "method") or "full").lower()
    if method not in METHODS:
        raise RowRefused(f"the method {method!r} is not one of {', '.join(METHODS)}")
    rank = read_whole(row, "lora_rank", "rank", default=DEFAULT_RANK)
    words: str = (read_text(row, "lora_targets") or "attention").lower()
    known: tuple[AdapterTargets, ...] = get_args(AdapterTargets)
    targets = next((one for one in known if one == words), None)
    if targets is None:
        raise RowRefused(f"lora_targets is {words!r}, not one of {', '.join(known)}")
    return Adapters(rank, method == "qlora", targets) if method in ("lora", "qlora") else None


def _document_tokens(row: Row) -> int | None:
    """Tokens of a document, where rows of fine-tuning pack short ones; None where one fills a sequence."""
    given = read_whole(row, "document_tokens", default=0)
    if given:
        return given
    method = (read_text(row, "method") or "pretrain").lower()
    padded = "padd" in (row.get("techniques") or "").lower()
    return FINE_TUNING_DOCUMENT if method in FINE_TUNING and not padded else None


def _scale_out(row: Row, text: str, cluster: PublishedCluster | None) -> float | None:
    """Bytes/s per GPU between nodes: the row's own column, "1600 Gbps node-node" in its words, or a cluster known by name."""
    own = read_number(row, "scale_out_gb_per_s", "ib_gb_per_s_per_gpu")
    if own:
        return own * BYTES_PER_GB
    gbps = re.search(r"(\d{3,4}) ?Gbps", text)
    if gbps:
        return float(gbps[1]) * BYTES_PER_GB / BITS_PER_BYTE / GPUS_PER_NODE
    return cluster.scale_out_bytes_per_s.value if cluster else None


def _measure(row: Row, job: TrainingJob, gpus: int) -> tuple[str, float, float]:
    """The measured number, and what it is per step. Times first, then tokens, then FLOP/s by the row's convention."""
    for name, factor in (
        ("iteration_s", 1.0),
        ("step_time_s", 1.0),
        ("step_s", 1.0),
        ("iteration_ms", float(MS_PER_S)),
    ):
        value = read_number(row, name)
        if value:
            return ("iteration_s" if factor == 1 else "iteration_ms"), value, factor
    tokens = float(job.global_batch * job.seq)
    for name, share in (("tokens_per_s", 1.0), ("tokens_per_s_per_gpu", 1.0 / gpus)):
        value = read_number(row, name)
        if value:
            return name, value, tokens * share
    n = job.network
    hardware = "hardware" in (row.get("flops_convention") or "").lower()
    for name in ("model_tflops_per_gpu", "tflops_per_gpu", "tflops_per_gpu_published"):
        value = read_number(row, name)
        if value:
            convention = HARDWARE if hardware and not name.startswith("model") else MODEL
            per_token = training_flops_per_token(n, job.seq, convention, job.adapters is not None)
            return name, value, per_token * tokens / gpus / FLOPS_PER_TFLOPS
    used = read_number(row, "mfu_pct")
    if used:
        per_token = palm_flops_per_token(
            read_number(row, "params") or n.parameters, n.layers, n.heads * n.head_dim, job.seq
        )
        return "mfu_pct", used, per_token * tokens / (gpus * job.machine.matmul.peak_flops) * PERCENT
    raise RowRefused("no iteration time, tokens/s, TFLOP/s or MFU in the row")


def read_layout(row: Row, gpus: int, sharded: bool, software: Software) -> tuple[TrainingLayout, tuple[str, ...]]:
    """The layout of a row, and the names of the fields that it leaves free."""
    free = []
    stage = read_text(row, "zero", "zero_stage")
    if stage is not None and stage not in ("0", "1", "2", "3"):
        raise RowRefused(f"zero is {stage}, not a stage from 0 to 3")
    if not sharded and not any(read_text(row, n) for n in ("tp", "pp", "dp")):
        free += ["tensor", "pipeline"] + ([] if stage is not None else ["zero"])
    tp, pp, cp, ep = (read_whole(row, n, default=1) for n in ("tp", "pp", "cp", "ep"))
    dp = read_whole(row, "dp", default=gpus // (tp * pp * cp) or 1)
    micro = read_whole(row, "micro_batch", "micro_batch_size", "mbs", default=0) or None
    chunks = read_whole(row, "interleave_v", "interleave", default=0) or None
    if micro is None:
        free.append("micro_batch")
    if "pipeline" in free or (chunks is None and pp > 1 and software.pp_overlap):
        free.append("interleave")
    mode, _ = read_recompute(row)
    if mode is None and (software.recomputes == "by default" or not software.flash_attention):
        mode = "full"  # what was trained before FlashAttention was always recomputed
    if mode is None:
        free.append("recompute")
    zero = int(stage) if stage is not None else 3 if sharded else int(software.distributed_optimizer)
    stated = row.get("recompute") or ""
    parallel = ("sequence parallel" in stated and "no sequence" not in stated) or (
        software.sequence_parallel and tp > 1
    )
    recompute = RECOMPUTE.index(mode or "none")
    return TrainingLayout(tp, pp, dp, cp, ep, micro or 1, chunks or 1, recompute, zero, parallel), tuple(free)
