"""Types of instances have a source, a date and GPUs; networks have the parameters that their makers published."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from loadfactor.base.errors import InputError
from loadfactor.catalog.accelerators import accelerator, accelerators, find_accelerator
from loadfactor.catalog.instances import find_gpu_sku, find_rented_type, may_have_gpus, rented_types
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
from loadfactor.catalog.prices import gpu_hour_prices
from loadfactor.catalog.servers import Server, servers
from loadfactor.catalog.token_prices import token_price, token_prices

MOST_GPUS = 16


def test_every_type_has_gpus_a_source_and_a_name_that_its_provider_spells() -> None:
    """Every type has a number of GPUs that fits a machine, a model, a source and a date; its name is spelled as such types are."""
    for kind in rented_types().values():
        assert 1 <= kind.gpus <= MOST_GPUS, kind.name
        assert 0 < kind.share <= 1, kind.name
        assert kind.source
        assert kind.retrieved_on
        assert may_have_gpus(kind.name), kind.name
        known = kind.accelerator in accelerators()
        assert known or kind.accelerator.split()[0] in ("NVIDIA", "AMD"), kind.name


@pytest.mark.parametrize(
    ("name", "gpus", "accelerator"),
    [
        ("p3.16xlarge", 8, "NVIDIA V100 SXM2 16GB"), ("p4d.24xlarge", 8, "a100-sxm-40gb"), ("p5.4xlarge", 1, "h100-sxm"),
        ("p5en.48xlarge", 8, "h200-sxm"), ("p6-b200.48xlarge", 8, "b200-sxm"), ("g4dn.12xlarge", 4, "t4"),
        ("g5.24xlarge", 4, "a10g"), ("g6e.48xlarge", 8, "l40s"), ("ml.g6.16xlarge", 1, "l4"),
        ("Standard_ND96asr_v4", 8, "a100-sxm-40gb"), ("standard_nc80adis_h100_v5", 2, "h100-nvl"), ("NC64as_T4_v3", 4, "t4"),
        ("a2-megagpu-16g", 16, "a100-sxm-40gb"), ("a3-ultragpu-8g", 8, "h200-sxm"), ("g2-standard-24", 2, "l4"),
        ("gpu_8x_h100_sxm5", 8, "h100-sxm"), ("gd-8xh100ib-i128", 8, "h100-sxm"),
    ],
)  # fmt: skip
def test_types_are_found_as_bills_write_them(name: str, gpus: int, accelerator: str) -> None:
    """A type is found in any case, with and without what a service puts before its name."""
    kind = find_rented_type(name)
    assert kind is not None
    assert (kind.gpus, kind.accelerator) == (gpus, accelerator)


@pytest.mark.parametrize(
    "name", ["m5.large", "trn2.48xlarge", "inf2.xlarge", "db.r5.large", "Standard_D4s_v5", "n1-standard-8", ""]
)
def test_types_without_gpus_are_none_of_ours(name: str) -> None:
    """Machines without GPUs, and accelerators that are no GPUs, are neither known nor suspected."""
    assert find_rented_type(name) is None
    assert not may_have_gpus(name)


@pytest.mark.parametrize("name", ["p9.48xlarge", "g12e.xlarge", "Standard_ND999_v9", "a5-highgpu-8g", "gpu_8x_x100"])
def test_new_types_are_suspected_and_not_guessed(name: str) -> None:
    """A type that is spelled like those with GPUs and is not in the catalog has an unknown number of them."""
    assert find_rented_type(name) is None
    assert may_have_gpus(name)


def test_skus_of_accelerators_are_told_from_those_of_machines() -> None:
    """The SKU of an accelerator names its model, a new model too; cores, memory and images of machines are none."""
    assert find_gpu_sku("Nvidia Tesla A100 80GB GPU running in Iowa") == "a100-sxm"
    assert find_gpu_sku("Nvidia X900 GPU running in Iowa") == "NVIDIA X900"
    for sku in ("A2 Instance Core running in Americas", "NVIDIA GPU-Optimized AMI", "Storage PD Capacity"):
        assert find_gpu_sku(sku) is None


@pytest.mark.parametrize("server", servers().values(), ids=servers())
def test_a_server_is_whole(server: Server) -> None:
    """GPUs are counted, power and price are above zero where they are known, and no price is more than an estimate."""
    assert server.accelerator in accelerators()
    assert server.gpus.value >= 1
    assert len(server.currency) == 3
    for fact in (server.price, server.power_w):
        assert fact is None or fact.value > 0
    assert server.price is None or server.price.is_estimate


def test_every_price_is_positive_dated_and_named_once() -> None:
    """Every list price is above zero, has a source and a month, and no provider lists a model twice."""
    for price in token_prices():
        assert min(price.input_price_per_mtok, price.output_price_per_mtok) > 0
        assert price.source
        assert len(price.as_of) == 7
    names = [price.id.lower() for price in token_prices()]
    assert len(names) == len(set(names)) > 40


def test_an_ambiguous_or_unknown_name_says_what_there_is() -> None:
    """A model several providers list asks for the provider; an unknown one names near ones."""
    assert token_price("OpenAI/GPT-4-Turbo").input_price_per_mtok == 10
    with pytest.raises(InputError, match=r"name one: groq/qwen/qwen3-32b, openrouter/qwen/qwen3-32b"):
        token_price("qwen/qwen3-32b")
    with pytest.raises(InputError, match="openai/gpt-4o"):
        token_price("gpt-4o-maxi")


def test_every_fact_is_positive_and_sourced() -> None:
    """Every value is a positive number with a source, and every accelerator has the ones a roofline needs."""
    for item in accelerators().values():
        for name, fact in item.facts.items():
            assert fact.value > 0, (item.id, name)
            assert fact.source
        assert item.memory_bytes > 0
        assert item.memory_bandwidth_bytes_per_s > 0


def test_names_of_drivers_and_papers_are_found() -> None:
    """An accelerator is found by id, by the driver's name and by its short name, in any case; no name is claimed twice."""
    assert accelerator("nvidia h100 80gb hbm3").id == "h100-sxm"
    assert accelerator("A100-SXM-80GB").id == "a100-sxm"
    assert find_accelerator("abacus") is None
    names = [n for a in accelerators().values() for n in {x.lower() for x in (a.id, a.name, *a.aliases)}]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("H100-80GB", "h100-sxm"), ("H100 SXM5", "h100-sxm"), ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("H100 HGX (80GB)", "h100-sxm"), ("DGX-H100", "h100-sxm"), ("nvidia-h100-mega-80gb", "h100-sxm"),
        ("H100-PCIE-80GB", "h100-pcie"), ("H100 PCIe (80GB)", "h100-pcie"), ("NVIDIA H100 80GB HBM2e", "h100-pcie"),
        ("H100 NVL 94GB", "h100-nvl"), ("H100 SXM 500W", "h100-sxm-500w"), ("h200", "h200-sxm"),
        ("A100 SXM4 80GB", "a100-sxm"), ("NVIDIA A100-SXM4-80GB", "a100-sxm"), ("a100-80gb", "a100-sxm"),
        ("a100sxm480gb", "a100-sxm"), ("A100 (40 GB)", "a100-sxm-40gb"), ("nvidia-tesla-a100", "a100-sxm-40gb"),
        ("A100-PCIE-40GB", "a100-pcie-40gb"), ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("b200_sxm", "b200-sxm"), ("NVIDIA B200", "b200-sxm"), ("GB200 NVL72", "gb200-nvl72"),
        ("Tesla V100-SXM2-32GB", "v100-sxm"), ("V100", "v100-sxm"), ("V100 (32 GB)", "v100-sxm"), ("T4 (16 GB)", "t4"),
        ("AMD_Instinct_MI300X_OAM", "mi300x"), ("MI300X", "mi300x"), ("Gaudi2", "gaudi2"), ("rtx4090", "rtx-4090"),
        ("TPU v5e", "tpu-v5e"), ("TPU v5 lite", "tpu-v5e"), ("RTX A6000 (48 GB)", "a6000"), ("L40S", "l40s"),
    ],
)  # fmt: skip
def test_spellings_of_papers_clouds_and_drivers_are_found(name: str, id: str) -> None:
    """A spelling that states family, form, memory or power in any order and punctuation finds the part that has them."""
    assert accelerator(name).id == id


