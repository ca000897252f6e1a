"""`loadfactor plan …`: what-if questions, one module each, listed in `PLANS`."""

import typer

from loadfactor.interfaces.cli.lazy import CommandEntry, LazyGroup, add_group

PLANS = (
    CommandEntry(
        "train", "loadfactor.interfaces.cli.plan.train", "Plan a training run: the best layout, time, and cost."
    ),
    CommandEntry(
        "serve", "loadfactor.interfaces.cli.plan.serve", "Plan a serving fleet: layout, replicas, latency, cost."
    ),
    CommandEntry("size", "loadfactor.interfaces.cli.plan.size", "Find the size of a cluster that can be kept full."),
    CommandEntry("own", "loadfactor.interfaces.cli.plan.own", "Compare owning GPUs with renting them."),
    CommandEntry(
        "breakeven", "loadfactor.interfaces.cli.plan.breakeven", "Compare serving a model yourself with an API."
    ),
)


class Plans(LazyGroup):
    """The plans."""

    entries = PLANS


def add_to(app: typer.Typer) -> None:
    """Add `plan` and its questions."""
    add_group(app, "plan", Plans, "Plan training, serving, the size of a cluster, and owning it.")
