"""The plan of reinforcement learning: rollouts and updates on the same GPUs in turn, or each on its own, and who waits for whom.

Synchronous: rollouts, their rewards, forward passes, updates and the new weights' way to the rollouts follow each other. With a
staleness of k, rollouts may begin while k updates are still to come, on GPUs of their own. Where responses are waited for before
weights change, rollouts stop once in k steps; where they go on with new weights (partial rollouts) they never do, and k + 1 steps
may be under way:

    step = max(updates, rollouts of k steps without a stop ÷ k)
    step = max(updates, rollouts at full batches, (rollouts + updates) ÷ (k + 1))        partial rollouts
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from loadfactor.base.errors import PlanError
from loadfactor.base.units import S_PER_DAY, S_PER_HOUR
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.constants import FrameworkFactor, read_framework_factors
from loadfactor.catalog.engines import EngineConstants
from loadfactor.catalog.models import Network
from loadfactor.planner.hardware.checkpoint import CheckpointPlan
from loadfactor.planner.hardware.marginal import NEXT_MONEY, Enlargement, Marginal, list_enlargements
from loadfactor.planner.reinforcement.calibration import RlCalibration, weigh_step
from loadfactor.planner.reinforcement.request import Placement, RlRequest
from loadfactor.planner.reinforcement.responses import ResponseLengths, fit_lengths
from loadfactor.planner.reinforcement.rollout import Rollout, time_rollout
from loadfactor.planner.reinforcement.update import Updates, describe_updates, plan_updates
from loadfactor.planner.serving.calibration import read_ranges
from loadfactor.planner.serving.latency import prompt_time
from loadfactor.planner.serving.layouts import (
    BOARD_GPUS,
    FixedLayout,
    ReplicaLayout,
    choose_precision,
    explain_no_layout,
    list_layouts,
    weight_bytes,
)
from loadfactor.planner.serving.step import Replica, most_sequences
from loadfactor.planner.training.distance import find_range, name_network_kind
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.scaling import TrainingFacts

WIDE = (2, 4)  # domains over which a rollout replica may lie
COLOCATED_SHARE = 0.6
"""Of the memory, for an engine beside a trainer on the same GPU, as the recipes of NeMo RL and verl set it."""
PER_COST = 1000  # responses, of which the cost is stated
PARTS = ("rollouts_s", "longest_responses_s", "rewards_s", "forward_passes_s", "updates_s", "switching_s")


@dataclass(frozen=True)
class RlWay:
    """A way to run both halves: where, how far apart in time, and the seconds of each part for a step's responses.

    `parts`: rollouts at full batches, what the longest responses take beyond, rewards, forward passes, updates, and switching
    (weights to the rollouts, states to the host and back). Synchronous, they add up to `step_s`.
    """

    placement: Placement
    staleness: int
    partial_rollouts: bool
    rollout: Rollout
    updates: Updates
    parts: Mapping[str, float]
    step_s: float
    framework_factor: float
    """On the seconds of both halves alone, as `rollout` and `updates` have them, before a measured step moved each."""

    @property
    def rolled_s(self) -> float:
        """Seconds of rollouts, until the longest response is done."""
        return self.parts["rollouts_s"] + self.parts["longest_responses_s"]

    @property
    def trained_s(self) -> float:
        """Seconds of forward passes and updates."""
        return self.parts["forward_passes_s"] + self.parts["updates_s"]

    @property
    def gpus(self) -> int:
        """GPUs that work: of both halves, which may be the same."""
        return max(self.rollout.gpus, self.updates.gpus) if self.placement == "colocated" else self._gpus_of_both

    @property
    def _gpus_of_both(self) -> int:
        return self.rollout.gpus + self.updates.gpus

    @property
    def rollout_wait_share(self) -> float:
        """Share of a step in which GPUs of rollouts do not generate at full batches; colocated, nor train."""
        return 1 - self._of_step("rollouts_s") - (self.trained_share if self.placement == "colocated" else 0.0)

    @property
    def training_wait_share(self) -> float:
        """Share of a step in which GPUs of training do not train; colocated, the same as of rollouts."""
        return self.rollout_wait_share if self.placement == "colocated" else 1 - self.trained_share

    @property
    def trained_share(self) -> float:
        return self._of_step("forward_passes_s") + self._of_step("updates_s")

    @property
    def wait_share(self) -> float:
        """Share of all GPU time in which GPUs wait for something."""
        if self.placement == "colocated":
            return self.rollout_wait_share
        waited = self.rollout.gpus * self.rollout_wait_share + self.updates.gpus * self.training_wait_share
        return waited / self._gpus_of_both

    @property
    def waits(self) -> str:
        """Which part waits for what, most."""
        if self.placement == "colocated":
            waited = {
                "the longest responses": self.parts["longest_responses_s"],
                "rewards": self.parts["rewards_s"],
                "the switch": self.parts["switching_s"],
            }
            return f"all GPUs wait for {max(waited, key=lambda name: waited[name])}"
        tail = 0.0 if self.partial_rollouts else self._of_step("longest_responses_s")
        lost = {
            "training waits for rollouts": self.updates.gpus * self.training_wait_share,
            "rollouts wait for training": self.rollout.gpus * (self.rollout_wait_share - tail),
            "rollouts wait for their longest responses": self.rollout.gpus * tail,
        }
        return max(lost, key=lambda name: lost[name])

    def _of_step(self, part: str) -> float:
        return self.parts[part] / self.step_s


@dataclass(frozen=True)
class RlPlan:
    """The best way on the GPUs, and the others; what `plan rl` writes as JSON."""

    model: str
    accelerator: str
    gpus: int
    best: RlWay
    others: Sequence[RlWay]
    lengths: ResponseLengths = field(repr=False)
    responses: int
    steps: int
    step_range: tuple[float, float]
    """Factors on the seconds of a step, as both halves are off alike."""
    checkpoints: CheckpointPlan
    """Of all GPUs: a failure of any of them stops the step."""
    spare_nodes: int
    price_per_gpu_hour: float | None
    currency: str
    marginal: Sequence[Marginal] = ()
    calibration: RlCalibration | None = None

    @property
    def step_s(self) -> float:
        return self.best.step_s

    @property
    def goodput_share(self) -> float:
        """Share of the run that is kept work: not lost to failures, restarts and checkpoints."""
        return self.checkpoints.efficiency_share

    @property
    def steady_days(self) -> float:
        """Days of all steps, without failures."""
        return self.steps * self.step_s / S_PER_DAY

    @property
    def days(self) -> float:
        """Days of all steps, failures and checkpoints included."""
        return self.steady_days / self.goodput_share

    @property
    def responses_per_s(self) -> float:
        return self.responses / self.step_s

    @property
    def tokens_per_s_per_gpu(self) -> float:
        """Tokens of prompts and responses that are trained on, a second and GPU."""
        return self.responses * (self.lengths.prompt + self.lengths.mean) / (self.step_s * self.gpus)

    @property
    def response_mean(self) -> float:
        return self.lengths.mean

    @property
    def response_p99(self) -> float:
        return self.lengths.p99

    @property
    def response_longest(self) -> float:
        """Tokens of the longest of a step."""
        return self.lengths.find_longest(self.responses)

    @property
    def cut_share(self) -> float:
        """Responses that are cut."""
        return self.lengths.cut_share

    @property
    def cost_per_step(self) -> float | None:
        price = self.price_per_gpu_hour
        return None if price is None else self.gpus * self.step_s / S_PER_HOUR * price

    @property
    def cost_per_1000_responses(self) -> float | None:
        return None if self.cost_per_step is None else self.cost_per_step / self.responses * PER_COST

    @property
    def cost(self) -> float | None:
        """Cost of the run: all steps, failures and checkpoints included."""
        return None if self.cost_per_step is None else self.cost_per_step * self.steps / self.goodput_share


@dataclass(frozen=True)
class RlQuestion:
    """A request with what the catalog knows of its names; `judge` is the network that judges responses."""

    request: RlRequest
    facts: TrainingFacts
    engine: EngineConstants
    lengths: ResponseLengths
    judge: Network | None = None
    calibration: RlCalibration | None = None

    def fit(self, gpus: int) -> "RlQuestion":
        """The same on so many GPUs."""
        return replace(self, request=replace(self.request, gpus=gpus))

    @cached_property
    def job(self) -> TrainingJob:
        return describe_updates(self.request, self.facts, self.lengths)


def describe_lengths(request: RlRequest) -> ResponseLengths:
    """The lengths of responses that the options say."""
    return fit_lengths(request.prompt_tokens, request.response_tokens, request.response_most, request.response_p99)


def find_way(question: RlQuestion) -> RlWay:
    """The way with the shortest step, of those that are requested. PlanError where none can be."""
    request = question.request
    return _Ways(question).find_best(request.staleness, request.partial_rollouts, request.placement)


def calibrate(question: RlQuestion, measured: Mapping[str, float]) -> RlQuestion:
    """The question as it is known after a measured step (seconds by half) of the way that it would choose by itself."""
    way = find_way(question)
    rollouts, updates = find_half_ranges(way)
    return replace(
        question,
        calibration=weigh_step(
            measured,
            {"rollout": way.rolled_s, "train": way.trained_s},
            {"rollout": rollouts, "train": updates},
            find_factor(question.request, way.updates.job),
        ),
    )


def plan_rl(question: RlQuestion) -> RlPlan:
    """The way that `find_way` finds, and what else could be done with the GPUs. PlanError where none can be."""
    request, price = question.request, question.facts.price
    ways = _Ways(question)
    best = ways.find_best(request.staleness, request.partial_rollouts, request.placement)
    others = []
    for placement, staleness, partial in list_ways(request):
        try:
            others.append(ways.find_best(staleness, partial, placement))
        except PlanError:
            continue
    return RlPlan(
        question.facts.network.name,
        question.facts.accelerator.id,
        request.gpus,
        best,
        [way for way in others if _name(way) != _name(best)],
        question.lengths,
        request.whole_batch,
        request.steps,
        find_step_range(best, request.framework_factor, question.calibration),
        *request.reliability.plan(request.gpus),
        price.per_gpu_hour if price else None,
        price.currency if price else "USD",
        calibration=question.calibration,
    )


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


def list_ways(request: RlRequest) -> Sequence[tuple[Placement, int, bool]]:
    """The ways that a plan compares, whatever was requested: by placement, staleness, and whether responses go on."""
    ahead = max(1, request.staleness)
    return (
        ("colocated", 0, False),
        ("apart", 0, False),
        ("apart", ahead, False),
        ("apart", ahead, True),
        ("apart", 8 * ahead, True),
    )


def _name(way: RlWay) -> tuple[str, int, bool]:
    return way.placement, way.staleness, way.partial_rollouts


def find_factor(request: RlRequest, job: TrainingJob) -> FrameworkFactor:
    """The framework's factor: the one of the request, which is known, or the fitted one of the kind of network."""
    given = request.framework_factor
    return FrameworkFactor(given, (1.0, 1.0), 0.0) if given else read_framework_factors()[name_network_kind(job)]


