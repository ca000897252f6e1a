"""What more GPUs or money bring, of each plan: the plan made anew at the enlarged size says the same."""

from pathlib import Path
from typing import Any

import pytest

import loadfactor
from loadfactor.base.units import H_PER_MONTH
from loadfactor.interfaces.render.json import render_json

MEASURED: dict[str, Any] = {"tokens_per_s": 2000.0, "api_price": (0.6,), "price_per_gpu_hour": 2.0}


@pytest.mark.long
def test_more_gpus_and_money_for_training_are_the_run_planned_on_them() -> None:
    """Days and cost of 72 GPUs, and the tokens of 10,000 more, are those of `plan train` for them."""
    asked: dict[str, Any] = {"model": "llama-3.1-8b", "tokens": 1e11, "price_per_gpu_hour": 2.0}
    plan = loadfactor.plan_training(**asked, gpus=(64,), marginal=True).data
    gpus, money = plan.marginal
    larger = loadfactor.plan_training(**asked, gpus=(72,)).data.plans[0]
    now = plan.plans[0]
    assert (gpus.now, gpus.then, gpus.gained) == pytest.approx((now.days, larger.days, now.days - larger.days))
    assert gpus.cost == pytest.approx(larger.cost - now.cost)
    longer = loadfactor.plan_training(**asked | {"tokens": money.then * 1e6}, gpus=(64,)).data.plans[0]
    assert longer.cost == pytest.approx(now.cost + 10_000)
    assert money.cost_per_unit == pytest.approx(now.cost_per_mtok)


@pytest.mark.long
def test_more_gpus_and_money_for_reinforcement_learning_are_its_steps_planned_on_them() -> None:
    """Steps a day and cost of 24 GPUs are those of `plan rl` for them; 10,000 pay for so many steps more."""
    asked: dict[str, Any] = {"model": "qwen3-0.6b", "prompts": 16, "price_per_gpu_hour": 2.0}
    plan = loadfactor.plan_reinforcement(**asked, gpus=16, marginal=True).data
    gpus, money = plan.marginal
    larger = loadfactor.plan_reinforcement(**asked, gpus=24).data
    assert (gpus.now, gpus.then) == pytest.approx((86_400 / plan.step_s, 86_400 / larger.step_s))
    assert gpus.cost == pytest.approx(larger.cost - plan.cost)
    assert money.gained * plan.step_s * 16 * 2 / 3600 == pytest.approx(10_000)


def test_gpus_that_cannot_be_laid_out_bring_nothing_and_say_why() -> None:
    """A batch that 72 GPUs do not divide."""
    fixed: dict[str, Any] = {"model": "llama-3.1-8b", "global_batch": 64, "tp": (1,), "pp": (1,), "cp": (1,)}
    page = loadfactor.plan_training(**fixed, gpus=(64,), marginal=True)
    row = page.data.marginal[0]
    assert (row.gained, row.cost_per_unit) == (0, None)
    assert row.reason
    assert row.reason in render_json(page.document)
    assert "nothing" in repr(page)


@pytest.mark.parametrize("replica_gpus", [1, 4, 16])
def test_more_replicas_carry_the_users_whose_plan_takes_them(replica_gpus: int) -> None:
    """By a throughput that is given: so many users take exactly the larger fleet; GPUs too few for a replica bring nobody."""
    asked = MEASURED | {"gpus": replica_gpus}
    plan = loadfactor.plan_breakeven(**asked, marginal=True).data
    for row in plan.marginal:
        assert row.added_gpus % replica_gpus == 0
        there = loadfactor.plan_breakeven(**asked, users=row.then * (1 - 1e-9)).data
        assert there.demand.replicas * replica_gpus == plan.demand.replicas * replica_gpus + row.added_gpus
        assert bool(row.gained) == bool(row.added_gpus) == (not row.reason)


def test_more_owned_gpus_replace_rented_hours() -> None:
    """The bill of the mix with so many more changes by their cost less the hours not rented; the best mix has nothing to gain."""
    plan = loadfactor.plan_ownership(demand_gpus="20x6,40x6,60x4,80x8", marginal=True).data
    for row in plan.marginal:
        assert row.gained * plan.rent_price_per_used_gpu_hour <= row.cost
        assert row.reason == "to rent these hours costs less"
        assert row.cost == pytest.approx(row.added_gpus * plan.cost_per_available_gpu_hour * H_PER_MONTH)


def test_a_larger_cluster_waits_as_its_own_plan_says(tmp_path: Path) -> None:
    """Hours waited on 24 GPUs beside those on 16 are those of the sizes that `plan size` simulates."""
    jobs = tmp_path / "jobs.csv"
    rows = [f"{900 * i},{(1, 2, 4, 8)[i % 4]},{3000 + 700 * (i % 7)}" for i in range(200)]
    jobs.write_text("submit_s,gpus,duration_s\n" + "\n".join(rows))
    asked: dict[str, Any] = {"trace": jobs, "gpus": 16, "price_per_gpu_hour": 2.0, "delay_cost": 3.0}
    row = loadfactor.plan_size(**asked, marginal=True).data.marginal[0]
    sizes = {p.gpus: p for p in loadfactor.plan_size(**asked, sizes=(16, 24)).data.sizes}
    waited = [sizes[gpus].delay_cost_per_hour / 3.0 * H_PER_MONTH for gpus in (16, 24)]
    assert (row.now, row.then) == pytest.approx(waited)
    assert row.gained == pytest.approx(waited[0] - waited[1])


@pytest.mark.long
def test_more_serving_gpus_carry_the_users_whom_a_fleet_of_so_many_keeps() -> None:
    """`plan serve` keeps the objective for the users said on the fleet said, and not for 3 % more."""
    service: dict[str, Any] = {"model": "llama-3.1-8b", "price_per_gpu_hour": 2.0}
    plan = loadfactor.plan_serving(**service, users=10_000, marginal=True).data
    each = plan.layout.gpus
    row = plan.marginal[-1]
    assert row.gained > 0
    fixed = service | {"replicas": plan.replicas + row.added_gpus // each, "gpus_per_replica": each}
    assert loadfactor.plan_serving(**fixed, users=row.then).data.slo.kept
    assert not loadfactor.plan_serving(**fixed, users=row.then * 1.03).data.slo.kept
