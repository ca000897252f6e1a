"""Networks of the catalog have the parameters their makers published, and any Hugging Face config can be read."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from loadfactor.base.errors import InputError
from loadfactor.catalog.models import (
    Network,
    catalog_rows,
    find_network,
    from_hf_config,
    network,
    networks,
    read_network,
)
from loadfactor.catalog.models.hf_config import KEYS_READ

GPT2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}


@pytest.mark.parametrize("name", list(networks()))
def test_parameters_match_what_was_published(name: str) -> None:
    """Parameters computed from the shape are within 1 % of the published count, or a note says that none is; all name a source."""
    row = catalog_rows()[name]
    if "published_parameters" in row:
        assert networks()[name].parameters == pytest.approx(row["published_parameters"], rel=0.01)
    else:
        assert "no count" in row["note"]
    assert row["source"]
    assert row["retrieved_on"].year >= 2026


@pytest.mark.parametrize(
    ("name", "billions"),
    [("deepseek-v3", 37), ("qwen3-235b-a22b", 22), ("mixtral-8x7b", 12.9), ("gemma-4-26b-a4b", 3.8)],
)
def test_active_parameters_match_what_was_published(name: str, billions: float) -> None:
    """A token passes through as many parameters as the makers say, within the rounding of their names."""
    assert networks()[name].active_parameters / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"), ("Llama 3.1 70B", "llama-3.1-70b"), ("llama3.1-70b", "llama-3.1-70b"),
        ("Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"), ("LLaMA-2 7B", "llama-2-7b"), ("llama2_13b_chat", "llama-2-13b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"), ("Mixtral 8x7B", "mixtral-8x7b"), ("GPT-3 175B", "gpt3-175b"),
    ],
)  # fmt: skip
def test_spellings_of_papers_and_hubs_are_found(name: str, id: str) -> None:
    """Organisation, case, separators and words like "instruct" do not matter."""
    assert network(name).name == id


@pytest.mark.parametrize("name", ["gpt2", "llama-3.1-7b", "qwen-7b", "Llama-3.1-70B-FP8", "mistral", "phi-4-mini"])
def test_another_network_is_never_taken_for_one_of_the_catalog(name: str) -> None:
    """A network of another size, version or datatype is not found, and the error names what is near."""
    assert find_network(name) is None
    with pytest.raises(InputError, match=r"did you mean|catalog models"):
        network(name)


def test_gpt_oss_counts_active_parameters_without_the_input_embedding() -> None:
    """gpt-oss' 5.13 B active parameters leave out the input embedding; so do the parameters a token is multiplied with."""
    assert network("gpt-oss-120b").matmul_parameters / 1e9 == pytest.approx(5.13, rel=0.01)


def test_every_real_config_reads_as_the_catalog_has_it(shared: Path) -> None:
    """Each Hugging Face config at hand gives the same shape as the catalog's entry of that name."""
    paths = sorted((shared / "data" / "model_configs").glob("*.json"))
    assert len(paths) >= 16
    for path in paths:
        read = from_hf_config(path)
        known = find_network(read.name)
        if known is not None:
            assert replace(read, name="", source="") == replace(known, name="", source=""), path.name


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (GPT2, 0.1244),
        (
            {
                "model_type": "opt",
                "num_hidden_layers": 32,
                "hidden_size": 4096,
                "num_attention_heads": 32,
                "ffn_dim": 16384,
            }
            | {"vocab_size": 50272, "max_position_embeddings": 2048},
            6.66,
        ),
        (
            {"model_type": "gpt_neox", "num_hidden_layers": 44, "hidden_size": 6144, "num_attention_heads": 64}
            | {"intermediate_size": 24576, "vocab_size": 50432, "tie_word_embeddings": False},
            20.55,
        ),
        (
            {"model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71}
            | {"vocab_size": 65024, "multi_query": True, "parallel_attn": True, "bias": False},
            6.92,
        ),
        (
            {"model_type": "qwen2_moe", "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16}
            | {"intermediate_size": 5632, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632}
            | {"num_experts": 60, "num_experts_per_tok": 4, "vocab_size": 151936, "tie_word_embeddings": False},
            14.32,
        ),
        (
            {"model_type": "deepseek_v2", "num_hidden_layers": 27, "hidden_size": 2048, "num_attention_heads": 16}
            | {
                "q_lora_rank": None,
                "kv_lora_rank": 512,
                "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64,
                "v_head_dim": 128,
            }
            | {"intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2}
            | {"num_experts_per_tok": 6, "first_k_dense_replace": 1, "vocab_size": 102400},
            15.71,
        ),
        (
            {
                "model_type": "mpt",
                "d_model": 4096,
                "n_layers": 32,
                "n_heads": 32,
                "expansion_ratio": 4,
                "vocab_size": 50432,
            }
            | {"max_seq_len": 2048, "no_bias": True, "attn_config": {"alibi": True}},
            6.65,
        ),
        (
            {"model_type": "gemma2", "num_hidden_layers": 42, "hidden_size": 3584, "num_attention_heads": 16}
            | {"num_key_value_heads": 8, "head_dim": 256, "intermediate_size": 14336, "vocab_size": 256000}
            | {"sliding_window": 4096},
            9.24,
        ),
    ],
    ids=lambda v: v["model_type"] if isinstance(v, dict) else "",
)
def test_other_architectures_read_with_their_defaults(config: dict[str, object], billions: float) -> None:
    """Configs that leave out what their library defaults still give the published parameters."""
    assert from_hf_config(config).parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_nested_text_part_is_found() -> None:
    """A multimodal config is read from the part that describes its text network."""
    read = from_hf_config({"model_type": "kimi_vl", "text_config": {**GPT2}, "vision_config": {"hidden_size": 9}})
    assert (read.layers, read.hidden) == (12, 768)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """A config without a number the shape needs, with layers not described, or that is not one says so in one line."""
    with pytest.raises(InputError, match="does not say its layers"):
        from_hf_config({"model_type": "novel", "hidden_size": 512})
    shape = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 2,
        "vocab_size": 99,
        "intermediate_size": 9,
    }
    with pytest.raises(InputError, match="a kind not described: lightning_attention"):
        from_hf_config({"model_type": "minimax_m1", **shape, "attn_type_list": [0, 1]})
    with pytest.raises(InputError, match="state-space"):
        from_hf_config({"model_type": "mamba2", "hidden_size": 512})
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="not JSON"):
        read_network(str(tmp_path))
    with pytest.raises(InputError, match=r"did you mean 'llama-3\.1-70b'"):
        network("llama-3.1-71b")


def test_cache_of_sliding_layers_stops_growing() -> None:
    """Beyond its window a sliding layer's cache stands still; latent attention keeps one latent a token."""
    gemma = network("gemma-3-27b")
    grown = gemma.kv_bytes(8192) - gemma.kv_bytes(4096)
    assert grown == gemma.full_layers * 2 * gemma.kv_heads * gemma.head_dim * 2 * 4096
    assert network("deepseek-v3").kv_bytes_per_token() == 61 * (512 + 64) * 2


def test_quantized_weights_weigh_what_is_stored() -> None:
    """FP8 DeepSeek-V3 weighs about its parameters in bytes, MXFP4 gpt-oss-120b about 61 GiB as its card says."""
    v3 = network("deepseek-v3")
    assert v3.weight_bytes() == pytest.approx(v3.parameters, rel=0.01)
    assert network("gpt-oss-120b").weight_bytes() / 2**30 == pytest.approx(60.8, rel=0.02)
    assert isinstance(v3, Network)


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
