"""The network that a Hugging Face config.json describes: every spelling of the same fact, and the library's defaults.

A key that is missing takes the default of the architecture's configuration class. A network is refused only when a number
that its shape cannot do without is nowhere in the file, or when it has layers of a kind not described here.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Final

from loadfactor.base.errors import InputError
from loadfactor.base.limits import Limits, shorten
from loadfactor.base.units import BYTES_PER_MIB
from loadfactor.catalog.facts import read_toml
from loadfactor.catalog.models.network import (
    Experts,
    GlobalAttention,
    LatentAttention,
    LinearAttention,
    Network,
    Quantization,
    SparseIndexer,
)

KEPT_SPELLINGS = (
    ("attention", ("self_attn", "attention")),
    ("mlp", ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")),
    ("router", ("router", "gate", "mlp.gate")),
    ("embedding", ("embed_tokens", "wte")),
    ("head", ("lm_head",)),
)
_COUNT = Limits(at_least=1, at_most=100_000)  # of heads, experts, and dimensions of one
_COUNT_OR_NONE = Limits(at_least=0, at_most=100_000)
_LAYERS = Limits(at_least=1, at_most=10_000)
_LAYER = Limits(at_least=0, at_most=10_000)
_WIDTH = Limits(at_least=1, at_most=10_000_000)
_WIDTH_OR_NONE = Limits(at_least=0, at_most=10_000_000)
_WORDS = Limits(at_least=1, at_most=100_000_000)
_TOKENS = Limits(at_least=1, at_most=1_000_000_000)
_TOKENS_OR_NONE = Limits(at_least=0, at_most=1_000_000_000)
_KEYS: Final = (
    (_LAYERS, "num_hidden_layers n_layer n_layers num_layers"),
    (_WIDTH, "hidden_size n_embd d_model dim"),
    (_WIDTH, "intermediate_size intermediate_size_mlp n_inner ffn_dim ffn_hidden_size d_ff ffn_hidden"),
    (_WIDTH, "moe_intermediate_size expert_intermediate_size"),
    (_WIDTH_OR_NONE, "shared_expert_intermediate_size shared_intermediate_size"),
    (_WORDS, "vocab_size padded_vocab_size"),
    (_TOKENS, "max_position_embeddings n_positions max_seq_len seq_length n_ctx model_max_length"),
    (_TOKENS_OR_NONE, "sliding_window attention_chunk_size"),
    (_COUNT, "num_attention_heads n_head n_heads num_key_value_heads num_kv_heads n_head_kv multi_query_group_num"),
    (_COUNT, "kv_n_heads num_global_key_value_heads linear_num_key_heads linear_num_value_heads index_n_heads"),
    (_COUNT, "head_dim kv_channels qk_rope_head_dim qk_nope_head_dim v_head_dim global_head_dim index_head_dim"),
    (_COUNT, "linear_key_head_dim linear_value_head_dim linear_conv_kernel_dim kv_lora_rank"),
    (_COUNT_OR_NONE, "q_lora_rank num_local_experts n_routed_experts num_experts moe_num_experts n_shared_experts"),
    (_COUNT_OR_NONE, "num_shared_experts num_experts_per_tok experts_per_token top_k_experts moe_top_k"),
    (_COUNT_OR_NONE, "num_experts_per_token"),
    (_TOKENS, "index_topk"),
    (_LAYER, "first_k_dense_replace max_window_layers decoder_sparse_step interleave_moe_layer_step"),
    (_LAYER, "moe_layer_freq_step moe_layer_freq full_attention_interval sliding_window_pattern"),
)
_LIMITS: Final = {key: limits for limits, keys in _KEYS for key in keys.split()}
_RATIOS: Final = {"expansion_ratio": Limits(above=0, at_most=1000)}  # need not be whole
KEYS_READ: Final = (*_LIMITS, *_RATIOS)
_MAY_BE_LISTS: Final = ("moe_layer_freq",)  # one entry a layer
_MAY_BE_WORDS: Final = ("sliding_window_pattern",)  # LLLG
_LISTS_OF_LAYERS: Final = ("mlp_only_layers", "moe_layers")
_LISTS_OF_PARTS: Final = ("modules_to_not_convert", "ignore", "ignored_layers")
_NESTED: Final = ("attn_config", "ffn_config", "quantization_config")
_QUANTIZATION: Final = {
    "bits": Limits(at_least=1, at_most=32),
    "w_bit": Limits(at_least=1, at_most=32),
    "group_size": Limits(at_least=-1, at_most=10_000_000),  # -1: one group
    "q_group_size": Limits(at_least=-1, at_most=10_000_000),
}
Config = Mapping[str, Any]
LIMIT_BYTES = 16 * BYTES_PER_MIB  # of a config.json; real ones have some kilobytes
_FILE: Final = read_toml("loadfactor.catalog", "hf_families.toml")
_SPELLINGS: Final = {fact: tuple(keys) for fact, keys in _FILE["spellings"].items()}
_FAMILIES: Final = {name: tuple(kinds) for name, kinds in _FILE["families"].items()}
_FULL_EVERY: Final[Mapping[str, int]] = _FILE["families"]["full_every"]


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


def check_config_numbers(config: Mapping[str, Any], where: str) -> None:
    """Check every number that is read. Raises InputError naming the file, the key and the range."""
    for key, value in config.items():
        if key in _LISTS_OF_LAYERS:
            _check_layers(key, value, where)
        elif key in _NESTED and value is not None:
            if not isinstance(value, Mapping):
                raise InputError(f"{where}: {key} must be an object, got {shorten(repr(value))}")
            _check_nested(key, value, where)
        else:
            _check_number(key, value, where)


def _check_nested(name: str, config: Mapping[str, Any], where: str) -> None:
    for key, value in config.items():
        if name == "quantization_config":
            if key in _QUANTIZATION:
                _check(f"{name}.{key}", value, _QUANTIZATION[key], where)
            elif key in _LISTS_OF_PARTS and not isinstance(value, (list, NoneType)):
                raise InputError(f"{where}: {name}.{key} must be a list of names, got {shorten(repr(value))}")
        else:
            _check_number(key, value, where, f"{name}.")


def _check_number(key: str, value: Any, where: str, inside: str = "") -> None:
    if (key in _MAY_BE_LISTS and isinstance(value, list)) or (key in _MAY_BE_WORDS and isinstance(value, str)):
        return
    if key in _LIMITS:
        _check(inside + key, value, _LIMITS[key], where)
    elif key in _RATIOS:
        _check(inside + key, value, _RATIOS[key], where, whole=False)


def _check_layers(key: str, value: Any, where: str) -> None:
    if value is None:
        return
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InputError(f"{where}: {key} must be a list of layer numbers, got {shorten(repr(value))}")
    for layer in value:
        _check(f"a number in {key}", layer, _LAYER, where)


def _check(key: str, value: Any, limits: Limits, where: str, whole: bool = True) -> None:
    if value is None:
        return
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and limits.admit(value)
    if not is_number or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise InputError(f"{where}: {key} must be {kind}, {limits.words}, got {shorten(repr(value))}")


def from_hf_config(source: str | Path | Config, name: str | None = None) -> Network:
    """The network of a config.json: its path, its folder, or the mapping read from it.

    Raises InputError naming the key that is missing or makes no sense, or the kind of layer that is not described.
    """
    config, label = _read(source, name)
    where = label if isinstance(source, Mapping) else str(source)
    quantization = config.get("quantization_config")
    text = _text_part(config)
    merged = {"quantization_config": quantization, "tie_word_embeddings": config.get("tie_word_embeddings"), **text}
    known = {k: v for k, v in merged.items() if v is not None}
    check_config_numbers(known, where)
    for part in (known.get("attn_config"), known.get("ffn_config")):
        known = {**{k: v for k, v in (part or {}).items() if k in _LIMITS}, **known}
    try:
        return _network(known, label)
    except KeyError as missing:
        raise InputError(f"{where} does not say {missing.args[0]}, which a network of this kind needs") from None


def _read(source: str | Path | Config, name: str | None) -> tuple[Config, str]:
    if isinstance(source, Mapping):
        return source, name or str(source.get("_name_or_path") or source.get("model_type") or "network")
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    if path.exists() and (not path.is_file() or path.stat().st_size > LIMIT_BYTES):
        raise InputError(f"{path} is no plain file of at most 16 MiB; give a Hugging Face config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; give a config.json or a name of the catalog") from None
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, a number of thousands of digits
        raise InputError(f"{path} is not JSON ({error}); give a Hugging Face config.json") from None
    if not isinstance(config, dict):
        raise InputError(f"{path} is not a Hugging Face config: the top level is not an object")
    label = path.parent.name if path.stem == "config" else path.stem.removesuffix("_config").replace("--", "/")
    return config, name or label


def _text_part(config: Config) -> Config:
    for key in _SPELLINGS["parts_of_multimodal"]:
        if isinstance(config.get(key), Mapping) and any(k in config[key] for k in ("model_type", "hidden_size")):
            return _text_part(config[key])
    return config


def _first(c: Config, what: str) -> Any:
    return next((c[k] for k in _SPELLINGS[what] if c.get(k) is not None), None)


def _need(c: Config, what: str, label: str) -> int:
    value = _first(c, what)
    if value is None:
        kind = c.get("model_type", "unknown kind")
        raise InputError(
            f"{label} ({kind}) does not say its {what}: none of {', '.join(_SPELLINGS[what])} is in the config"
        )
    return int(value)


def _network(c: Config, label: str) -> Network:
    kind = str(c.get("model_type", "")).lower()
    if (
        any(word in kind for word in _FAMILIES["state_space"])
        or "layers_block_type" in c
        or "hybrid_override_pattern" in c
    ):
        raise InputError(f"{label} ({kind}) has state-space layers, which are not described; transformers can be read")
    layers, hidden, heads = (_need(c, w, label) for w in ("layers", "hidden", "heads"))
    latent, experts = _latent(c), _experts(c, kind, layers)
    head_dim = int(c.get("head_dim") or c.get("kv_channels") or hidden // heads)
    if not head_dim:
        raise InputError(
            f"{label} ({kind}) has {heads} heads for a hidden size of {hidden}; it must be at most {hidden}"
        )
    kinds = _layer_kinds(c, kind, layers)
    strange = set(kinds) - {"full_attention", "sliding_attention", "chunked_attention", "linear_attention"}
    if strange:
        raise InputError(f"{label} ({kind}) has layers of a kind not described: {', '.join(sorted(strange))}")
    sliding = tuple(i for i, k in enumerate(kinds) if k in ("sliding_attention", "chunked_attention"))
    window = c.get("sliding_window") or c.get("attention_chunk_size")
    return Network(
        name=label,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(c, kind, heads),
        head_dim=head_dim,
        ffn_hidden=_ffn_hidden(c, kind, hidden, experts),
        vocabulary=_need(c, "vocabulary", label),
        max_context=int(_first(c, "max_context") or 2048),
        gated_mlp=not (kind in _FAMILIES["ungated"] or kind in _FAMILIES["ungated_by_activation"]),
        tied_embeddings=bool(c.get("tie_word_embeddings", kind.startswith(_FAMILIES["tied_by_default"]))),
        positional=_positional(c, kind),
        norm="layer" if kind in _FAMILIES["layer_norm"] else "rms",
        norms_per_layer=_norms(c, kind),
        linear_bias=_linear_bias(c, kind),
        qkv_bias=bool(
            c.get("attention_bias") or c.get("qkv_bias") or c.get("add_qkv_bias") or kind in _FAMILIES["qkv_biased"]
        ),
        output_gate=bool(c.get("attn_output_gate", kind == "qwen3_next")),
        experts=experts,
        latent=latent,
        indexer=SparseIndexer(c["index_n_heads"], c["index_head_dim"], c["index_topk"]) if "index_topk" in c else None,
        linear=_linear_attention(c, kinds),
        full=_full_attention(c, head_dim),
        sliding_window=int(window) if window and sliding else None,
        sliding_layers=sliding if window else (),
        quantization=read_quantization(c.get("quantization_config")),
        fp8_blocks=kind.startswith(_FAMILIES["fp8_blocks"]),
        source="Hugging Face config.json",
    )


def _kv_heads(c: Config, kind: str, heads: int) -> int:
    if kind in ("falcon", "gpt_bigcode") and c.get("multi_query", True) and not c.get("new_decoder_architecture"):
        return 1
    return int(_first(c, "kv_heads") or heads)


def _ffn_hidden(c: Config, kind: str, hidden: int, experts: Experts | None) -> int:
    dense = c.get("intermediate_size_mlp") if kind.startswith("llama4") else None
    found = dense or _first(c, "ffn_hidden")
    if found is None:
        return experts.ffn_hidden if experts else int(hidden * c.get("expansion_ratio", 4))
    return int(found)


def _positional(c: Config, kind: str) -> str:
    if kind in _FAMILIES["learned_positions"]:
        return "learned"
    return "alibi" if c.get("alibi") or kind in ("mpt", "bloom") else "rope"


def _norms(c: Config, kind: str) -> int:
    if kind in _FAMILIES["sandwich_norm"]:
        return 4
    parallel = c.get("parallel_attn") or c.get("use_parallel_residual") or kind in ("phi", "cohere", "cohere2", "gptj")
    return 1 if parallel and kind not in ("gpt_neox",) else 2


def _linear_bias(c: Config, kind: str) -> bool:
    if kind == "gpt_oss":
        return True
    if kind in ("mpt", "falcon"):
        return not c.get("no_bias", True) if kind == "mpt" else bool(c.get("bias", False))
    return bool(c.get("mlp_bias") or c.get("use_bias", kind in _FAMILIES["all_biased"]))


def _latent(c: Config) -> LatentAttention | None:
    if c.get("kv_lora_rank") is None:
        return None
    rope = int(c.get("qk_rope_head_dim", 64))
    q_rank = c.get("q_lora_rank")
    return LatentAttention(
        int(q_rank) if q_rank else None,
        int(c["kv_lora_rank"]),
        int(c.get("qk_nope_head_dim", 128)),
        rope,
        int(c.get("v_head_dim", 128)),
    )


def _experts(c: Config, kind: str, layers: int) -> Experts | None:
    count = int(_first(c, "experts") or 0)
    if count <= 1 or c.get("enable_moe_block") is False:
        return None
    per_token = _first(c, "experts_per_token")
    if per_token is None:
        raise InputError(f"{kind} has {count} experts but does not say how many a token uses (num_experts_per_tok)")
    if not 1 <= per_token <= count:
        raise InputError(f"{kind} uses {per_token} experts a token; it must be at least 1 and at most its {count}")
    width = c.get("moe_intermediate_size") or c.get("expert_intermediate_size") or _first(c, "ffn_hidden")
    width = int(width or c["ffn_hidden_size"])
    shared = c.get("shared_expert_intermediate_size") or c.get("shared_intermediate_size")
    shared = int(shared) if shared is not None else int(_first(c, "shared_experts") or 0) * width
    if kind.startswith("gemma4"):  # an ordinary MLP stands beside the experts in every layer
        shared = int(c["intermediate_size"])
    if kind.startswith("llama4"):
        shared = width
    groups, kept = int(c.get("n_group") or 1), int(c.get("topk_group") or 0)
    nodes = kept if 0 < kept < groups else None  # groups of experts lie on nodes (arXiv:2412.19437 section 2.1.2)
    return Experts(count, int(per_token), width, shared, _dense_layers(c, layers), nodes)


def _dense_layers(c: Config, layers: int) -> tuple[int, ...]:
    dense = set(range(int(c.get("first_k_dense_replace") or 0))) | set(c.get("mlp_only_layers") or ())
    step = int(c.get("decoder_sparse_step") or c.get("interleave_moe_layer_step") or c.get("moe_layer_freq_step") or 1)
    dense |= {i for i in range(layers) if (i + 1) % step}
    if isinstance(c.get("moe_layers"), list):
        dense |= set(range(layers)) - set(c["moe_layers"])
    frequency = c.get("moe_layer_freq", 1)
    if isinstance(frequency, list):
        dense |= {i for i, on in enumerate(frequency) if not on}
    elif frequency and frequency > 1:
        dense |= {i for i in range(layers) if i % frequency}
    return tuple(sorted(i for i in dense if i < layers))


def _layer_kinds(c: Config, kind: str, layers: int) -> list[str]:
    if isinstance(c.get("attn_type_list"), list):  # MiniMax: 1 is softmax attention, 0 lightning attention
        return ["full_attention" if one else "lightning_attention" for one in c["attn_type_list"][:layers]]
    if isinstance(c.get("layer_types"), list):
        return [str(k) for k in c["layer_types"][:layers]]
    full_every = c.get("full_attention_interval")
    if kind == "qwen3_next" or full_every:
        return ["linear_attention" if (i + 1) % int(full_every or 4) else "full_attention" for i in range(layers)]
    pattern = c.get("sliding_window_pattern") or _FULL_EVERY.get(kind)
    if isinstance(pattern, int):
        return ["sliding_attention" if (i + 1) % pattern else "full_attention" for i in range(layers)]
    if c.get("sliding_window") and c.get("use_sliding_window", not kind.startswith("qwen")):
        first = int(c.get("max_window_layers", 0)) if kind.startswith("qwen") else 0
        return ["full_attention" if i < first else "sliding_attention" for i in range(layers)]
    return ["full_attention"] * layers


def _linear_attention(c: Config, kinds: list[str]) -> LinearAttention | None:
    layers = tuple(i for i, k in enumerate(kinds) if k == "linear_attention")
    if not layers:
        return None
    try:
        return LinearAttention(
            layers,
            int(c["linear_num_key_heads"]),
            int(c["linear_num_value_heads"]),
            int(c["linear_key_head_dim"]),
            int(c["linear_value_head_dim"]),
            int(c.get("linear_conv_kernel_dim", 4)),
        )
    except KeyError as missing:
        raise InputError(f"linear-attention layers without {missing}: that kind of layer is not described") from None


def _full_attention(c: Config, head_dim: int) -> GlobalAttention | None:
    if not c.get("global_head_dim"):
        return None
    kv_heads = c.get("num_global_key_value_heads") or c["num_key_value_heads"]
    return GlobalAttention(int(c["global_head_dim"] or head_dim), int(kv_heads), bool(c.get("attention_k_eq_v")))
