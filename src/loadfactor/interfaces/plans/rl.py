"""Page of a plan of reinforcement learning: a step and its parts, which part waits, both halves' layouts, and other ways."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from loadfactor.base.errors import InputError
from loadfactor.base.units import BYTES_PER_GB, BYTES_PER_MIB, S_PER_DAY
from loadfactor.catalog.accelerators import accelerator
from loadfactor.catalog.constants import read_framework_factors
from loadfactor.catalog.engines import read_engine_constants
from loadfactor.catalog.models import read_network
from loadfactor.catalog.prices import ChosenPrice, find_price
from loadfactor.interfaces.charts import Chart, Series
from loadfactor.interfaces.document import Assumption, Document, Section
from loadfactor.interfaces.formats import about_money, counted, duration, money, number, percent, short
from loadfactor.interfaces.functions import make_function
from loadfactor.interfaces.plans.inputs import list_moved, state_price
from loadfactor.interfaces.plans.marginal import count_node_gpus, draw_marginal
from loadfactor.interfaces.plans.train import list_survival, say_layout, write_layout, write_risk
from loadfactor.interfaces.tables import col, table
from loadfactor.planner.hardware.distance import MovedConstant
from loadfactor.planner.reinforcement.calibration import HALVES, RlCalibration, read_measured
from loadfactor.planner.reinforcement.request import RlRequest
from loadfactor.planner.reinforcement.responses import ResponseLengths, read_lengths
from loadfactor.planner.reinforcement.rl_plan import (
    COLOCATED_SHARE,
    PER_COST,
    RlPlan,
    RlQuestion,
    RlWay,
    calibrate,
    describe_lengths,
    plan_more_steps,
    plan_rl,
)
from loadfactor.planner.training.distance import find_distance, name_network_kind
from loadfactor.planner.training.scaling import TrainingFacts

LOG_BYTES = 256 * BYTES_PER_MIB
MEANINGS = {
    "rollouts_s": "responses at full batches",
    "longest_responses_s": "beyond that, until the longest of them is done",
    "rewards_s": "a judge on the GPUs of rollouts, and the last answers of those that work rewards out",
    "forward_passes_s": "probabilities of the responses (--forwards, --critic)",
    "updates_s": "forward, backward, optimizer",
    "switching_s": "new weights to the engine; colocated, states to the host and back where they have no room",
}


def build_document(request: RlRequest) -> Document:
    """The page of a request. Raises InputError for a name nobody knows and for what cannot be."""
    card = accelerator(request.accelerator)
    price = find_price(card.id, request.price_per_gpu_hour)
    question = RlQuestion(
        request,
        TrainingFacts(read_network(request.model), card, None, price),
        read_engine_constants(card, request.engine),
        _read_lengths(request),
        read_network(request.reward_model) if request.reward_model else None,
    )
    if request.measured:
        question = calibrate(question, _read_measured(request.measured))
    plan = plan_rl(question)
    if request.marginal:
        plan = replace(plan, marginal=plan_more_steps(question, plan, count_node_gpus(card.id)))
    return Document(
        headline=_write_headline(plan, card.name),
        sections=(
            _draw_step(plan),
            _draw_run(plan),
            *draw_marginal(plan.marginal, plan.currency, ""),
            *((_draw_calibration(plan.calibration),) if plan.calibration else ()),
            _draw_halves(plan),
            _draw_ways(plan),
        ),
        assumptions=tuple(_list_assumptions(request, plan, price)),
        notes=tuple(_list_notes(plan)),
        data=plan,
    )


plan_reinforcement = make_function(
    "plan_reinforcement", RlRequest, build_document, "The answer of `loadfactor plan rl` as a page."
)


def _read_lengths(request: RlRequest) -> ResponseLengths:
    if request.trace is None:
        return describe_lengths(request)
    from loadfactor.sources.public_traces.request_traces import read_requests

    chunks = list(read_requests(request.trace))
    if not chunks:
        raise InputError(f"{request.trace} has no request; give --response-tokens in place of --trace")
    return read_lengths(
        np.concatenate([chunk.prompt_tokens for chunk in chunks]),
        np.concatenate([chunk.output_tokens for chunk in chunks]),
    )


def _read_measured(words: Sequence[str]) -> dict[str, float]:
    """Seconds of each half, as given or as the middle of what a log says of its steps; what trains is all but generation."""
    from loadfactor.sources.base import Input
    from loadfactor.sources.files import read_file
    from loadfactor.sources.training_logs.decoder import read_step_values

    found: dict[str, float] = {}
    for word in words:
        path = Path(word)
        if "=" in word or not path.is_file():
            found |= read_measured((word,))
            continue
        steps = read_step_values(Input(word, [read_file(path, LOG_BYTES)]))
        known = [one for one in steps if "generation_s" in one and "step_s" in one]
        if not known:
            raise InputError(f"{word} says of no step how long it generated; give --measured rollout=212s,train=140s")
        beside = ("generation_s", "evaluation_s", "checkpoint_s")
        found["rollout"] = float(np.median([one["generation_s"] for one in known]))
        found["train"] = float(np.median([one["step_s"] - sum(one.get(n, 0.0) for n in beside) for one in known]))
    return found


def _draw_calibration(report: RlCalibration) -> Section:
    """The measured halves beside what was predicted of them, and what the framework's factor became."""
    halves = table(
        report.halves,
        col("half", "half"),
        col("measured", "measured_s", "duration"),
        col("predicted before", "before_s", "duration"),
        col("after", "after_s", "duration"),
        col("four of five, before", lambda h: f"{percent(h.range_before[0])} to {percent(h.range_before[1])}"),
        col("after", lambda h: f"{percent(h.range_after[0])} to {percent(h.range_after[1])}"),
        title="The measured step",
        note="Taken to be of the way that the plan would choose by itself; fix it where yours was another.",
    )
    factor = MovedConstant("framework_factor", report.factor_before, report.factor_after)
    rollouts, training = (percent(report.seconds_factors[name]) for name in HALVES)
    own = f"With what is each half's own, rollouts take {rollouts} and training {training} of what was predicted."
    return Section("What a measured step changed", tables=(halves, list_moved((factor,), own)))


