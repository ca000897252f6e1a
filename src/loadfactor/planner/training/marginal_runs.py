"""What more GPUs or money bring a training run: the run planned anew on more GPUs, or for the tokens that the money pays for."""

from collections.abc import Iterator
from dataclasses import replace

from loadfactor.base.errors import PlanError
from loadfactor.base.units import TOKENS_PER_MTOK
from loadfactor.planner.hardware.marginal import NEXT_MONEY, Enlargement, Marginal, list_enlargements
from loadfactor.planner.training.request import TrainingRequest
from loadfactor.planner.training.scaling import TrainingFacts, plan_runs
from loadfactor.planner.training.training_plan import TrainingPlan


def plan_more(
    request: TrainingRequest, facts: TrainingFacts, plan: TrainingPlan, node_gpus: int
) -> tuple[Marginal, ...]:
    """Days that more GPUs save beside `plan`, and tokens that more money adds on the same GPUs."""
    currency = plan.currency
    steps = list_enlargements(node_gpus, None, currency)
    return (*(_add_gpus(request, facts, plan, step) for step in steps), *_add_money(request, facts, plan))


def _plan_anew(request: TrainingRequest, facts: TrainingFacts, gpus: int) -> TrainingPlan:
    """The plan on so many GPUs; a measured run and weak scaling are of the first number requested. PlanError where it cannot be."""
    first = (request.gpus[0],) if request.measured or request.scaling == "weak" else ()
    numbers = tuple(dict.fromkeys((*first, gpus)))
    answer = plan_runs(replace(request, gpus=numbers), facts)
    found = next((plan for plan in answer.plans if plan.gpus == gpus), None)
    if found is None:
        raise PlanError(answer.refused[-1].reason)
    return found


def _add_gpus(request: TrainingRequest, facts: TrainingFacts, plan: TrainingPlan, more: Enlargement) -> Marginal:
    gpus = plan.gpus + more.gpus
    try:
        larger = _plan_anew(request, facts, gpus)
    except PlanError as refused:
        return Marginal(more.name, more.gpus, "days earlier", plan.days, plan.days, 0.0, None, reason=str(refused))
    cost = None if larger.cost is None or plan.cost is None else larger.cost - plan.cost
    return Marginal(
        more.name,
        more.gpus,
        "days earlier",
        plan.days,
        larger.days,
        max(0.0, plan.days - larger.days),
        cost,
        larger.tokens_per_s / plan.tokens_per_s,
        "" if larger.days < plan.days else f"{gpus:,} GPUs cannot be laid out to be faster",
    )


def _add_money(request: TrainingRequest, facts: TrainingFacts, plan: TrainingPlan) -> Iterator[Marginal]:
    if plan.cost is None:
        return
    tokens = request.tokens * (1 + NEXT_MONEY / plan.cost)
    longer = _plan_anew(replace(request, tokens=tokens), facts, plan.gpus)
    assert longer.cost is not None
    name = f"{NEXT_MONEY:,.0f} {plan.currency}"
    now, then = request.tokens / TOKENS_PER_MTOK, tokens / TOKENS_PER_MTOK
    yield Marginal(name, 0, "M tokens", now, then, then - now, longer.cost - plan.cost, 1.0)