def find_half_ranges(way: RlWay) -> tuple[tuple[float, float], tuple[float, float]]:
    """Factors on rollouts and on training, between which four of five lie of each model alone."""
    rollouts = read_ranges(way.rollout.replica.engine, way.rollout.replica.network)["tpot"]
    return rollouts, find_range(way.updates.job, way.updates.gpus)


def find_step_range(
    way: RlWay, framework_factor: float | None, calibration: RlCalibration | None = None
) -> tuple[float, float]:
    """Factors on a step between which four of five lie.

    Where the framework's own factor was given or a step was measured, both halves are off by what four of five of their kind are
    off at most, to the same side.
    """
    if framework_factor is None and calibration is None:
        return read_framework_factors()[name_network_kind(way.updates.job)].range
    rollouts, updates = find_half_ranges(way)
    if calibration is not None:
        rollouts, updates = calibration.find_range("rollout", rollouts), calibration.find_range("train", updates)
    rolled, trained = way.rolled_s, way.trained_s
    if way.staleness:  # the longer half is the step
        low, high = rollouts if rolled > trained else updates
        return low, high
    rest = way.step_s - rolled - trained
    low, high = ((rolled * a + trained * b + rest) / way.step_s for a, b in zip(rollouts, updates, strict=True))
    return low, high


