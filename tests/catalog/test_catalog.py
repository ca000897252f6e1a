"""Types of instances with GPUs: each has a source, a date and GPUs; what is not known is not guessed."""

import pytest

from loadfactor.base.errors import InputError
from loadfactor.catalog.accelerators import accelerator, accelerators, find_accelerator
from loadfactor.catalog.instances import find_gpu_sku, find_rented_type, may_have_gpus, rented_types
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
        "V100 (16 GB)", "V100M16", "Tesla P100-PCIE-16GB", "H100 64GB", "H100 96GB", "NVIDIA H200 NVL", "GH200 (96 GB)", "GB500",
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
