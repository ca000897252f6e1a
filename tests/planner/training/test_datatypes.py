"""Datatypes as frameworks name them: their products run at one peak, their scales cost more the finer they are."""

from typing import Any

import pytest

from loadfactor import plan_training
from loadfactor.base.errors import InputError
from loadfactor.planner.training.scaling import TrainingPlans

RUN: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpus": (8,),
    "tokens": 1e9,
    "seq": 8192,
    "global_batch": 128,
    "tp": (1,),
    "pp": (1,),
    "micro_batch": (1,),
    "recompute": ("full",),
}


def step_terms(accelerator: str, datatype: str) -> Any:
    """Seconds of the best step by term."""
    answer = plan_training(**RUN, accelerator=accelerator, datatype=datatype).data
    assert isinstance(answer, TrainingPlans)
    return answer.plans[0].best.terms


def test_a_scale_for_every_row_slows_products() -> None:
    """By torchao's benchmarks they run at 0.7 of the speed with one scale a tensor."""
    tensor, row = (step_terms("h100-sxm", name)["matmul_s"] for name in ("fp8", "fp8-rowwise"))
    assert row == pytest.approx(tensor / 0.7, rel=0.02)


def test_scales_of_blocks_are_found_in_a_pass_of_their_own() -> None:
    """MX computes at the peak of 8 bits; its casts move more bytes than those with one scale a tensor."""
    tensor, block = (step_terms("b200-sxm", name) for name in ("fp8", "mxfp8"))
    assert block["matmul_s"] == pytest.approx(tensor["matmul_s"])
    assert block["elementwise_s"] > tensor["elementwise_s"]


def test_nvfp4_is_fp4() -> None:
    """Every product of 4 bits has a scale for each block, whatever it is called."""
    assert step_terms("b200-sxm", "nvfp4") == step_terms("b200-sxm", "fp4")


def test_a_gpu_without_units_for_it_is_refused() -> None:
    """An A100 has none for 8-bit floats."""
    with pytest.raises(InputError, match="a100-sxm has no known fp8 peak"):
        step_terms("a100-sxm", "mxfp8")
