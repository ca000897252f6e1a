"""What a fine-tuning project costs: parts by hand, and a run that works on its padding, too."""

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


def plan(**asked: Any) -> TrainingPlans:
    answer = plan_training(**asked).data
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
