"""Rules of jobs: GPUs that are held and not used, from the start, since a while, or only some of them."""

from functools import partial
from typing import Final, Literal

import numpy as np

from loadfactor.base.quantities import write_share
from loadfactor.base.units import MIN_PER_HOUR, MS_PER_S, S_PER_HOUR, S_PER_MIN
from loadfactor.insight.alerts.rule import (
    LEAST_COVERAGE,
    SINCE_START,
    Compound,
    Evidence,
    Floats,
    Limit,
    Limits,
    Need,
    Rule,
    Threshold,
    Verdicts,
    count_by,
    show_duration,
    show_names,
)

NOTEBOOKS: Final = ("notebook", "interactive", "jupyter", "ipython", "workspace", "vscode", "debug")
"""Words in purposes of what somebody works in who thinks now and then."""
_JOB, _GPU = ("job",), ("job", "device")
_NOW: Final = float(S_PER_MIN)
_OF_JOBS: Final = tuple(Need("busy_gpu_hours", _JOB, window) for window in (_NOW, 5 * _NOW, SINCE_START))
_JOB_IDLE: Final = Need("idle_share", _JOB, SINCE_START)
_JOB_SIZE: Final = Need("allocated_gpu_hours", _JOB, _NOW)
_PURPOSE: Final = Need("allocated_gpu_hours", ("purpose",), _NOW)
"""Read so that the purpose of a job is known."""
_OF_GPUS: Final = Need("busy_gpu_hours", _GPU, SINCE_START)
_GPU_SIZE: Final = Need("allocated_gpu_hours", _GPU, _NOW)
_NODES: Final = Need("allocated_gpu_hours", ("node",), _NOW)
_ROUNDING: Final = 1e-6


def _find_idle(which: Literal["never worked", "stopped", "notebook"], evidence: Evidence, limits: Limits) -> Verdicts:
    """Jobs that never worked, or that did and do no longer; or notebooks in which nobody works, whether somebody did or not."""
    now, lately, ever = (evidence.read(need) for need in _OF_JOBS)
    gpus = evidence.read(_JOB_SIZE).value * S_PER_HOUR / _NOW
    least = _count_use(gpus, limits)
    is_idle, works_again, ever_worked = now.value <= 0, lately.value >= least, ever.value >= least
    of_notebook = evidence.names(_JOB, "purpose").find(is_notebook)
    is_judged = now.is_there & (now.coverage >= LEAST_COVERAGE) & (of_notebook == (which == "notebook"))
    if which == "never worked":
        is_judged &= ever.coverage >= LEAST_COVERAGE
        is_bad, is_clear, fact = is_idle & ~ever_worked, ever_worked, "has not worked since its start"
    elif which == "stopped":
        is_bad, is_clear, fact = is_idle & ever_worked, works_again, "worked, and does no longer"
    else:
        is_bad, is_clear, fact = is_idle, works_again, "nobody works in it"
    idle_share = evidence.read(_JOB_IDLE).value

    def explain(step: int, job: int) -> tuple[str, ...]:
        held_s = (evidence.at_ms[step] - evidence.starts(_JOB)[step, job]) / MS_PER_S
        held = f"holds {gpus[step, job]:.3g} GPUs for {show_duration(held_s)}"
        return (fact, held, f"idle in {write_share(idle_share[step, job])} of the time since its start")

    value = np.where(is_judged, idle_share, np.nan)
    groups = evidence.groups(_JOB)
    return Verdicts(groups, is_bad & is_judged, is_clear & is_judged, value, "share", explain, ~now.is_there)


def _count_use(gpus: Floats, limits: Limits) -> Floats:
    """The GPU-hours from which on something was used; of a part of a GPU this part of them."""
    return np.minimum(gpus, 1.0) * limits["use"] / MIN_PER_HOUR * (1 - _ROUNDING)


def is_notebook(purpose: str | None) -> bool:
    """Whether a purpose is one in which somebody thinks now and then.

    >>> is_notebook("JupyterServer"), is_notebook("training"), is_notebook(None)
    (True, False, False)
    """
    return purpose is not None and any(word in purpose.lower() for word in NOTEBOOKS)