def say_way(way: RlWay) -> str:
    """A way in words.

    >>> from types import SimpleNamespace
    >>> say_way(SimpleNamespace(placement="apart", staleness=1, partial_rollouts=True))
    'apart, 1 update behind, responses go on'
    """
    if not way.staleness:
        return f"{way.placement}, synchronous"
    behind = f"{way.placement}, {counted(way.staleness, 'update')} behind"
    return f"{behind}, responses go on" if way.partial_rollouts else behind


def _say_gpus(way: RlWay) -> str:
    if way.placement == "colocated":
        return "rollouts and training in turn on all GPUs"
    return f"{way.rollout.gpus:,} GPUs of rollouts and {way.updates.gpus:,} of training"


def _write_headline(p: RlPlan, card: str) -> str:
    way = p.best
    cost = p.cost_per_1000_responses
    paid = "" if cost is None else f", {money(cost, p.currency)} for {PER_COST:,} responses"
    waits = f"{way.waits}, and {percent(way.wait_share)} of all GPU time is waiting"
    return (
        f"A step of {p.responses:,} responses of {p.model} on {p.gpus:,} × {card} takes about {duration(p.step_s)}{paid}, "
        f"{say_way(way)}, with {_say_gpus(way)}; {waits}."
    )


def _draw_step(p: RlPlan) -> Section:
    way = p.best
    parts = [(name, seconds) for name, seconds in way.parts.items() if seconds > 0]
    columns = (
        col("part", lambda r: _name_part(r[0])),
        col("seconds", style="duration"),
        col("of the step", lambda r: r[1] / p.step_s, "percent"),
    )
    meaning = col("what it is", lambda r: MEANINGS.get(r[0], "all of them, one after another"))
    if way.staleness:
        note = "Rollouts and training go on at the same time: the step is as long as the longer, or as staleness lets it be."
        return Section("One step", tables=(table(parts, *columns, meaning, note=note),))
    names, seconds = zip(*parts, strict=True)
    chart = Chart(
        f"Where {duration(p.step_s)} of a step go (s)",
        "waterfall",
        [_name_part(name) for name in names],
        (Series("seconds", seconds),),
        x_label="seconds",
        total="step",
    )
    return Section("One step", charts=(chart,), tables=(table([*parts, ("step", p.step_s)], *columns, meaning),))


def _name_part(name: str) -> str:
    return name.removesuffix("_s").replace("_", " ")


def _draw_run(p: RlPlan) -> Section:
    low, high = (p.step_s * factor for factor in p.step_range)
    rows = [
        ("responses", f"{number(p.response_mean)} tokens", f"99 of 100 within {number(p.response_p99)}"),
        ("longest of a step", f"{number(p.response_longest)} tokens", f"{percent(p.cut_share)} are cut"),
        ("responses/s", number(p.responses_per_s), ""),
        ("tokens/s per GPU", number(p.tokens_per_s_per_gpu), "prompts and responses that are trained on"),
        ("four of five steps", f"{duration(low)} to {duration(high)}", "validate rl"),
        ("step", about_money(p.cost_per_step, p.currency), "all GPUs, those that wait as well"),
        ("1,000 responses", about_money(p.cost_per_1000_responses, p.currency), ""),
        *list_survival(p.checkpoints, p.spare_nodes),
        (
            "the run",
            duration(p.days * S_PER_DAY),
            f"{counted(p.steps, 'step')}, {duration(p.steady_days * S_PER_DAY)} without failures",
        ),
        ("cost", about_money(p.cost, p.currency), ""),
    ]
    return Section("The run", tables=(table(rows, "what", col("value", style="number"), "meaning"),))


