"""The age of the software is part of a plan: the same layout with older and newer kernels."""

import pytest

from loadfactor import plan_training
from loadfactor.planner.training.scaling import TrainingPlans


def plan(accelerator: str) -> TrainingPlans:
    answer = plan_training(model="llama-3.1-8b", gpus=(8,), accelerator=accelerator, tokens=1e9).data
    assert isinstance(answer, TrainingPlans)
    return answer


def test_newer_software_is_faster_and_the_one_asked_for_is_the_plan() -> None:
    """Eager PyTorch, software of 2023 and 2024, kernels tuned since."""
    answer = plan("h100-sxm")
    days = answer.days_by_software
    assert days["eager"] > days["modern"] > days["nemo"]
    assert days["modern"] == pytest.approx(answer.plans[0].days)


def test_tpus_have_one_software() -> None:
    """There XLA compiles everything; nothing is compared."""
    assert plan("tpu-v5p").days_by_software == {}
