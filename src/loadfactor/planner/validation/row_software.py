"""Software of a measured training run, as a row's source, release, precision and techniques name it; what of that is not read.

The patterns are data: catalog/measurements/words.toml.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.facts import read_toml
from loadfactor.planner.training.machine import MODERN, NARROW, Software, find_software
from loadfactor.planner.validation.measurement_files import Row, RowRefused, read_text

FUSED_SINCE = 2205  # arXiv numbers from May 2022 on: Megatron sums weight gradients inside the product (2205.05198)
FLASH_SINCE = 2206  # arXiv numbers from June 2022 on: FlashAttention (2205.14135) is in use
TUNED_SINCE = (24, 9)  # releases of NVIDIA's recipes: attention by cuDNN and products tuned for Hopper
NEMO_RECIPES = re.compile(r"\bNeMo\b|NVIDIA-NeMo|dgxc-benchmarking|Megatron-Bridge")
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
        software = replace(software, attention="unfused")
    elif attention and not software.flash_attention:
        software = replace(software, attention="second")
    techniques = _techniques(row)
    for pattern, traits in read_words("techniques").items():
        if re.search(pattern, techniques) and (software.flash_attention or "attention" not in traits):
            software = replace(software, **traits)
    return software


def _recognize_framework(row: Row, text: str, accelerator: Accelerator) -> Software:
    if accelerator.vendor == "Google":
        return find_software("xla")
    lower = text.lower()
    for pattern, software in read_words("frameworks").items():
        if re.search(pattern, lower):
            return find_software(software)
    newest_paper = max((int(n) for n in re.findall(r"arXiv:(\d{4})\.\d", text)), default=0)
    if accelerator.architecture not in OLD or re.search("full_shard|fsdp", lower) or newest_paper >= FLASH_SINCE:
        if not NEMO_RECIPES.search(text):
            return MODERN
        release = re.search(r"\b[vr]?(\d\d)\.(\d\d)\b", row.get("release") or "")  # v24.11.1, NeMo container 25.11
        old = release is not None and (int(release[1]), int(release[2])) < TUNED_SINCE
        return find_software("nemo-2024" if old else "nemo")
    return find_software("megatron-2022" if newest_paper >= FUSED_SINCE else "megatron-2021")


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
