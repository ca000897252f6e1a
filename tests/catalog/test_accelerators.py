"""The catalog holds facts that can be believed: positive, sourced, dated, found under the names drivers use."""

import pytest

from loadfactor.base.errors import InputError
from loadfactor.catalog.accelerators import accelerator, accelerators, find_accelerator
from loadfactor.catalog.prices import gpu_hour_prices


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
