"""Software of a measured training run, as a row's source, release, precision and techniques say it; what of that is not read."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from loadfactor.catalog.accelerators import Accelerator
from loadfactor.planner.training.machine import (
    EAGER,
    MEGATRON_2021,
    MEGATRON_2022,
    MODERN,
    MOSAIC_2023,
    NEMO,
    NEMO_2024,
    TORCHTITAN,
    TORCHTUNE,
    XLA,
    Software,
)
from loadfactor.planner.validation.measurement_files import Row, RowRefused, read_text

FUSED_SINCE = 2205  # arXiv numbers from May 2022 on: Megatron sums weight gradients inside the product (2205.05198)
FLASH_SINCE = 2206  # arXiv numbers from June 2022 on: FlashAttention (2205.14135) is in use
TUNED_SINCE = (24, 9)  # releases of NVIDIA's recipes: attention by cuDNN and products tuned for Hopper
NEMO_RECIPES = re.compile(r"\bNeMo\b|NVIDIA-NeMo|dgxc-benchmarking|Megatron-Bridge")
OLD = ("Ampere", "Volta", "Pascal", "Turing")
FAMILIES: Final[tuple[tuple[str, Software], ...]] = (
    (r"\bpaxml\b|\bmaxtext\b|\bjax\b", replace(XLA, shards_inside=False)),
    (r"llm-foundry|mosaicml", MOSAIC_2023),
    (r"torchtitan", TORCHTITAN),
    (r"torchtune", TORCHTUNE),
    (r"transformers|hugging ?face|\btrl\b|axolotl|\bpeft\b|llama-?factory", EAGER),
)
"""Frameworks by words of a row, and what they do unless its techniques say otherwise."""
TECHNIQUES: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    (r"torch\.?compile|\bcompiled?\b|liger|unsloth", {"fused": True}),
    (r"\beager\b", {"fused": False}),
    (r"async(hronous)? (tp|tensor)|tp[ _](comm[ _])?overlap|userbuffers?", {"overlaps_tensor": True}),
    (r"vanilla tp", {"overlaps_tensor": False}),
    (r"ulysses|(context|sequence)[ -]parallel[^;+,]*all-to-all|all-to-all (cp|context)", {"context_by": "all-to-all"}),
    (r"ring[ -]?attention|\bring\b", {"context_by": "ring"}),
    (r"\bhsdp\b|hybrid shard", {"shards_inside": True}),
    (r"flash-?attention-?3|\bfa-?3\b|cudnn attention|\bsplash\b", {"attention": "native"}),
    (r"flash-?attention-?2|\bfa-?2\b|\bsdpa\b", {"attention": "second"}),
    (r"dualpipe|(moe|a2a|all-to-all|expert)[ _]overlap", {"hides_experts": True}),
    (r"token[- ]?drop(?!less)|drop[- ]and[- ]pad|capacity factor", {"drops_tokens": True}),
    (r"hybrid-?ep", {"counts_on_device": True}),
    (r"8-?bit adamw?|paged ?adamw?8bit", {"optimizer_bytes": 2, "optimizer_moved_bytes": 10}),
    (r"optimizer in backward", {"kept_gradient_bytes": 0}),
    (r"chunked loss|fused linear cross.?entropy", {"logit_bytes": 1}),
    (r"activation offload(ing)?|offload(ed|s|ing)? activations", {"offloads_inputs": True}),
    (r"cpu offload|offload(ed|s|ing)?( of)? (the )?optimizer|optimizer offload", {"optimizer_on_host": True}),
    (r"row-?wise", {"scaling": "row"}),
    (r"block-?wise|\bmx\b|mxfp8|sub-?channel|nvfp4", {"scaling": "block"}),
)
"""Techniques as tables write them, and what they change."""
READ_ELSEWHERE: Final = re.compile(
    r"fsdp2?|zero-?[0-3]|\bddp\b|\bcp\b|context parallel|\b[tp]p\b|(\d+|two) slice(\(s\)|s)?( of \d+)?|float8( linear)?|\bfp8\b"
    r"|tensor-?wise|(token-?)?dropless|q?lora on the above|activation checkpointing|fused optimizer|packed|paxml|flash attention",
)
"""Words that other columns say, too, or that are what the equations assume."""


def recognize_software(row: Row, text: str, accelerator: Accelerator) -> Software:
    """FlashAttention and overlap where the row says so, on Hopper and newer, with FSDP, or from a paper after June 2022.

    Then what its precision and its techniques change.
    """
    software = _recognize_family(row, text, accelerator)
    said = (read_text(row, "attention", "attention_kernel") or "").lower()
    if said:
        software = replace(software, flash_attention="flash" in said)
    techniques = _techniques(row)
    for pattern, change in TECHNIQUES:
        if re.search(pattern, techniques):
            software = replace(software, **change)
    return software


def list_unread(row: Row) -> tuple[str, ...]:
    """The techniques of a row that nothing is made of.

    >>> list_unread({"techniques": "FSDP + torch.compile + Float8, NUMA binding"})
    ('numa binding',)
    """
    left = _techniques({"techniques": row.get("techniques")})
    for pattern in (*(p for p, _ in TECHNIQUES), READ_ELSEWHERE.pattern):
        left = re.sub(pattern, "", left)
    pieces = (re.sub(r"^(and|with)\b", "", p.strip(" ()")).strip() for p in re.split(r"[+,;/]|\band\b", left))
    return tuple(p for p in pieces if p)


def read_datatype(row: Row, accelerator: Accelerator) -> str:
    """The datatype of the layers' products, as precisions are written: bf16-mixed, fp8-cs, float8 rowwise, NVFP4.

    What an accelerator has no units for is computed in 16 bits. Raises RowRefused for a precision that is none.
    """
    said = (read_text(row, "precision", "dtype", "datatype") or "bf16").lower()
    for pattern, datatype in (
        (r"fp4|float4|e2m1", "fp4"), (r"fp8|float8|e4m3", "fp8"), (r"int8|w8a8", "int8"), (r"bf16|bfloat16", "bf16"),
        (r"fp16|float16|half", "fp16"), (r"tf32", "tf32"), (r"fp32|float32", "fp32"),
    ):  # fmt: skip
        if re.search(pattern, said):
            narrow = datatype in ("fp4", "fp8", "int8")
            return "bf16" if narrow and accelerator.get(f"peak_{datatype}_flops") is None else datatype
    if re.search(r"\d", said):
        raise RowRefused(f"the precision {said!r} is not one of bf16, fp16, fp8, fp4, int8, tf32, fp32")
    return "bf16"


def count_slices(row: Row) -> int:
    """Slices of accelerators that only a data-center network joins; 1 where the row says nothing of them.

    >>> count_slices({"techniques": "4 slice(s)"}), count_slices({"techniques": "two slices of 256"})
    (4, 2)
    """
    said = re.search(r"(\d+|two) slice", _techniques(row))
    return {"two": 2}.get(said.group(1)) or int(said.group(1)) if said else 1


def _techniques(row: Row) -> str:
    said = (row.get(name) or "" for name in ("techniques", "precision", "routing", "note"))
    return " ; ".join(said).lower()


def _recognize_family(row: Row, text: str, accelerator: Accelerator) -> Software:
    papers = [int(n) for n in re.findall(r"arXiv:(\d{4})\.\d", text)]
    lower = text.lower()
    modern = accelerator.architecture not in OLD or "full_shard" in lower or "fsdp" in lower
    modern = modern or bool(papers and max(papers) >= FLASH_SINCE)
    if accelerator.vendor == "Google":
        return XLA
    for pattern, software in FAMILIES:
        if re.search(pattern, lower):
            return software
    if NEMO_RECIPES.search(text) and modern:
        return NEMO_2024 if _release(row) < TUNED_SINCE else NEMO
    if modern:
        return MODERN
    return MEGATRON_2022 if papers and max(papers) >= FUSED_SINCE else MEGATRON_2021


def _release(row: Row) -> tuple[int, int]:
    """Year and month of a release like "v24.11.1" or "NeMo container 25.11"; of today where none is given."""
    said = re.search(r"\b[vr]?(\d\d)\.(\d\d)\b", row.get("release") or "")
    return (int(said.group(1)), int(said.group(2))) if said else (99, 12)
