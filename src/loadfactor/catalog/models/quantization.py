"""The quantization that a Hugging Face config.json describes: bits per weight, and the parts it leaves in 16 bits."""

import json
from collections.abc import Mapping
from typing import Any

from loadfactor.base.errors import InputError
from loadfactor.catalog.models.network import Quantization

Config = Mapping[str, Any]
KEPT_SPELLINGS = (
    ("attention", ("self_attn", "attention")),
    ("mlp", ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")),
    ("router", ("router", "gate", "mlp.gate")),
    ("embedding", ("embed_tokens", "wte")),
    ("head", ("lm_head",)),
)


def read_quantization(q: Config | None) -> Quantization | None:
    """Bits per weight, scales included: FP8 per block, MXFP4 one 8-bit scale per 32, NVFP4 one per 16, int4 16 bits per group."""
    if not q:
        return None
    method = str(q.get("quant_method", "")).lower()
    words = json.dumps(q).lower()
    kept = [part for part, spelled in KEPT_SPELLINGS if _is_kept(q, spelled)] or ["head"]
    kept_parts = tuple(sorted({*kept, "norm", "router", "embedding"}))
    if "mxfp4" in words:
        return Quantization("mxfp4", 4.25, 16, kept_parts)
    if "nvfp4" in words or '"fp4"' in words or '"nvfp4"' in words:
        return Quantization("nvfp4", 4.5, 4, kept_parts)
    bits = q.get("bits") or q.get("w_bit") or _group_bits(q)
    if bits == 4 or q.get("load_in_4bit"):
        group = int(q.get("group_size") or q.get("q_group_size") or 128)
        return Quantization(f"{method or 'int4'}", 4 + 16 / max(group, 1) if group > 0 else 4, 16, kept_parts)
    if "fp8" in method or "fp8" in words or "float8" in words:
        return Quantization("fp8", 8, 8, kept_parts)
    if bits == 8 or q.get("load_in_8bit"):
        return Quantization(method or "int8", 8, 8, kept_parts)
    raise InputError(
        f"quantization {method or dict(q)} is not described; fp8, mxfp4, nvfp4 and 4- or 8-bit integers are"
    )


def _is_kept(q: Config, spelled: tuple[str, ...]) -> bool:
    names = q.get("modules_to_not_convert") or q.get("ignore") or q.get("ignored_layers") or ()
    return any(str(n).rstrip("*").rstrip(".").endswith(spelled) for n in names)


def _group_bits(q: Config) -> int | None:
    groups = q.get("config_groups")
    if not isinstance(groups, Mapping):
        return None
    found = [g.get("weights", {}).get("num_bits") for g in groups.values() if isinstance(g, Mapping)]
    return next((int(b) for b in found if b), None)