def find_never_used(evidence: Evidence, limits: Limits) -> Verdicts:
    """Jobs that work on some of their GPUs and never did on others."""
    found, jobs = evidence.read(_OF_GPUS), evidence.groups(_JOB)
    least = _count_use(evidence.read(_GPU_SIZE).value * S_PER_HOUR / _NOW, limits)
    job_of = evidence.parents(_GPU, _JOB)
    is_known = found.is_there & (job_of >= 0) & (found.coverage >= LEAST_COVERAGE)
    is_used = is_known & (found.value >= least)
    is_unused = is_known & ~is_used
    used, unused = (count_by(job_of, len(jobs), of) for of in (is_used, is_unused))
    value = np.where(used + unused > 0, unused, np.nan)

    def explain(step: int, job: int) -> tuple[str, ...]:
        own = np.flatnonzero(is_unused[step] & (job_of[step] == job))
        gpus, nodes = evidence.groups(_GPU), evidence.names(_GPU, "node")
        named = ((gpus[gpu][1], nodes.at(step, gpu)) for gpu in own.tolist())
        listed = (f"{name} ({node})" if node else name for name, node in named)
        return (
            f"{unused[step, job]:.0f} of {used[step, job] + unused[step, job]:.0f} GPUs never worked since the start of the job",
            f"never used: {show_names(listed)}",
        )

    is_gone = ~evidence.read(_JOB_SIZE).is_there
    return Verdicts(jobs, (used > 0) & (unused > 0), unused == 0, value, "GPUs", explain, is_gone)


_USE: Final = {"use": Limit(2, "GPU-min", "the GPU-minutes of work, in all, from which on something was used", 0, 600)}
_READS: Final = (*_OF_JOBS, _JOB_IDLE, _JOB_SIZE, _PURPOSE)

JOBS: Final = (
    Rule(
        "job_idle_from_start", Compound(partial(_find_idle, "never worked"), _READS, _USE),
        _JOB, 30 * S_PER_MIN, "warning", "user error",
        "A job holds GPUs and has not worked on any of them for 30 minutes from its start.",
        "Is it user error or I/O: did the program start, does it find its GPUs, or does it still copy its data?",
        "The job's log and its environment (`CUDA_VISIBLE_DEVICES`, the framework's build); `loadfactor report --job JOB`.",
    ),
    Rule(
        "job_became_idle", Compound(partial(_find_idle, "stopped"), _READS, _USE), _JOB, 30 * S_PER_MIN, "warning", "I/O",
        "A job worked on its GPUs and has been idle for 30 minutes.",
        "Is it I/O, a lost worker or user error: does it wait for data, hang in a collective, or has it finished and not ended?",
        "The last lines of the logs of all ranks, a stack dump of a process (`py-spy dump`), and whether storage answers.",
    ),
    Rule(
        "notebook_idle", Compound(partial(_find_idle, "notebook"), _READS, _USE), _JOB, S_PER_HOUR, "info", "scheduling",
        "A notebook or interactive session holds GPUs and has been idle for an hour.",
        "Is it scheduling or user error: is somebody coming back to it, or was it forgotten?",
        "Ask its user; a limit for idle sessions of the notebook server would close it.",
    ),
    Rule(
        "gpus_never_used",
        Compound(find_never_used, (_OF_GPUS, _GPU_SIZE, _JOB_SIZE, _NODES), _USE), _JOB, 30 * S_PER_MIN, "warning", "user error",
        "Some GPUs of an allocation have not worked since its start, for 30 minutes in which others did.",
        "Is it user error: does the program ask for more GPUs than it uses, or was a rank never started?",
        "The launcher's number of processes; `loadfactor show busy_gpu_hours --by device --where job=JOB`.",
    ),
)  # fmt: skip


_BELOW_HALF: Final = Threshold("utilization", "below", 0.5, clears_at=0.55, window_s=30 * S_PER_MIN)

UTILIZATION: Final = (
    Rule(
        "fleet_utilization_low", _BELOW_HALF, (), S_PER_HOUR, "warning", "I/O",
        "Average utilization of all held GPUs is under 50 % for more than an hour.",
        "Is it I/O, model size, scheduling or user error: did all jobs become slower, or did a few large ones become idle?",
        "`loadfactor waterfall` says where the hours went; `loadfactor show utilization --by team` who they are.",
    ),
    Rule(
        "team_utilization_low", _BELOW_HALF, ("team",), S_PER_HOUR, "warning", "I/O",
        "Average utilization of the GPUs that a team holds is under 50 % for more than an hour.",
        "Is it I/O, model size, scheduling or user error: one job, or all of them?",
        "`loadfactor show utilization --by job --where team=TEAM` says which jobs, `loadfactor waterfall` why.",
    ),
    Rule(
        "job_utilization_low", _BELOW_HALF, ("job",), S_PER_HOUR, "info", "I/O",
        "Average utilization of the GPUs of a job is under 50 % for more than an hour.",
        "Is it I/O, model size, scheduling or user error: does the GPU wait for data, or is there too little work for it?",
        "The job's page (`loadfactor report --job JOB`) shows memory, links and tensor cores beside utilization.",
    ),
)  # fmt: skip
