"""Numbers of a Hugging Face config.json: every key that is read as one, and the range in which it makes sense."""

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Final

from loadfactor.base.errors import InputError
from loadfactor.base.limits import Limits, shorten

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
