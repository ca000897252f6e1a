"""Types of instances with GPUs: each has a source, a date and GPUs; what is not known is not guessed."""

import pytest

from loadfactor.catalog.accelerators import accelerators
from loadfactor.catalog.instances import find_gpu_sku, find_rented_type, may_have_gpus, rented_types

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
