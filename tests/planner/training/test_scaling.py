"""What a project costs, part by part; the age of the software and the datatypes that a request names."""

from typing import Any

import pytest

from loadfactor import plan_training
from loadfactor.base.errors import InputError
from loadfactor.planner.training.scaling import TrainingPlans
from loadfactor.planner.training.training_plan import ProjectNeeds, cost_project

RUN: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "gpus": (8,),
    "tokens": 1e9,
    "seq": 4096,
    "global_batch": 32,
    "method": "lora",
    "price_per_gpu_hour": 2.0,
}


def plan(**given: Any) -> TrainingPlans:
    answer = plan_training(**given).data
    assert isinstance(answer, TrainingPlans)
    return answer


def test_parts_sum_to_the_project() -> None:
    """Ten runs at $2: a fifth padding, 30 % retries, 50 GPU-hours of evaluation, $300 and $5,000, against a run's own hours."""
    run = plan(**RUN).plans[0]
    project = cost_project(run, ProjectNeeds(10, 30, 20, 50, 300, 5_000))
    one = run.gpu_hours * 2
    assert project.costs is not None
    assert project.costs == pytest.approx(
        {"runs": 8 * one, "padding": 2 * one, "retries": 3 * one, "evaluation": 100, "storage": 300, "staff": 5_000}
    )
    assert project.cost == pytest.approx(sum(project.costs.values()))


def test_only_runs_have_a_range() -> None:
    """Evaluation, storage and staff are as given: the range is that of the time of runs, padding and retries."""
    run = plan(**RUN).plans[0]
    project = cost_project(run, ProjectNeeds(10, 30, 20, 50, 300, 5_000))
    low, high = run.time_range
    uncertain = 13 * run.gpu_hours * 2
    assert project.cost_range == pytest.approx((5_400 + low * uncertain, 5_400 + high * uncertain))


def test_padding_makes_runs_longer() -> None:
    """Of four tokens one is padding: a run of as many real tokens works a third more, and that third is padding's cost."""
    plain, padded = plan(**RUN), plan(**RUN, padding_percent=25)
    assert padded.plans[0].gpu_hours == pytest.approx(plain.plans[0].gpu_hours * 4 / 3)
    costs = padded.projects[0].costs
    assert costs is not None
    assert costs["runs"] == pytest.approx(plain.plans[0].cost)
    assert costs["padding"] == pytest.approx(costs["runs"] / 3)


def test_a_project_of_one_run_costs_what_the_run_costs() -> None:
    """Nothing is added that was not given."""
    answer = plan(**RUN)
    assert answer.projects[0].cost == pytest.approx(answer.plans[0].cost)
    assert answer.projects[0].cost_range == pytest.approx(answer.plans[0].cost_range)


@pytest.mark.parametrize(
    "said", [{"padding_percent": 100}, {"retry_percent": -1}, {"runs": 0}, {"staff_cost": float("nan")}]
)
def test_absurd_needs_are_refused(said: dict[str, Any]) -> None:
    """A run of nothing but padding, fewer than no retries, no run, no number."""
    with pytest.raises(InputError):
        plan(**RUN, **said)


def plan_on(accelerator: str) -> TrainingPlans:
    answer = plan_training(model="llama-3.1-8b", gpus=(8,), accelerator=accelerator, tokens=1e9).data
    assert isinstance(answer, TrainingPlans)
    return answer


def test_newer_software_is_faster_and_the_one_asked_for_is_the_plan() -> None:
    """Eager PyTorch, software of 2023 and 2024, kernels tuned since."""
    answer = plan_on("h100-sxm")
    days = answer.days_by_software
    assert days["eager"] > days["modern"] > days["nemo"]
    assert days["modern"] == pytest.approx(answer.plans[0].days)


def test_tpus_have_one_software() -> None:
    """There XLA compiles everything; nothing is compared."""
    assert plan_on("tpu-v5p").days_by_software == {}


ONE_STEP: dict[str, Any] = {
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
    answer = plan_training(**ONE_STEP, accelerator=accelerator, datatype=datatype).data
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