@pytest.mark.parametrize(
    "name",
    [
        "V100 (16 GB)", "V100M16", "Tesla P100-PCIE-16GB", "H100 64GB", "H100 96GB", "NVIDIA H200 NVL", "GH200 (144 GB)", "GB500",
        "A100 (20 GB)", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-PG509-200", "A800", "L40 (48 GB)", "RTX 3090 Ti",
        "Quadro RTX 6000 (24 GB)", "100", "80GB", "SXM", "", "NVIDIA",
    ],
)  # fmt: skip
def test_another_product_is_never_taken_for_one_of_the_catalog(name: str) -> None:
    """Another memory size, form, slice or family is not found, and the error suggests what is near."""
    assert find_accelerator(name) is None
    with pytest.raises(InputError, match=r"did you mean|catalog accelerators"):
        accelerator(name)


def test_prices_are_positive_ordered_and_name_known_accelerators() -> None:
    """A price range is low ≤ typical ≤ high, dated YYYY-MM, for an accelerator of the catalog."""
    for price in gpu_hour_prices():
        assert price.accelerator in accelerators()
        assert 0 < (price.low or price.typical) <= price.typical <= (price.high or price.typical)
        assert len(price.as_of) == 7


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
    shape = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "vocab_size": 99}
    shape["intermediate_size"] = 9
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
