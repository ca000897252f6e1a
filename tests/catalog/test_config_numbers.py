"""A Hugging Face config.json in which one value makes no sense."""

from contextlib import suppress
from pathlib import Path

import pytest

from loadfactor.base.errors import InputError
from loadfactor.catalog.models import from_hf_config, read_network
from loadfactor.catalog.models.hf_config import KEYS_READ

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
DEEPSEEK = LLAMA | {
    "model_type": "deepseek_v3",
    "n_routed_experts": 64,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1024,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
}
LISTS = ("mlp_only_layers", "moe_layers", "layer_types", "attn_type_list")
OBJECTS = ("attn_config", "ffn_config", "quantization_config", "text_config")
SENSELESS = (float("nan"), float("inf"), -1, 0, 1e-300, 1e300, 10**9, 10**30, "", "abc", [1], {}, True, None)


@pytest.mark.parametrize("base", [LLAMA, DEEPSEEK], ids=["llama", "deepseek"])
def test_a_senseless_value_is_refused_or_harmless(base: dict[str, object]) -> None:
    """Whatever stands behind a key, the network has a finite number of parameters above 0, or the config is refused."""
    for key in (*KEYS_READ, *LISTS, *OBJECTS):
        for value in SENSELESS:
            with suppress(InputError):
                network = from_hf_config(base | {key: value})
                assert 0 < network.active_parameters <= network.parameters < 1e18
                assert network.kv_bytes(1000) >= 0


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("hidden_size", '"abc"', "hidden_size must be a whole number, at least 1 and at most 10,000,000, got 'abc'"),
        (
            "num_attention_heads",
            "0",
            "num_attention_heads must be a whole number, at least 1 and at most 100,000, got 0",
        ),
        ("vocab_size", "NaN", "vocab_size must be a whole number, at least 1 and at most 100,000,000, got nan"),
        (
            "num_hidden_layers",
            "1e9",
            "num_hidden_layers must be a whole number, at least 1 and at most 10,000, got 10000",
        ),
        ("hidden_size", "1" * 5000, "is not JSON"),
        ("quantization_config", "[4]", "quantization_config must be an object"),
    ],
)
def test_the_file_and_the_key_are_named(key: str, value: str, says: str, tmp_path: Path) -> None:
    """The refusal names the file, the key and the range."""
    path = tmp_path / "config.json"
    parts = [f'"{k}": {v}' for k, v in LLAMA.items() if isinstance(v, int) and k != key]
    path.write_text("{" + ", ".join([*parts, f'"{key}": {value}']) + "}")
    with pytest.raises(InputError) as refused:
        read_network(str(path))
    assert str(path) in str(refused.value)
    assert says in str(refused.value)
