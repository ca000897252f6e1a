"""Idle interactive: a notebook holds GPUs that nobody uses."""

from typing import Final

import numpy as np

from loadfactor.base.units import S_PER_HOUR, S_PER_MIN
from loadfactor.insight.diagnosis.diagnosed_job import DiagnosedJob
from loadfactor.insight.diagnosis.rule import Claim, Claimed, DiagnosisRule, Limit, Limits
from loadfactor.insight.diagnosis.runs import list_runs


def find(facts: DiagnosedJob, limits: Limits) -> Claimed:
    """Stretches without any activity, long enough to be forgotten."""
    if not facts.is_interactive:
        return None
    quiet = facts.held & ~facts.working & np.logical_or.reduce(facts.is_idle, axis=0)
    steps = np.zeros(len(facts.held), dtype=np.bool_)
    for first, after in list_runs(quiet):
        if (after - first) * facts.step_s >= limits["idle_s"]:
            steps[first:after] = True
    if not steps.any():
        return None
    hours = steps.sum() * facts.step_s / S_PER_HOUR
    return Claim(
        facts.idle_s * steps,
        0.8,
        0.95,
        (
            f"a {facts.purpose} that did nothing for {hours:.1f} h, in stretches of"
            f" {limits['idle_s'] / S_PER_MIN:.0f} min and more",
        ),
        ("state in memory that takes long to make again",),
        ("when its kernel last ran a cell (JupyterHub: last_activity)",),
    )


IDLE_NOTEBOOK: Final = DiagnosisRule(
    "idle_notebook", "idle notebook", "scheduling", (), find,
    "Cull idle kernels (JupyterHub: --cull-idle-timeout=3600); a shared pool or MIG slices for notebooks.",
    {"idle_s": Limit(3600, "s", "least time without activity", 60)},
    "economics §5: engine < 1 % for ≥ 60 min",
)  # fmt: skip
