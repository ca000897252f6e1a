"""Plans of one training run on several numbers of GPUs, by strong or weak scaling."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from loadfactor.base.errors import CatalogError, InputError, PlanError
from loadfactor.base.units import BYTES_PER_GB
from loadfactor.catalog.accelerators import Accelerator
from loadfactor.catalog.clusters import PublishedCluster
from loadfactor.catalog.models import Network
from loadfactor.catalog.prices import NO_PRICE, ChosenPrice
from loadfactor.planner.hardware.marginal import Marginal
from loadfactor.planner.training.calibration import CalibrationReport, calibrate, read_layout, read_measured
from loadfactor.planner.training.explanations import evaluate_layout
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.machine import (
    DATATYPES,
    Machine,
    build_machine,
    choose_datatype,
)
from loadfactor.planner.training.request import Framework, TrainingRequest
from loadfactor.planner.training.training_plan import PlannedProject, TrainingPlan, cost_project, plan_run

USUAL_SEQ = 8192
USUAL_BATCH_TOKENS = 4 * 2**20  # Llama 3 started at 4 M tokens


def choose_seq(network: Network) -> int:
    """Tokens in a sequence: 8,192, or all the network can see.

    >>> from loadfactor.catalog.models import network
    >>> choose_seq(network("gpt3-175b")), choose_seq(network("llama-3.1-70b"))
    (2048, 8192)
    """
    return min(network.max_context, USUAL_SEQ)


def choose_batch(seq: int, gpus: int) -> int:
    """Sequences in a step: about 4 M tokens, rounded to the GPUs (or a half, a quarter … of them) so that ranks divide it.

    >>> choose_batch(8192, 512), choose_batch(2048, 3072), choose_batch(8192, 576)
    (512, 3072, 576)
    """
    target = max(USUAL_BATCH_TOKENS // seq, 1)
    share = gpus
    while share > 1.5 * target and share % 2 == 0:
        share //= 2
    return max(round(target / share), 1) * share


COMPARED: tuple[Framework, ...] = ("transformers", "megatron", "nemo")  # from what is slowest as it comes


@dataclass(frozen=True)
class TrainingFacts:
    """Facts of the catalog about the things that a request names."""

    network: Network
    accelerator: Accelerator
    cluster: PublishedCluster | None
    price: ChosenPrice | None


@dataclass(frozen=True)
class RefusedRun:
    """A number of GPUs on which the run cannot be, and why."""

    gpus: int
    reason: str


@dataclass(frozen=True)
class TrainingPlans:
    """The answer to a request: a plan or a refusal for each number of GPUs, in the order requested."""

    model: str
    parameters: int
    accelerator: str
    tokens: float
    scaling: str
    price_source: str | None
    plans: Sequence[TrainingPlan]
    refused: Sequence[RefusedRun]
    projects: Sequence[PlannedProject]
    """The whole project on each number of GPUs, beside its plan."""
    days_by_framework: Mapping[str, float]
    """Days of the last plan in the same layout with other frameworks; empty on TPUs, and where one beside these was asked for."""
    calibration: CalibrationReport | None = None
    """What a measured run changed; None without one."""
    marginal: Sequence[Marginal] = ()
    """What more GPUs or money bring beside the last plan, where requested."""

    @property
    def currency(self) -> str:
        return self.plans[0].currency


def plan_runs(
    request: TrainingRequest, facts: TrainingFacts, over: Callable[[Sequence[int]], Iterable[int]] = iter
) -> TrainingPlans:
    """A plan for each number of GPUs; `over` goes through them, for a caller that shows progress.

    Raises PlanError with the reason when none of them can be.
    """
    job = describe_job(request, facts)
    job, calibrated = _calibrate(request, job)
    plans, refused = [], []
    tokens = request.tokens / request.needs.work_share
    for gpus in over(request.gpus):
        batch = job.global_batch * gpus // request.gpus[0] if request.scaling == "weak" else job.global_batch
        one = replace(job, global_batch=max(batch, 1))
        try:
            plans.append(plan_run(one, gpus, tokens, request.reliability, request.space, facts.price))
        except PlanError as reason:
            if len(request.gpus) == 1:
                raise
            refused.append(RefusedRun(gpus, str(reason)))
    if not plans:
        raise PlanError(refused[0].reason)
    return TrainingPlans(
        facts.network.name,
        facts.network.parameters,
        job.machine.name,
        request.tokens,
        request.scaling,
        _name_source(facts.price),
        plans,
        refused,
        [cost_project(plan, request.needs) for plan in plans],
        _compare_frameworks(request, facts, plans[-1]),
        calibrated,
    )


def _calibrate(request: TrainingRequest, job: TrainingJob) -> tuple[TrainingJob, CalibrationReport | None]:
    """The job after the measured run, in its layout or else in the one that the plan would choose beforehand."""
    measured = read_measured(request.measured, request.measured_peak)
    if measured is None:
        return job, None
    gpus = request.gpus[0]
    if measured.layout is not None:
        layout = read_layout(measured.layout, gpus, job)
    else:
        layout = plan_run(job, gpus, 1.0, request.reliability, request.space).best.layout
    return calibrate(job, layout, measured)


def _compare_frameworks(request: TrainingRequest, facts: TrainingFacts, plan: TrainingPlan) -> Mapping[str, float]:
    """Days of a plan's layout with the newest of several frameworks."""
    if facts.accelerator.vendor == "Google" or request.framework not in (None, *COMPARED) or request.measured:
        return {}
    days: dict[str, float] = {}
    for name in COMPARED:
        other = replace(request, framework=name, release=None)
        software, machine = other.choose_software(facts.accelerator), _build_machine(other, facts)
        job = replace(plan.job, software=software, machine=machine)
        days[name] = plan.days * evaluate_layout(job, plan.best.layout).step_s / plan.step_s
    return days


def _name_source(price: ChosenPrice | None) -> str | None:
    if price is None:
        return NO_PRICE
    return None if price.is_given else f"{price.source} ({price.basis}, {price.as_of})"


def describe_job(request: TrainingRequest, facts: TrainingFacts) -> TrainingJob:
    """The job on the first number of GPUs, with what the request leaves open set to what is usual."""
    seq = request.seq or choose_seq(facts.network)
    most = max(request.gpus)
    usual = choose_batch(seq, most)  # one that the most GPUs requested divide
    if request.scaling == "weak":
        usual = max(usual * request.gpus[0] // most, 1)
    return TrainingJob(
        facts.network,
        seq,
        request.global_batch or usual,
        _build_machine(request, facts),
        request.choose_software(facts.accelerator),
        adapters=request.adapters,
    )


def _build_machine(request: TrainingRequest, facts: TrainingFacts) -> Machine:
    card, cluster = facts.accelerator, facts.cluster
    network = request.network_gb_per_s * BYTES_PER_GB if request.network_gb_per_s else None
    if network is None and cluster:
        network = cluster.scale_out_bytes_per_s.value
    datatype = DATATYPES.get(request.datatype, (request.datatype, "tensor"))[0]
    try:
        return build_machine(card, choose_datatype(card, datatype), network, software=request.choose_software(card))
    except CatalogError:
        known = [n.removeprefix("peak_").removesuffix("_flops") for n in card.facts if n.startswith("peak_")]
        raise InputError(f"{card.id} has no known {datatype} peak; it has {', '.join(known)}") from None