def _draw_halves(p: RlPlan) -> Section:
    rollout, updates = p.best.rollout, p.best.updates
    engine = rollout.replica.engine
    rows = [
        (
            "rollouts",
            rollout.gpus,
            f"{counted(rollout.replicas, 'replica')} of {rollout.layout}",
            f"{engine.engine}, {rollout.replica.precision.name}; at most {rollout.slots:,} sequences each",
            p.best.rollout_wait_share,
        ),
        (
            "training",
            updates.gpus,
            write_layout(updates.best.layout),
            f"{say_layout(updates.best.layout)}; {counted(updates.updates, 'update')} of {updates.job.global_batch:,} packed "
            f"sequences of {updates.job.seq:,}; out of memory with a risk of {write_risk(updates.best)}",
            p.best.training_wait_share,
        ),
    ]
    halves = table(rows, "half", col("GPUs", style="number"), "layout", "in words", col("waits", style="percent"))
    return Section("Both halves", tables=(halves,))


def _draw_ways(p: RlPlan) -> Section:
    ways = sorted((p.best, *p.others), key=lambda way: way.step_s)
    listed = table(
        ways,
        col("way", say_way),
        col("rollout GPUs", "rollout.gpus", "number"),
        col("training GPUs", "updates.gpus", "number"),
        col("step", "step_s", "duration"),
        col("of this step", lambda way: way.step_s / p.step_s, "percent"),
        col("waiting", "wait_share", "percent"),
        col("which part waits", "waits"),
        note="Each with its own best division and layouts. What a stale or interrupted rollout costs in learning is not in it.",
    )
    return Section("Other ways on the same GPUs", tables=(listed,))


def _list_assumptions(r: RlRequest, p: RlPlan, price: ChosenPrice | None) -> Iterator[Assumption]:
    yield state_price("price", price)
    if r.trace is not None:
        yield Assumption("responses", f"{number(p.response_mean)} tokens on average", str(r.trace))
    else:
        words = f"{r.response_tokens:g} tokens on average, cut at {r.response_most:,}"
        spread = "99 of 100 as given" if r.response_p99 else "log-normal, deviation as large as the mean"
        yield Assumption("responses", f"{words}; {spread}", "--response-tokens, --response-p99, --response-most")
    yield Assumption("step", f"{r.prompts:,} prompts, {r.responses:,} responses each", "--prompts, --responses")
    yield Assumption(
        "passes before training", ", ".join(r.forwards) or "none", "--forwards; --critic trains one more network"
    )
    job = p.best.updates.job
    factor = read_framework_factors()[name_network_kind(job)]
    known = f"{p.best.framework_factor:.3g} times as long as each half alone"
    source = (
        "--framework-factor"
        if r.framework_factor
        else f"fitted to steps of one lab, {percent(factor.left_out_error)} off on networks left out"
    )
    yield Assumption("the framework", known, source)
    yield Assumption(
        "training", f"{find_distance(job, p.best.updates.gpus)}: {job.software.framework}", "--framework, --traits"
    )
    bandwidth = (
        f"{job.machine.fabric.scale_out_bytes_per_s / BYTES_PER_GB:g} GB/s per GPU; all weights pass it once a step"
    )
    yield Assumption("network", bandwidth, "catalog, or --network-gb-per-s")
    if p.best.placement == "colocated":
        yield Assumption("memory of the engine", percent(COLOCATED_SHARE), "as recipes of NeMo RL and verl set it")


def _list_notes(p: RlPlan) -> Iterator[str]:
    way = p.best
    tail = way.parts["longest_responses_s"]
    if tail > 0 and not way.staleness:
        yield (
            f"The longest responses take {duration(tail)} that full batches would not: what partial rollouts, a lower "
            f"--response-most than {short(p.lengths.most)} tokens, or staleness could save at most."
        )
    ahead = [one for one in p.others if one.staleness > way.staleness and one.step_s < p.step_s]
    if ahead:
        best = min(ahead, key=lambda one: one.step_s)
        yield f"{say_way(best).capitalize()}, a step would take {duration(best.step_s)}, {percent(best.step_s / p.step_s)} of this."
    idle = p.gpus - way.gpus
    if idle:
        yield f"{counted(idle, 'GPU')} find no place in either half, and are paid for."
