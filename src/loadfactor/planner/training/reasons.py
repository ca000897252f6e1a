"""Reasons why one layout is slower than another: the terms that differ, largest first."""

from loadfactor.base.units import BYTES_PER_GIB, PERCENT
from loadfactor.planner.training.evaluation import EvaluatedLayout
from loadfactor.planner.training.job import TrainingJob
from loadfactor.planner.training.layout import TrainingLayout

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
    said = [] if one.fits else [describe_need(one)]
    if gap <= 0:
        return f"would be {_format_percent(-gap / best.step_s)} faster, but {said[0]}" if said else "is as fast"
    parts = []
    for name, terms in GROUPS:
        more = sum(one.terms[t] - best.terms[t] for t in terms)
        if more > WORTH_SAYING * gap:
            parts.append((more, f"{_describe(name, job, one.layout)} +{_format_percent(more / best.step_s)}"))
    parts.sort(reverse=True)
    return "; ".join(
        [f"{_format_percent(gap / best.step_s)} slower: " + ", ".join(p for _, p in parts[:MOST_REASONS]), *said]
    )


def _format_percent(share: float) -> str:
    return f"{share * PERCENT:.1f} %"


def describe_need(one: EvaluatedLayout) -> str:
    """What the fullest rank needs of what is usable, with the largest part."""
    name, size = max(one.memory_parts.items(), key=lambda item: item[1])
    return (
        f"needs {one.memory_bytes / BYTES_PER_GIB:.0f} of {one.usable_bytes / BYTES_PER_GIB:.0f} GiB "
        f"({name.removesuffix('_bytes')} {size / BYTES_PER_GIB:.0f})"
    )


def _describe(name: str, job: TrainingJob, x: TrainingLayout) -> str:
    """The reason with the numbers that cause it."""
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