def list_sizes(gpus: int) -> list[int]:
    """Numbers of GPUs of a half to look at: all of them, and powers of two and three halves of them below.

    >>> list_sizes(48)
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48]
    """
    found = {gpus} | {n for i in range(gpus.bit_length()) for n in (2**i, 3 * 2**i) if n <= gpus}
    return sorted(found)


class _Ways:
    """Ways of one question, with what they share: updates by GPUs, and rollouts by layout and replicas."""

    def __init__(self, question: RlQuestion) -> None:
        self.q, self.request = question, question.request
        network, card = question.facts.network, question.facts.accelerator
        engine = question.engine
        share = min(engine.memory_for_engine_share, COLOCATED_SHARE)
        self._engines = {"apart": engine, "colocated": replace(engine, memory_for_engine_share=share)}
        self._precision = choose_precision(
            network, self.request.precision or "bf16", None if engine.narrow_cache else 2.0
        )
        self._layouts = self._list_layouts(network, card)
        self._updates: dict[int, Updates | PlanError] = {}
        self._rollouts: dict[tuple[Placement, ReplicaLayout, int, int, int], Rollout] = {}

    def _list_layouts(self, network: Network, card: Accelerator) -> list[ReplicaLayout]:
        """Layouts of a rollout replica: those of a domain, and tensor ranks over several where weights fill half of one."""
        fixed, domain = self.request.rollout_layout, max(card.scale_up_gpus, BOARD_GPUS)
        found = list_layouts(network, card, fixed)
        if not fixed.tp and weight_bytes(network, self._precision) > domain * card.driver_memory_bytes / 2:
            wide = tuple(domain * n for n in WIDE if domain * n <= self.request.gpus)
            found += list_layouts(network, card, replace(fixed, tp=wide)) if wide else []
        if not found:
            raise PlanError(explain_no_layout(network, card, fixed))
        return found

    def find_best(self, staleness: int, partial: bool, placement: Placement | None) -> RlWay:
        """The way with the shortest step. PlanError where none can be, with the reason of the largest half."""
        refused: dict[int, PlanError] = {}
        fixed = "apart" if staleness or self.request.rollout_gpus is not None else placement
        places: tuple[Placement, ...] = ("colocated", "apart")
        found = chain(*(self._list(staleness, partial, p, refused) for p in places if fixed in (None, p)))
        best = min(found, key=lambda way: (way.step_s, way.gpus), default=None)
        if best is None:
            raise refused[max(refused)] if refused else self._explain_no_room()
        return best

    def _explain_no_room(self) -> PlanError:
        facts, longest = self.q.facts, self.q.lengths.prompt + self.q.lengths.most
        return PlanError(
            f"no rollout replica of {facts.network.name} in {self._precision.name} has room for a response of {longest:,.0f} "
            f"tokens on {self.request.gpus:,} × {facts.accelerator.name}; give more GPUs, a narrower --precision or a smaller "
            "--response-most"
        )

    def _list(self, staleness: int, partial: bool, place: Placement, refused: dict[int, PlanError]) -> Iterator[RlWay]:
        """Ways at one place with every division of the GPUs."""
        for training in self._list_training_sizes(place):
            for layout in self._layouts:
                gpus = self.request.gpus - (training if place == "apart" else 0)
                if self.request.rollout_gpus is not None and place == "apart":
                    gpus = self.request.rollout_gpus
                replica = self._make(place, layout)
                if layout.gpus > gpus or replica is None:
                    continue
                try:
                    yield self._time(staleness, partial, place, replica, gpus // layout.gpus, self._update(training))
                except PlanError as error:
                    refused[training] = error

    def _list_training_sizes(self, place: Placement) -> list[int]:
        gpus, fixed = self.request.gpus, self.request.rollout_gpus
        if place == "colocated":
            return list_sizes(gpus)
        if fixed is not None:
            return [gpus - fixed]
        return sorted(set(list_sizes(gpus - 1)) | {gpus - n for n in list_sizes(gpus - 1)}) if gpus > 1 else []

    def _update(self, gpus: int) -> Updates:
        if gpus not in self._updates:
            try:
                self._updates[gpus] = plan_updates(self.request, self.q.job, gpus)
            except PlanError as error:
                self._updates[gpus] = error
        found = self._updates[gpus]
        if isinstance(found, PlanError):
            raise found
        return found

    def _make(self, place: Placement, layout: ReplicaLayout) -> Replica | None:
        """A replica on whose GPUs the longest response fits; None where it does not."""
        facts, lengths = self.q.facts, self.q.lengths
        replica = Replica(facts.network, facts.accelerator, layout, self._precision, self._engines[place])
        return replica if most_sequences(replica, lengths.prompt + lengths.most) >= 1 else None

    def _roll(self, place: Placement, replica: Replica, replicas: int, batches: int, ahead: int) -> Rollout:
        key = place, replica.layout, replicas, batches, ahead
        if key not in self._rollouts:
            r = self.request
            self._rollouts[key] = time_rollout(
                replica, replicas, r.whole_batch, r.responses, self.q.lengths, batches, ahead
            )
        return self._rollouts[key]

    def _time(
        self, staleness: int, partial: bool, place: Placement, replica: Replica, replicas: int, updates: Updates
    ) -> RlWay:
        factor = find_factor(self.request, updates.job).value
        measured = self.q.calibration.seconds_factors if self.q.calibration else {}
        rolling, training = factor * measured.get("rollout", 1.0), factor * measured.get("train", 1.0)
        batches, ahead = (1, staleness) if partial else (max(1, staleness), 0)
        rollout = self._roll(place, replica, replicas, batches, ahead)
        judged_s, rewards_s = self._judge_s(replicas * replica.layout.gpus), self._reward_s()
        switch_s = self._switch_s(place, rollout, updates)
        rolled_s, steady_s = rolling * rollout.rollout_s + judged_s, rolling * rollout.steady_s
        last_s = self.request.reward_s and max(self.request.reward_s, rewards_s - rolled_s)
        trained_s = training * (updates.forwards_s + updates.training_s)
        parts = dict(
            zip(
                PARTS,
                (
                    steady_s,
                    rolling * rollout.tail_s,
                    judged_s + last_s,
                    training * updates.forwards_s,
                    training * updates.training_s,
                    switch_s,
                ),
                strict=True,
            )
        )
        if not staleness:
            step_s = sum(parts.values())
        elif partial:
            under_way = (rolled_s + last_s + trained_s + switch_s) / (staleness + 1)
            step_s = max(trained_s + switch_s, steady_s + judged_s + switch_s, rewards_s, under_way)
        else:
            step_s = max(trained_s + switch_s, rolled_s + switch_s / batches, rewards_s)
        return RlWay(place, staleness, partial, rollout, updates, parts, step_s, factor)

    def _reward_s(self) -> float:
        """Seconds in which workers work out all rewards of a step, if nothing else holds them up."""
        return self.request.whole_batch * self.request.reward_s / self.request.reward_workers

    def _judge_s(self, gpus: int) -> float:
        """Seconds in which a network that judges reads all responses, on the GPUs of rollouts, in its narrowest layout."""
        judge, card, lengths = self.q.judge, self.q.facts.accelerator, self.q.lengths
        if judge is None:
            return 0.0
        kept = choose_precision(judge, "bf16", 2.0)
        whole = lengths.prompt + lengths.mean
        for layout in sorted(list_layouts(judge, card, FixedLayout()), key=lambda one: one.gpus):
            replica = Replica(judge, card, layout, kept, self.q.engine)
            if layout.gpus <= gpus and most_sequences(replica, lengths.prompt + lengths.most) >= 1:
                alone, _ = prompt_time(replica, whole)
                return self.request.whole_batch * float(alone) / (gpus // layout.gpus)
        raise PlanError(
            f"{judge.name} does not fit on the {gpus} GPUs of rollouts; give more, or a smaller --reward-model"
        )

    def _switch_s(self, place: Placement, rollout: Rollout, updates: Updates) -> float:
        """New weights to the engine; colocated, states to the host and back, where what the engine is given leaves them no room.

        Trainers gather every matrix whole on every GPU of rollouts, bucket by bucket, and the engine takes its part of it: all
        weights pass the network of each GPU once, or the links of the domain where all GPUs lie in one.
        """
        machine, replica = updates.job.machine, rollout.replica
        is_near = self.request.gpus <= machine.fabric.domain_gpus
        speed = machine.fabric.up_bytes_per_s if is_near else machine.fabric.out_bytes_per_s
        moved_s = weight_bytes(replica.network, replica.precision) / speed
        if place == "colocated":
            room = machine.memory_bytes * (1 - replica.engine.memory_for_engine_share)
            states = updates.models * updates.state_bytes
            moved_s += 2 * states / machine.host_bytes_per_s if states > room else 0.0
        return moved_s + self.request.switch_s
