"""Updates: seconds in which so many GPUs train on the responses of a step, by the layouts and the step of `plan train`.

Responses are packed into sequences as long as the longest may be, each of which attention tells apart. An update takes as many
packed sequences as its tokens fill, rounded up to what data ranks divide.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.planner.reinforcement.request import RlRequest
from loadfactor.planner.reinforcement.responses import ResponseLengths
from loadfactor.planner.training.explanations import (
    EvaluatedLayout,
    check_request,
    evaluate_layout,
    explain_no_legal_layout,
    explain_nothing_fits,
)
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.scaling import TrainingFacts, describe_job
from loadfactor.planner.training.search import SearchSpace, expect_step_s, list_divisors, rank_by_risk, search_layouts
from loadfactor.planner.training.step import estimate_forward

STATES = ("weights_bytes", "optimizer_bytes")  # what training keeps from one step to the next


@dataclass(frozen=True)
class Updates:
    """Training on a step's responses: `updates` optimizer steps of `update_s`, and `forwards` passes of `forward_s` before them."""

    gpus: int
    job: TrainingJob = field(repr=False)
    best: EvaluatedLayout = field(repr=False)
    updates: int
    update_s: float
    forward_s: float
    forwards: int
    models: int
    """Networks that are trained: the policy, and a critic."""

    @property
    def layout(self) -> str:
        return str(self.best.layout)

    @property
    def training_s(self) -> float:
        """All updates."""
        return self.models * self.updates * self.update_s

    @property
    def forwards_s(self) -> float:
        """All forward passes."""
        return self.forwards * self.forward_s

    @property
    def state_bytes(self) -> float:
        """Bytes of weights and optimizer on the fullest GPU."""
        return sum(self.best.memory_parts[name] for name in STATES)


def describe_updates(request: RlRequest, facts: TrainingFacts, lengths: ResponseLengths) -> TrainingJob:
    """The job of one update, its batch in packed sequences not yet rounded."""
    seq = min(ceil(lengths.prompt + lengths.most), facts.network.max_context)
    job = describe_job(request.describe_training(1, seq), facts)
    tokens = (request.batch or request.whole_batch) * (lengths.prompt + lengths.mean)
    return replace(job, global_batch=max(1, ceil(tokens / seq)), document_tokens=round(lengths.attended))


def plan_updates(request: RlRequest, job: TrainingJob, gpus: int) -> Updates:
    """The fastest training on so many GPUs, with its risk of memory. PlanError where nothing fits, as `plan train` says it."""
    space = request.describe_training(gpus, job.seq).space
    best: tuple[float, TrainingJob, EvaluatedLayout] | None = None
    refused: PlanError | None = None
    for one in _round_batches(job, gpus):
        try:
            found = _find_best(one, gpus, space)
        except PlanError as error:
            refused = error  # the last batch is one that all GPUs divide
            continue
        expected = float(expect_step_s(found.step_s, found.out_of_memory_share))
        if best is None or expected < best[0]:
            best = expected, one, found
    if best is None:
        raise refused or PlanError(f"{gpus} GPUs cannot train {job.network.name}; give more")
    _, one, found = best
    responses = request.whole_batch
    updates = request.epochs * responses // (request.batch or responses)
    each = float(np.ravel(estimate_forward(one, found.layout))[0])
    forwards = len(request.forwards) + request.critic
    models = 1 + request.critic
    return Updates(gpus, one, found, updates, found.step_s, each * updates / request.epochs, forwards, models)


def _round_batches(job: TrainingJob, gpus: int) -> Iterator[TrainingJob]:
    """The job with its batch rounded up to each number that data ranks may be, of those that have a sequence each."""
    sizes = {ceil(job.global_batch / ranks) * ranks for ranks in list_divisors(gpus) if ranks < 2 * job.global_batch}
    for size in sorted(sizes):
        yield replace(job, global_batch=size)


def _find_best(job: TrainingJob, gpus: int, space: SearchSpace) -> EvaluatedLayout:
    check_request(job, gpus, space)
    found = search_layouts(job, gpus, space)
    if not len(found):
        raise explain_no_legal_layout(job, gpus, space)
    if not found.fits.any():
        raise explain_nothing_fits(job, gpus, space, found)
    return evaluate_layout(job, rank_by_risk(job, found, space).layouts.pick(0))
