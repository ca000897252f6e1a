"""What more GPUs or money bring reinforcement learning: the steps of a day, planned anew on more GPUs, or more steps of the run."""

from collections.abc import Iterator

from loadfactor.base.errors import PlanError
from loadfactor.base.units import S_PER_DAY
from loadfactor.planner.hardware.marginal import NEXT_MONEY, Enlargement, Marginal, list_enlargements
from loadfactor.planner.reinforcement.rl_plan import RlPlan, RlQuestion, plan_rl


def plan_more_steps(question: RlQuestion, plan: RlPlan, node_gpus: int) -> tuple[Marginal, ...]:
    """Steps a day that more GPUs bring beside `plan`, at the cost of the whole run, and steps that more money adds."""
    steps = list_enlargements(node_gpus, None, plan.currency)
    return (*(_add_gpus(question, plan, step) for step in steps), *_add_money(plan))


def _add_gpus(question: RlQuestion, plan: RlPlan, more: Enlargement) -> Marginal:
    now = S_PER_DAY / plan.step_s
    try:
        larger = plan_rl(question.fit(plan.gpus + more.gpus))
    except PlanError as refused:
        return Marginal(more.name, more.gpus, "steps a day", now, now, 0.0, None, reason=str(refused))
    then = S_PER_DAY / larger.step_s
    cost = None if larger.cost is None or plan.cost is None else larger.cost - plan.cost
    reason = "" if then > now else f"no division of {larger.gpus:,} GPUs is faster"
    return Marginal(more.name, more.gpus, "steps a day", now, then, max(0.0, then - now), cost, then / now, reason)


def _add_money(plan: RlPlan) -> Iterator[Marginal]:
    if plan.cost_per_step is None:
        return
    more = NEXT_MONEY / plan.cost_per_step
    name = f"{NEXT_MONEY:,.0f} {plan.currency}"
    yield Marginal(name, 0, "steps", plan.steps, plan.steps + more, more, NEXT_MONEY, 1.0)
