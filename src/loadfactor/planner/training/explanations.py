"""One layout evaluated, why it loses to the best, which choices are open, and why a run cannot be: a line each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadfactor.base.errors import PlanError
from loadfactor.base.quantities import write_share
from loadfactor.base.units import BYTES_PER_GIB, PERCENT
from loadfactor.catalog.constants import read_left_out_errors
from loadfactor.catalog.models import Network
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import FULL, NONE, RECOMPUTE, SELECTIVE, TrainingLayout
from loadfactor.planner.training.memory import estimate_memory, estimate_risk, recompute_as_needed
from loadfactor.planner.training.search import (
    MOST_MISSING_SHARE,
    ScoredLayouts,
    SearchSpace,
    is_even_enough,
    list_divisors,
    list_pipeline_degrees,
    list_tensor_degrees,
    search_layouts,
)
from loadfactor.planner.training.step import estimate_step


@dataclass(frozen=True)
class EvaluatedLayout:
    """Seconds by term and bytes by part of one layout, and why it loses to the best one (None for the best)."""

    layout: TrainingLayout
    terms: Mapping[str, float]
    memory_parts: Mapping[str, float]
    usable_bytes: float
    out_of_memory_share: float
    """How probable it is that it runs out of memory, for what predicted peaks are off by."""
    why_it_loses: str | None = None

    @property
    def step_s(self) -> float:
        return sum(self.terms.values())

    @property
    def memory_bytes(self) -> float:
        return sum(self.memory_parts.values())

    @property
    def fits(self) -> bool:
        return self.memory_bytes <= self.usable_bytes


def evaluate_layout(job: TrainingJob, layout: TrainingLayout) -> EvaluatedLayout:
    needs = estimate_memory(job, layout)
    terms, parts = (
        {name: float(np.ravel(value)[0]) for name, value in many.items()}
        for many in (estimate_step(job, layout).terms, needs.parts)
    )
    risk = float(np.ravel(estimate_risk(job, layout))[0])
    return EvaluatedLayout(layout, terms, parts, needs.usable_bytes, risk)


MOST_DOUBLINGS = 8  # of the GPUs, looking for a number on which something fits


def check_request(job: TrainingJob, gpus: int, space: SearchSpace) -> None:
    """Raise PlanError for a request that contradicts the network, the GPUs or the batch."""
    n, k = job.network, space
    if gpus < 1:
        raise PlanError(f"a run needs at least 1 GPU, got {gpus}")
    if n.positional == "learned" and job.seq > n.max_context:
        raise PlanError(
            f"{n.name} has {n.max_context} learned positions, a sequence of {job.seq} does not fit; give --seq {n.max_context}"
        )
    legal = list_tensor_degrees(n)
    for t in k.tensor:
        if t not in legal:
            why = f"{n.heads} heads" if n.heads % t else f"{n.kv_heads} key-value heads or its MLP"
            raise PlanError(f"{t} tensor ranks do not divide {n.name}'s {why}; {_name_nearest(t, legal, gpus)}")
    stages = list_pipeline_degrees(n, gpus)
    for p in k.pipeline:
        if not is_even_enough(n.layers, p, MOST_MISSING_SHARE):
            raise PlanError(
                f"{n.layers} layers do not divide over {p} pipeline stages; {_name_nearest(p, stages, gpus)}"
            )
    for e in k.expert:
        if n.experts is None and e > 1:
            raise PlanError(f"{n.name} has no experts to spread over {e} ranks; leave --ep out")
        if n.experts and n.experts.count % e:
            near = _name_nearest(e, list_divisors(n.experts.count), gpus)
            raise PlanError(f"{n.experts.count} experts do not divide over {e} ranks; {near}")
    if job.software.context_by == "all-to-all":
        _check_heads(n, k)
    _check_product(gpus, k)
    _check_stage(n, gpus, k)
    _check_batch(job, gpus, k)


def _check_heads(n: Network, k: SearchSpace) -> None:
    t, c = min(k.tensor or (1,)), min(k.context or (1,))
    if n.heads % (t * c):
        raise PlanError(
            f"{n.heads} heads do not divide over {t} tensor × {c} context ranks, which exchange by heads; "
            "give a smaller --cp, or --context-by ring"
        )


def _check_product(gpus: int, k: SearchSpace) -> None:
    for t in k.tensor or (1,):
        for p in k.pipeline or (1,):
            for c in k.context or (1,):
                if gpus % (t * p * c):
                    many = t * p * c
                    if many > gpus:
                        raise PlanError(
                            f"{t} tensor × {p} pipeline × {c} context ranks take {many} GPUs, more than the {gpus} given; "
                            f"give fewer ranks, or --gpus {many}"
                        )
                    near = max(gpus // many, 1) * many
                    raise PlanError(
                        f"{gpus} GPUs are no multiple of {t} tensor × {p} pipeline × {c} context ranks = {many}; "
                        f"the nearest that are: {near} and {near + many}"
                    )


def _check_stage(n: Network, gpus: int, k: SearchSpace) -> None:
    stages = k.pipeline or list_pipeline_degrees(n, gpus)
    sizes = sorted({gpus // p for p in stages if gpus % p == 0})
    for e in k.expert:
        if n.experts and sizes and all(size % e for size in sizes):
            legal = [d for d in list_divisors(n.experts.count) if sizes[-1] % d == 0]
            raise PlanError(
                f"{e} expert ranks do not divide the {sizes[-1]} GPUs of a pipeline stage; "
                f"{_name_nearest(e, legal, sizes[-1])}"
            )


def _check_batch(job: TrainingJob, gpus: int, k: SearchSpace) -> None:
    if not (k.tensor and k.pipeline):
        return
    degrees = [gpus // (t * p * c) for t in k.tensor for p in k.pipeline for c in (k.context or (1,))]
    for micro in k.micro_batch or (1,):
        pieces = [d * micro for d in degrees]
        if all(job.global_batch % piece for piece in pieces):
            piece = pieces[0]
            below = job.global_batch // piece * piece
            near = f"{below} and {below + piece}" if below else f"{piece}"
            raise PlanError(
                f"a global batch of {job.global_batch} sequences does not divide over {degrees[0]} data ranks × "
                f"micro-batch {micro}; the nearest that does: {near}"
            )


def _name_nearest(degree: int, legal: Sequence[int], gpus: int) -> str:
    """The nearest below and above of those that can be on these GPUs: that divide them, or where none does, are no more."""
    able = [x for x in legal if gpus % x == 0 and x > 1] or [x for x in legal if x <= gpus]
    below = [x for x in able if x < degree]
    above = [x for x in able if x > degree]
    near = [str(x) for x in (below[-1:] + above[:1])]
    return f"the nearest that {'do' if len(near) > 1 else 'does'}: {' and '.join(near)}"


def explain_no_legal_layout(job: TrainingJob, gpus: int, space: SearchSpace) -> PlanError:
    k, n = space, job.network
    data = {
        gpus // (t * p)
        for t in k.tensor or list_tensor_degrees(n)
        for p in k.pipeline or list_pipeline_degrees(n, gpus)
        if gpus % (t * p) == 0
    }
    near = min(
        (max(round(job.global_batch / d), 1) * d for d in data), key=lambda b: (abs(b - job.global_batch), b), default=0
    )
    if not near or near == job.global_batch:
        return PlanError(
            f"no layout of {n.name} on {gpus} GPUs obeys all the degrees asked for; leave one of them to the search"
        )
    return PlanError(
        f"no layout of {n.name} on {gpus} GPUs divides a global batch of {job.global_batch} sequences; the nearest batch that "
        f"one divides: {near}"
    )


def explain_nothing_fits(job: TrainingJob, gpus: int, space: SearchSpace, found: ScoredLayouts) -> PlanError:
    """The leanest layout, its largest part, and the fewest GPUs (doubling) on which something fits."""
    i = int(np.argmin(found.memory_bytes))
    layout = found.layouts.pick(i)
    parts = {k: float(np.ravel(v)[0]) for k, v in estimate_memory(job, layout).parts.items()}
    name, size = max(parts.items(), key=lambda item: item[1])
    usable = estimate_memory(job, layout).usable_bytes
    need = f"{found.memory_bytes[i] / BYTES_PER_GIB:.0f} GiB of {usable / BYTES_PER_GIB:.0f} usable"
    needs = (
        f"nothing fits: {job.network.name} on {gpus} {job.machine.name} needs at least {need} "
        f"({name.removesuffix('_bytes')} {size / BYTES_PER_GIB:.0f} GiB, as {layout})"
    )
    more = _find_enough_gpus(job, gpus, space)
    if more:
        return PlanError(f"{needs}; it fits on {more} GPUs")
    if space.recompute and RECOMPUTE.index("full") not in space.recompute:
        return PlanError(f"{needs}; try --recompute full")
    return PlanError(f"{needs}; take a GPU with more memory or a shorter --seq")


def _find_enough_gpus(job: TrainingJob, gpus: int, space: SearchSpace) -> int | None:
    for doubling in range(1, MOST_DOUBLINGS + 1):
        more = int(gpus * 2**doubling)
        found = search_layouts(replace(job, global_batch=max(job.global_batch, more)), more, space)
        if len(found) and found.fits.any():
            return more
    return None


WORTH_SAYING = 0.1  # of the whole difference: smaller terms are left out
MOST_REASONS = 3

# Terms that have one cause.
GROUPS = (
    ("bubble", ("bubble_s",)),
    ("kernels", ("matmul_s", "attention_s", "elementwise_s")),
    ("head", ("head_s",)),
    ("recompute", ("recompute_s",)),
    ("tensor", ("tensor_s",)),
    ("context", ("context_s",)),
    ("expert", ("expert_s",)),
    ("send", ("pipeline_send_s",)),
    ("data", ("data_s",)),
    ("launch", ("launch_s",)),
    ("optimizer", ("optimizer_s", "overhead_s")),
)


def explain_loss(job: TrainingJob, one: EvaluatedLayout, best: EvaluatedLayout) -> str:
    """How much slower than `best` a layout is and through which terms; and whether it fits at all."""
    gap = one.step_s - best.step_s
    needs = [] if one.fits else [describe_need(one)]
    risk = f"runs out of memory in {write_share(one.out_of_memory_share)} of cases"
    if gap <= 0 and not needs:
        riskier = one.out_of_memory_share > best.out_of_memory_share
        return f"is {write_share(-gap / best.step_s, 1)} faster, but {risk}" if gap < 0 and riskier else "is as fast"
    if gap <= 0:
        return f"would be {write_share(-gap / best.step_s, 1)} faster, but {needs[0]}"
    parts = []
    for name, terms in GROUPS:
        more = sum(one.terms[t] - best.terms[t] for t in terms)
        if more > WORTH_SAYING * gap:
            parts.append((more, f"{_describe(name, job, one.layout)} +{write_share(more / best.step_s, 1)}"))
    parts.sort(reverse=True)
    return "; ".join(
        [f"{write_share(gap / best.step_s, 1)} slower: " + ", ".join(p for _, p in parts[:MOST_REASONS]), *needs]
    )


def describe_need(one: EvaluatedLayout) -> str:
    name, size = max(one.memory_parts.items(), key=lambda item: item[1])
    return (
        f"needs {one.memory_bytes / BYTES_PER_GIB:.0f} of {one.usable_bytes / BYTES_PER_GIB:.0f} GiB "
        f"({name.removesuffix('_bytes')} {size / BYTES_PER_GIB:.0f})"
    )


def _describe(name: str, job: TrainingJob, x: TrainingLayout) -> str:
    micro = x.micro_batches(job.global_batch)
    domain = job.machine.fabric.domain_gpus
    far = "across nodes" if x.tensor > domain else "inside the node"
    return {
        "bubble": f"pipeline bubble ({x.pipeline} stages, {micro} micro-batches)",
        "kernels": f"smaller kernels (1/{x.tensor} of each matrix, micro-batch {x.micro_batch})",
        "head": f"logits of {micro} micro-batches on the last stage",
        "recompute": x.recomputed,
        "tensor": f"exposed tensor exchange ({x.tensor} ranks {far})",
        "context": f"exposed context ring ({x.context} ranks)",
        "expert": f"expert all-to-all ({x.expert} ranks)",
        "send": f"sends between {x.pipeline} stages",
        "data": f"exposed exchange over {x.data} data ranks" + (" for every micro-batch" if x.zero == 3 else ""),
        "launch": "kernel launches",
        "optimizer": "optimizer step",
    }[name]


def list_open_recomputation(job: TrainingJob, best: EvaluatedLayout) -> tuple[EvaluatedLayout, ...]:
    """The best layout with other recomputation, where the errors of time or memory can turn the choice, with the reason.

    Less of it where it would fit if memory is predicted too high; more of it where it is hardly slower, or where memory may be
    predicted too low.
    """
    low, high = job.peak_range
    close = 1 + read_left_out_errors().layout_spread
    is_tight = best.memory_bytes * high > best.usable_bytes
    found = []
    for one in _vary_recomputation(job, best):
        change = one.step_s / best.step_s - 1
        if one.memory_bytes > one.usable_bytes:
            if change < 0 and one.memory_bytes * low <= one.usable_bytes:
                over = (one.memory_bytes / one.usable_bytes - 1) * PERCENT
                lead = f"{write_share(-change, 1)} faster; {describe_need(one)}"
                why = f"{lead}, so it fits if that is predicted {over:.0f} % too high"
                found.append(replace(one, why_it_loses=why))
        elif one.memory_bytes < best.memory_bytes and is_tight and one.memory_bytes * high <= one.usable_bytes:
            why = f"{write_share(change, 1)} slower, and fits where memory is predicted a quarter too low"
            found.append(replace(one, why_it_loses=why))
        elif 0 <= change < close - 1:
            found.append(replace(one, why_it_loses=f"{write_share(change, 1)} slower, which is too close to call"))
    return tuple(found)


def _vary_recomputation(job: TrainingJob, best: EvaluatedLayout) -> Iterator[EvaluatedLayout]:
    """The same layout with none, selective, as little as needed and full recomputation, each once and none like the best."""
    seen = {(round(best.step_s, 9), best.memory_bytes)}
    for mode in (NONE, SELECTIVE, FULL):
        whole = replace(best.layout, recompute=mode, recompute_share=1.0)
        ways: list[TrainingLayout] = [whole]
        if mode == FULL:
            ways.insert(0, recompute_as_needed(job, whole.as_arrays()).pick(0))
        for layout in ways:
            one = evaluate_layout(job, layout)
            key = (round(one.step_s, 9), one.memory_bytes)
            if key not in seen:
                seen.add(key)
                yield one
